"""The verbs: one file each, named as its command.

Every verb takes what it needs, returns a value and prints nothing.
"""
