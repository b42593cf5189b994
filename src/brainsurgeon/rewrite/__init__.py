"""Examine a session, carry out its plan, finish or undo rewrites that a crash interrupted."""
