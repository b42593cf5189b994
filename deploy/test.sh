#!/bin/sh
# Set up .venv and run the tests on all cores. Arguments are passed to pytest.
set -eu
cd "$(dirname "$0")/.."
. deploy/setup.sh
set_up
# With it, each of several hundred Python processes would compile the program.
unset PYTHONDONTWRITEBYTECODE
# Many tests mostly wait: for a session to become idle, for a process to end.
workers=${TEST_WORKERS:-$(($(getconf _NPROCESSORS_ONLN) + 2))}
exec .venv/bin/python -m pytest -n "$workers" --dist worksteal "$@"
