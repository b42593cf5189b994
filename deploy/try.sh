#!/bin/sh
# Set everything up and show what brainsurgeon does: on a copy of the sample sessions it scans,
# shows, restores and compares; of your own OpenClaw sessions it only says what it would do.
set -eu
cd "$(dirname "$0")/.."
. deploy/setup.sh
set_up
exec .venv/bin/python deploy/try.py
