"""Find and read sessions, check that they are idle, and replace their content."""
