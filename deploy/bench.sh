#!/bin/sh
# Set up .venv and print the measurements in one table, each beside its limit.
#   sh deploy/bench.sh [GROUP]... [--large] [--json]; sh deploy/bench.sh --help
#   sh deploy/bench.sh money [DIRECTORY] [--json]: what recorded calls would have cost
set -eu
export FROM="$PWD"
cd "$(dirname "$0")/.."
. deploy/setup.sh
set_up
cd tests
exec ../.venv/bin/python -m bench "$@"
