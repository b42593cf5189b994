# shellcheck shell=sh
# Make .venv at the top of the project with the versions in requirements.txt; change nothing else.
# The scripts beside it source this file from the top of the project.

# In an empty environment the shell does not export its PATH, but Python needs it to find itself.
PATH=${PATH:-/usr/local/bin:/usr/bin:/bin}
export PATH

find_python() {
    for candidate in "${PYTHON:-python3}" python3.13 python3.12 python3.11 python3.14; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return 0
        fi
    done
    echo "brainsurgeon needs Python 3.11 or newer; set PYTHON to one" >&2
    return 1
}

set_up() {
    python=$(find_python) || return 1
    wanted=$(cat requirements.txt pyproject.toml | cksum)
    if [ "$(cat .venv/.set-up 2>/dev/null)" = "$wanted" ]; then
        return 0
    fi
    echo "setting up .venv with $("$python" --version): this takes a minute or two ..." >&2
    if ! "$python" -m venv .venv; then
        echo "this Python cannot make a virtual environment (Debian: apt install python3-venv)" >&2
        return 1
    fi
    .venv/bin/python -m pip install --quiet --disable-pip-version-check \
        --require-hashes -r requirements.txt || return 1
    .venv/bin/python -m pip install --quiet --disable-pip-version-check \
        --no-deps --no-build-isolation -e . || return 1
    echo "$wanted" > .venv/.set-up
}
