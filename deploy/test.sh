#!/bin/sh
# Set everything up and run the tests; what you add goes to pytest.
set -eu
cd "$(dirname "$0")/.."
. deploy/setup.sh
set_up
exec .venv/bin/python -m pytest "$@"
