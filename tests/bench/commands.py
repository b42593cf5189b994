"""The waits of an agent within its turn: a shown value, and the server's start."""

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from bench.measuring import (
    above_empty,
    alternate,
    command_line,
    environment,
    limit,
    measure,
    run,
    sessions_below,
    write_config,
)
from bench.table import Row
from building.file_moves import make_old
from building.world import Conversation

# Results in a session, and extractable texts in a result.
EACH, BLOCKS = 1000, 10
HELLO = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {},
               "clientInfo": {"name": "bench", "version": "1"}},
}  # fmt: skip


def rows(place, options):
    """Measure commands beside the interpreter, and the server beside the SDK."""
    extractions = 100_000
    config = extract_values(place, extractions)
    runs = 3 * options.runs
    entry = "01000001"
    program = Path(sys.executable).with_name("brainsurgeon")
    shown = [program, "show", entry, "--config", config]
    figures = alternate({
        "python": (limit("python"), None),
        "show": (shown if program.exists() else command_line("show", entry, config=config), None),
        "named": (command_line("show", entry, "--session", "s1", config=config), None),
    }, runs)  # fmt: skip
    for name, command in (("show", "show"), ("named", "show --session")):
        yield Row(
            f"{command}, {extractions:,} extractions", 1000 * figures[name].cpu, "ms",
            "the bare interpreter", 1000 * figures["python"].cpu,
            memory=above_empty(figures[name].peak),
            note=f"wall {1000 * figures[name].wall:.0f} ms",
        )  # fmt: skip
    yield server(config, options.runs)


def extract_values(place, extractions):
    """Extract that many values from several sessions, and return the configuration."""
    sessions = sessions_below(place / "agents")
    for session in range(1 + extractions // (EACH * BLOCKS)):
        conversation = Conversation(f"{session:08x}-0000-4000-8000-000000000000")
        for result in range(EACH):
            numbers = (f"{session} {result} {block} " for block in range(BLOCKS))
            texts = [{"type": "text", "text": number + "x" * 120} for number in numbers]
            conversation.user()
            conversation.call()
            conversation.entry(ident=f"{session:02x}{result:06x}", message={
                "role": "toolResult", "toolCallId": "call_1", "toolName": "exec",
                "content": texts, "isError": False,
            })  # fmt: skip
            conversation.assistant()
        path = sessions / f"s{session}.jsonl"
        path.write_bytes(conversation.bytes())
        make_old(path)
    config = write_config(place, place / "agents", min_value_length=100, min_reclaim=0)
    run(command_line("scan", "--once", config=config))
    return config


def server(config, runs):
    waits, imports = [], []
    for _ in range(runs + 1):
        imports.append(measure(limit("sdk")).wall)
        waits.append(seconds_to_initialize(config))
    wait, bound = statistics.median(waits[1:]), statistics.median(imports[1:])
    return Row(
        "MCP server, start to `initialize`", wait, "s", "import of the SDK", bound,
        target="SDK + 0.1 s", note=f"wall time; {wait - bound:+.2f} s beside the SDK",
    )  # fmt: skip


def seconds_to_initialize(config):
    """Start the server and return the seconds until it answers the first request."""
    started = time.monotonic()
    server = subprocess.Popen(
        list(map(str, command_line("mcp", config=config))), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, env=environment(),
    )  # fmt: skip
    server.stdin.write(json.dumps(HELLO).encode() + b"\n")
    server.stdin.flush()
    answer = json.loads(server.stdout.readline())
    seconds = time.monotonic() - started
    server.communicate()
    if "result" not in answer:
        sys.exit(f"the server does not answer: {answer}")
    return seconds
