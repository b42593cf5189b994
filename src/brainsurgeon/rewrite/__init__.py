"""Examine a session, carry one plan out, finish or undo what a crash interrupted."""
