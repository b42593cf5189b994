"""Instructions of a first scan, which do not depend on the machine or on what else it does."""

import shutil

from bench.measuring import instructions, limit, ours, run, write_config
from bench.table import Row
from building.claude import ClaudeConversation
from building.world import Conversation

# Turns of a session: some 10 MB.
TURNS = 500
# Most instructions beside those of the bare rewrite: 4.8 and 4.1 were counted with Python 3.11.
MOST = {"OpenClaw": (Conversation, 5.0), "Claude Code": (ClaudeConversation, 4.4)}


def rows(place, wanted):
    """Count for one session of each format; nothing without valgrind."""
    for name, (talk, most) in MOST.items():
        yield from counted(place / name.split()[0].lower(), name, talk(), most)


def counted(place, name, talk, most):
    """Count the instructions of a scan, and of a bare rewrite."""
    sessions = place / "agents" / "main" / "sessions"
    sessions.mkdir(parents=True)
    for number in range(TURNS):
        talk.turn("".join(f"row {number} line {line} ä {number * line}\n" for line in range(800)))
    session, copy = sessions / "s.jsonl", place / "copy.jsonl"
    session.write_bytes(talk.bytes())
    shutil.copyfile(session, copy)
    config = write_config(place, place / "agents", quiet_seconds=0)
    scan = ours("scan", "--once", config=config)
    run(scan)  # from now on there is bytecode
    shutil.copyfile(copy, session)
    shutil.rmtree(place / "state")
    if bound := instructions(limit("rewrite", copy)):
        took = instructions(scan)
        yield Row(
            f"instructions of a first scan, {copy.stat().st_size / 1e6:.0f} MB of {name}",
            took / 1e9, "G", "the rewrite of the same lines", bound / 1e9, most=most,
        )  # fmt: skip
