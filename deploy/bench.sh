#!/bin/sh
# Set everything up and measure scans beside the limits of the same bytes.
set -eu
cd "$(dirname "$0")/.."
. deploy/setup.sh
set_up
exec .venv/bin/python tests/bench.py "$@"
