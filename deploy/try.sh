#!/bin/sh
# Set up .venv, then scan, show, restore and compare a copy of the sample sessions, and print what
# a scan would change in your own sessions.
set -eu
cd "$(dirname "$0")/.."
. deploy/setup.sh
set_up
exec .venv/bin/python deploy/try.py
