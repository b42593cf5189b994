"""Lookup of sessions, entries, extracted values and scopes by name."""
