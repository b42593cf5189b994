#!/bin/sh
# Build source archive and wheel, and install them with the lowest and the newest versions of the
# dependencies, each in a temporary environment. There, run deploy/smoke.py, and check that
# uninstalling leaves no file.
#   sh deploy/dependencies.sh [lowest|lowest-mcp|newest]...
set -eu
cd "$(dirname "$0")/.."
. deploy/setup.sh
set_up
python=$(find_python)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
trap 'exit 130' INT TERM

# Direct dependencies have their lowest versions, indirect ones the newest that fit.
"$python" - > "$place/lowest.txt" <<'END'
import tomllib

with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
for wanted in (*project["dependencies"], *project["optional-dependencies"]["mcp"]):
    print(wanted.partition(",")[0].replace(">=", "=="))
END

.venv/bin/python -m hatchling build -d "$place/dist" > "$place/build.said" 2>&1 \
    || { cat "$place/build.said" >&2; exit 1; }
archive=$(echo "$place"/dist/*.tar.gz)
wheel=$(echo "$place"/dist/*.whl)

try() {
    name=$1
    shift
    "$python" -m venv "$place/$name"
    "$place/$name/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
    "$place/$name/bin/python" deploy/smoke.py > "$place/$name.said"
    "$place/$name/bin/python" -m pip uninstall --quiet --yes brainsurgeon
    left=$(find "$place/$name" -name '*brainsurgeon*')
    [ -z "$left" ] || { echo "$name: left behind: $left" >&2; exit 1; }
    echo "$name: $(cat "$place/$name.said")"
}

for one in "${@:-lowest lowest-mcp newest}"; do
    for name in $one; do
        case $name in
        lowest) try lowest --constraint "$place/lowest.txt" "$archive" ;;
        lowest-mcp) try lowest-mcp --constraint "$place/lowest.txt" "${wheel}[mcp]" ;;
        newest) try newest --upgrade "${wheel}[mcp]" ;;
        *) echo "there is no set $name" >&2 && exit 2 ;;
        esac
    done
done
