"""The agents' worlds on this machine, one module an agent."""
