#!/bin/sh
# Set everything up and run the tests on all cores; what you add goes to pytest.
set -eu
cd "$(dirname "$0")/.."
. deploy/setup.sh
set_up
# Each of several hundred Python processes would compile the program anew.
unset PYTHONDONTWRITEBYTECODE
# Many tests wait more than they work: for a session to be at rest, for a process to die.
workers=${TEST_WORKERS:-$(($(getconf _NPROCESSORS_ONLN) + 2))}
exec .venv/bin/python -m pytest -n "$workers" --dist worksteal "$@"
