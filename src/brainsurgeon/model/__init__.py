"""Values that every package may use, by subject.

Lengths named `chars` are Unicode code points, lengths named `size` are bytes, offsets are bytes
from the start of the session file, times are seconds since 1970 in UTC.
"""
