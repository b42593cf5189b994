"""What an agent waits for in the middle of its turn: a shown value, and the server."""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench.measuring import (
    above_empty,
    limit,
    measure,
    ours,
    run,
    surroundings,
    take_turns,
    write_config,
)
from bench.table import Row
from bench.watched import idle
from building.world import Conversation

# Results of a session, and texts of a result, each of them long enough to be extracted.
EACH, BLOCKS = 1000, 10
HELLO = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {},
               "clientInfo": {"name": "bench", "version": "1"}},
}  # fmt: skip


def rows(place, wanted):
    """Measure them beside the interpreter and the SDK alone."""
    extractions = 100_000
    config = filled(place, extractions)
    runs = 3 * wanted.runs
    entry = "01000001"
    program = Path(sys.executable).with_name("brainsurgeon")
    shown = [program, "show", entry, "--config", config]
    figures = take_turns({
        "python": (limit("python"), None),
        "show": (shown if program.exists() else ours("show", entry, config=config), None),
        "named": (ours("show", entry, "--session", "s1", config=config), None),
    }, runs)  # fmt: skip
    for name, what, target in (
        ("show", "show", ""), ("named", "show --session", ""),
    ):  # fmt: skip
        yield Row(
            f"{what}, {extractions:,} extractions", 1000 * figures[name].cpu, "ms",
            "the bare interpreter", 1000 * figures["python"].cpu,
            memory=above_empty(figures[name].peak), target=target,
            note=f"wall {1000 * figures[name].wall:.0f} ms",
        )  # fmt: skip
    yield server(config, wanted.runs)


def filled(place, extractions):
    """Extract so many values out of several sessions, and give the configuration."""
    sessions = place / "agents" / "main" / "sessions"
    sessions.mkdir(parents=True)
    for session in range(1 + extractions // (EACH * BLOCKS)):
        talk = Conversation(f"{session:08x}-0000-4000-8000-000000000000")
        for result in range(EACH):
            numbers = (f"{session} {result} {block} " for block in range(BLOCKS))
            texts = [{"type": "text", "text": number + "x" * 120} for number in numbers]
            talk.user()
            talk.call()
            talk.entry(ident=f"{session:02x}{result:06x}", message={
                "role": "toolResult", "toolCallId": "call_1", "toolName": "exec",
                "content": texts, "isError": False,
            })  # fmt: skip
            talk.assistant()
        path = sessions / f"s{session}.jsonl"
        path.write_bytes(talk.bytes())
        idle(path)
    config = write_config(place, place / "agents", min_value_length=100, min_reclaim=0)
    run(ours("scan", "--once", config=config))
    return config


def server(config, runs):
    waits, imports = [], []
    for _ in range(runs + 1):
        imports.append(measure(limit("sdk")).wall)
        waits.append(until_initialized(config))
    wait, bound = statistics.median(waits[1:]), statistics.median(imports[1:])
    return Row(
        "MCP server, start to `initialize`", wait, "s", "import of the SDK", bound,
        target="SDK + 0.1 s", note=f"wall time; {wait - bound:+.2f} s beside the SDK",
    )  # fmt: skip


def until_initialized(config):
    """Start the server and give the seconds until it answers the first request."""
    begun = time.monotonic()
    server = subprocess.Popen(
        list(map(str, ours("mcp", config=config))), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=surroundings(),
    )  # fmt: skip
    server.stdin.write(json.dumps(HELLO).encode() + b"\n")
    server.stdin.flush()
    answer = json.loads(server.stdout.readline())
    took = time.monotonic() - begun
    server.communicate()
    if "result" not in answer:
        sys.exit(f"the server does not answer: {answer}")
    return took
