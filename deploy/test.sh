#!/bin/sh
# Set up .venv and run the tests on all cores. Arguments are passed to pytest.
set -eu
cd "$(dirname "$0")/.."
. deploy/setup.sh
set_up
# Many tests mostly wait: for a session to become idle, for a process to end.
workers=${TEST_WORKERS:-$(($(getconf _NPROCESSORS_ONLN) + 2))}
# Without variables such as PYTHONPATH, here by -E and in other processes by tests/conftest.py.
exec .venv/bin/python -E -m pytest -n "$workers" --dist worksteal "$@"
