"""Builders that several test modules share; no test module imports from another."""
