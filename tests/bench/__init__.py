"""Measure brainsurgeon beside the limits of the same bytes, in the same run, on this machine.

`sh deploy/bench.sh` prints one table; `tests/bench/__main__.py` says what may be asked for. A group
of rows is a module with `rows(place, wanted)`; what all share is in `measuring` and `table`.
"""
