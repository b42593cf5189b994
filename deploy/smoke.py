"""Test the installed brainsurgeon with the installed versions of its dependencies.

Uses a temporary directory. Prints the versions of the direct dependencies.
"""

import importlib
import json
import os
import pkgutil
import re
import signal
import subprocess
import sys
import tempfile
import time
from importlib import metadata, util
from pathlib import Path

PROGRAM = [sys.executable, "-m", "brainsurgeon"]
VALUE = "a line of a build that nobody reads twice\n" * 100
USAGE = 2
TURN = [
    {"type": "user", "__id": "u1", "content": "build it"},
    {"type": "tool_call", "__id": "c1", "name": "exec", "arguments": {"command": "make"}},
    {"type": "tool_result", "__id": "r1", "name": "exec", "output": VALUE},
    *({"type": "assistant", "__id": f"a{number}", "text": "done"} for number in range(4)),
]
HELLO = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {},
               "clientInfo": {"name": "smoke", "version": "1"}},
}  # fmt: skip


def main() -> None:
    """Import every module, then prune, show and restore a session, and run daemon and server."""
    import_everything()
    with tempfile.TemporaryDirectory() as base:
        session = Path(base) / "agents" / "main" / "sessions" / "s.jsonl"
        session.parent.mkdir(parents=True)
        before = b"".join(json.dumps(line).encode() + b"\n" for line in TURN)
        session.write_bytes(before)
        os.utime(session, (time.time() - 3600,) * 2)
        config = Path(base) / "config.toml"
        config.write_text(
            f'state_dir = "{base}/state"\nquiet_seconds = 1\nkeep_after_restore_seconds = 0\n'
            f'[[roots]]\npath = "{base}/agents"\n'
        )
        run("--help")
        scan, _, show, _ = (run(*words, "--config", str(config)) for words in (
            ("scan", "--once", "--json"), ("status",), ("show", "r1"),
            ("restore", "--all", "--pristine", "--json"),
        ))  # fmt: skip
        expect(json.loads(scan)["values_extracted"] == 1, scan)
        expect(show == VALUE, show)
        expect(session.read_bytes() == before, "the session is not as it was")
        run("pause", "--end", "--config", str(config))  # that restore began one
        expect("no such option" in run("show", "--no-such", code=USAGE), "show --no-such")
        serve(config)
        daemon(config, session)
        set_up(Path(base) / "home")
    print(", ".join(f"{name} {metadata.version(name)}" for name in depended_on()))


def import_everything() -> None:
    package = importlib.import_module("brainsurgeon")
    for module in pkgutil.walk_packages(package.__path__, "brainsurgeon."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def run(*words: str, code: int = 0) -> str:
    """Run a command and return its output. A command that succeeds must not print to stderr."""
    done = subprocess.run(  # noqa: S603
        [*PROGRAM, *words], capture_output=True, text=True, timeout=120, check=False
    )
    expect(done.returncode == code and (code > 0 or not done.stderr), f"{words}: {done.stderr}")
    return done.stdout + done.stderr


def set_up(home: Path) -> None:
    """Run `init` in an empty home with the packaged files, compare these, and undo it."""
    clone = Path(__file__).parent.parent
    packaged = importlib.import_module("brainsurgeon.operations.init")
    installs = importlib.import_module("brainsurgeon.agents").INSTALLS.values()
    for name in (
        "config.toml.example", "deploy/brainsurgeon.1", "systemd/brainsurgeon.service",
        "systemd/user/brainsurgeon.service", *(install.skill for install in installs),
        *(f"{one.plugin}/.claude-plugin/marketplace.json" for one in installs if one.plugin),
    ):  # fmt: skip
        same = packaged._packaged_text(name) == (clone / name).read_text()  # noqa: SLF001
        expect(same, f"{name} is another one")
    home.mkdir()
    # No systemd, cron or agent of this machine may be asked.
    os.environ |= {"HOME": str(home), "PATH": "/nowhere"}
    expect("is written" in run("init", "--yes"), "init")
    expect("roots" in run("config"), "config")
    expect("is removed" in run("init", "--undo", "--yes"), "init --undo")
    expect(not list(home.iterdir()), "init --undo left something behind")


def serve(config: Path) -> None:
    """Send the first message to the MCP server, if it is installed."""
    if util.find_spec("mcp") is None:
        return
    with subprocess.Popen(  # noqa: S603
        [*PROGRAM, "mcp", "--config", str(config)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as server:  # fmt: skip
        assert server.stdin  # noqa: S101
        assert server.stdout  # noqa: S101
        server.stdin.write(json.dumps(HELLO) + "\n")
        server.stdin.flush()
        answer = json.loads(server.stdout.readline())
        server.stdin.close()
    expect(answer["result"]["serverInfo"]["name"] == "brainsurgeon", str(answer))


def daemon(config: Path, session: Path) -> None:
    """Run the daemon until it has pruned the session, then stop it."""
    os.utime(session, (time.time() - 3600,) * 2)
    with subprocess.Popen(  # noqa: S603
        [*PROGRAM, "run", "--config", str(config)],
        stderr=subprocess.DEVNULL,
    ) as process:
        deadline = time.monotonic() + 60
        while b"[[extracted-r1]]" not in session.read_bytes() and time.monotonic() < deadline:
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        code = process.wait(60)
    expect(b"[[extracted-r1]]" in session.read_bytes() and code == 0, f"the daemon ended: {code}")


def depended_on() -> list[str]:
    """Return the names of the installed direct dependencies."""
    names = (
        re.split(r"[ ><=;\[]", one)[0] for one in metadata.requires("brainsurgeon") or ()
    )  # fmt: skip
    return [name for name in names if util.find_spec(name.replace("-", "_"))]


def expect(so: bool, otherwise: str) -> None:
    if not so:
        sys.exit(f"smoke: {otherwise}")


main()
