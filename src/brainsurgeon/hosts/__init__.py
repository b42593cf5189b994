"""The agents' worlds on this machine, one agent a module or a few."""
