"""Instructions of a first scan, which do not depend on the machine or its load."""

import shutil

from bench.measuring import command_line, instructions, limit, run, sessions_below, write_config
from bench.table import Row
from building.claude import ClaudeConversation
from building.world import Conversation

# Turns of a session: some 10 MB.
TURNS = 500
# Upper bounds of the ratio to the bare rewrite: 4.8 and 4.1 were counted with Python 3.11.
MOST = {"OpenClaw": (Conversation, 5.0), "Claude Code": (ClaudeConversation, 4.4)}


def rows(place, options):
    """Count the instructions for one session of each format, if valgrind is installed."""
    for name, (conversation_type, most) in MOST.items():
        yield from count_scan(place / name.split()[0].lower(), name, conversation_type(), most)


def count_scan(place, name, conversation, most):
    """Count the instructions of a scan, and of a bare rewrite."""
    sessions = sessions_below(place / "agents")
    for number in range(TURNS):
        conversation.turn(
            "".join(f"row {number} line {line} ä {number * line}\n" for line in range(800))
        )
    session, copy = sessions / "s.jsonl", place / "copy.jsonl"
    session.write_bytes(conversation.bytes())
    shutil.copyfile(session, copy)
    config = write_config(place, place / "agents", quiet_seconds=0)
    scan = command_line("scan", "--once", config=config)
    run(scan)  # compiles the bytecode
    shutil.copyfile(copy, session)
    shutil.rmtree(place / "state")
    if bound := instructions(limit("rewrite", copy)):
        count = instructions(scan)
        yield Row(
            f"instructions of a first scan, {copy.stat().st_size / 1e6:.0f} MB of {name}",
            count / 1e9, "G", "the rewrite of the same lines", bound / 1e9, most=most,
        )  # fmt: skip
