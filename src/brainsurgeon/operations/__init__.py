"""The verbs: one file each, and the only room where both hands meet.

Every verb takes what it needs, returns a value and prints nothing.
"""
