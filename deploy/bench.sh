#!/bin/sh
# Set everything up and print one table: what work takes, beside the limits of the same bytes.
#   sh deploy/bench.sh [GROUP]... [--large] [--json]; sh deploy/bench.sh --help
#   sh deploy/bench.sh money [DIRECTORY] [--json]: what recorded calls would have cost
set -eu
export FROM="$PWD"
cd "$(dirname "$0")/.."
. deploy/setup.sh
set_up
cd tests
exec ../.venv/bin/python -m bench "$@"
