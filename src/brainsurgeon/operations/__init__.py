"""The commands, one module each. They return values and print nothing."""
