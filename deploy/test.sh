#!/bin/sh
# Set everything up and run the tests on all cores; what you add goes to pytest.
set -eu
cd "$(dirname "$0")/.."
. deploy/setup.sh
set_up
exec .venv/bin/python -m pytest -n "${TEST_WORKERS:-auto}" --dist worksteal "$@"
