#!/bin/sh
# Set everything up and run every long proof, for an hour or more; what you add goes to pytest.
# At the end, or with --list instead, it says which parts of the house each of them proves.
set -eu
cd "$(dirname "$0")/.."
. deploy/setup.sh
set_up
if [ "${1:-}" = --list ]; then
    exec .venv/bin/python -m pytest -q -m long --list-proofs
fi
exec .venv/bin/python -m pytest -n "${TEST_WORKERS:-auto}" --dist worksteal -m long "$@"
