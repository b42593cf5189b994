"""Examine a session, carry one plan out, recover what a crash interrupted."""
