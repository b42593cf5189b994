"""Benchmarks of brainsurgeon beside the cost of bare operations on the same bytes.

`sh deploy/bench.sh` prints one table; its options are in `__main__`. A group of rows is a module
with `rows(place, options)`. Shared code is in `measuring` and `table`.
"""
