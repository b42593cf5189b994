"""The agents on this machine: their files, databases, processes and settings."""
