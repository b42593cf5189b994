#!/bin/sh
# Install brainsurgeon beside the lowest and beside the newest versions of what it depends on, each
# in an environment of its own that is gone afterwards, and try what matters: deploy/smoke.py.
#   sh deploy/dependencies.sh [lowest|lowest-mcp|newest]...
set -eu
cd "$(dirname "$0")/.."
. deploy/setup.sh
python=$(find_python)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
trap 'exit 130' INT TERM

# A dependency's lower bound becomes its version; what these need in turn is the newest that fits.
"$python" - > "$place/lowest.txt" <<'END'
import tomllib

with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
for wanted in (*project["dependencies"], *project["optional-dependencies"]["mcp"]):
    print(wanted.partition(",")[0].replace(">=", "=="))
END

try() {
    name=$1
    shift
    "$python" -m venv "$place/$name"
    "$place/$name/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
    "$place/$name/bin/python" deploy/smoke.py > "$place/$name.said"
    echo "$name: $(cat "$place/$name.said")"
}

for one in "${@:-lowest lowest-mcp newest}"; do
    for name in $one; do
        case $name in
        lowest) try lowest --constraint "$place/lowest.txt" . ;;
        lowest-mcp) try lowest-mcp --constraint "$place/lowest.txt" '.[mcp]' ;;
        newest) try newest --upgrade '.[mcp]' ;;
        *) echo "there is no set $name" >&2 && exit 2 ;;
        esac
    done
done
