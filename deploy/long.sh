#!/bin/sh
# Set up .venv and run every long test, for an hour or more. Arguments are passed to pytest.
# At the end, or with --list instead, print which modules each of them covers.
set -eu
cd "$(dirname "$0")/.."
. deploy/setup.sh
set_up
if [ "${1:-}" = --list ]; then
    exec .venv/bin/python -E -m pytest -q -m long --list-proofs
fi
exec .venv/bin/python -E -m pytest -n "${TEST_WORKERS:-auto}" --dist worksteal -m long "$@"
