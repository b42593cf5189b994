"""Demonstrate a run on a copy of the samples, and a dry run on your own sessions."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from brainsurgeon.operations.init import homes

SAMPLES = Path(__file__).parent.parent / "tests" / "samples"
PROGRAM = Path(sys.executable).parent / "brainsurgeon"
WIDTH = 100  # characters of a printed line


def main() -> int:
    if not SAMPLES.exists():
        sys.exit("the sample sessions are not in the source package: this takes a clone")
    with tempfile.TemporaryDirectory(prefix="brainsurgeon-try-") as scratch:
        code = demonstrate(Path(scratch))
    dry_run_of_your_own()
    next_step()
    return code


def demonstrate(scratch: Path) -> int:
    """Prune and restore a copy of the samples; return 0 if every byte and time is the same."""
    agents = scratch / "agents"
    shutil.copytree(SAMPLES / "openclaw" / "2026.7.35" / "agents", agents)
    pi = agents / "pi" / "sessions"
    pi.mkdir(parents=True)
    shutil.copy(SAMPLES / "pi" / "large-session.derived-v3.jsonl", pi / "large-session.jsonl")
    yesterday = time.time() - 86_400
    for path in agents.rglob("*.jsonl"):
        os.utime(path, (yesterday, yesterday))
    config = scratch / "config.toml"
    config.write_text(f'state_dir = "{scratch}/state"\n[[roots]]\npath = "{agents}"\n')
    before = digests(agents)

    say("A copy of four sessions that OpenClaw and pi wrote. First, only looking:")
    run(config, "scan", "--dry-run", "--session", "a1a1a1a1-0000-4000-8000-000000000002")
    say("Now for real:")
    run(config, "scan")
    run(config, "sessions")
    say("A value that was extracted is one call away:")
    entry = first_extracted(config, "thinker/b2b2")
    run(config, "show", entry, "--key", "text", head=3)
    say("It can go back into its session:")
    run(config, "restore", entry)
    say("And everything can be undone:")
    run(config, "restore", "--all", "--pristine")
    same = digests(agents) == before
    say("Compared with the originals, bytes and times: " + ("the same." if same else "DIFFERENT!"))
    return 0 if same else 1


def dry_run_of_your_own() -> None:
    if not homes():
        say("You have no sessions of your own here.")
        return
    say("Your own sessions, only looking; nothing is written:")
    run(None, "scan", "--dry-run", head=40)


def next_step() -> None:
    found = list(dict.fromkeys(home.agent for home in homes()))
    say(f"To use it for {' and '.join(found)}:" if found else "To use it, once an agent is here:")
    print("$ pipx install '.[mcp]'\n$ brainsurgeon init")


def run(config: Path | None, *words: str, head: int | None = None) -> None:
    print("$ brainsurgeon " + " ".join(words), flush=True)
    done = subprocess.run(  # noqa: S603  our own program
        command(config, *words), check=False, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    shown = lines if head is None else lines[:head]
    for line in shown:
        text = re.sub(r" \[answer [0-9a-f]+\]", "", line)  # it is for agents
        print("  " + (text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"))
    if len(lines) > len(shown):
        print(f"  … {len(lines) - len(shown)} more lines")
    if done.returncode:
        print(f"  (exit {done.returncode})")


def command(config: Path | None, *words: str) -> list[str]:
    return [str(PROGRAM), *words, *(["--config", str(config)] if config else [])]


def first_extracted(config: Path, session: str) -> str:
    answer = subprocess.run(  # noqa: S603  our own program
        command(config, "sessions", session, "--json"), check=True, stdout=subprocess.PIPE
    )
    return str(json.loads(answer.stdout)["extracted"][0]["entry_id"])


def digests(root: Path) -> dict[str, tuple[str, int]]:
    """Return the digest and modification time of every file below a directory."""
    return {
        str(path.relative_to(root)): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            path.stat().st_mtime_ns,
        )
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def say(text: str) -> None:
    print(f"\n{text}\n", flush=True)


if __name__ == "__main__":
    sys.exit(main())
