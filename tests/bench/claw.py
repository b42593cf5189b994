"""Time for which a scan or restore holds the lock of OpenClaw's database."""

import json
import shutil
import statistics
import subprocess
import sys

from bench.measuring import environment, write_config
from bench.table import Row
from building import claw_agent
from building.claw import GATEWAY, WRITTEN, Claw
from building.processes import WORKERS

TURNS = 700


def rows(place, options):
    """Extract and restore a session in a database; measure each hold of the lock."""
    template = Claw(place / "template")
    with claw_agent.transaction(template.path) as agent:
        for number in range(TURNS):
            append_turn(agent, number)
    home = place / "claw"
    config = write_config(place, home / "agents")
    changes_of = {"scan --once": [], "restore --all --pristine": []}
    for _ in range(options.runs):
        shutil.rmtree(place / "state", ignore_errors=True)
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(template.base, home)
        for verb in changes_of:
            changes_of[verb] += measure_changes(place / "held.jsonl", verb.split(), config)
    for verb, changes in changes_of.items():
        milliseconds = sorted(1000 * change["held"] for change in changes)
        largest = max(change["rows"] for change in changes)
        yield Row(
            f"hold of OpenClaw's database, {largest} rows, {verb}",
            statistics.median(milliseconds), "ms",
            target="5 ms" if verb.startswith("scan") else "",
            note=f"worst {milliseconds[-1]:.1f} ms of {len(milliseconds)} changes of"
            f" {sum(change['rows'] for change in changes)} rows",
        )  # fmt: skip


def append_turn(agent, number):
    now, ids = int(WRITTEN * 1000), [f"{number:08x}-{place}" for place in range(4)]
    call = {"type": "toolCall", "id": f"c{number}", "name": "exec", "arguments": {}}
    text = "".join(f"row {number} line {line} ä {number * line}\n" for line in range(200))
    messages = (
        {"role": "user", "content": "go on"},
        {"role": "assistant", "content": [call], "stopReason": "toolUse"},
        {"role": "toolResult", "toolCallId": f"c{number}", "toolName": "exec",
         "content": [{"type": "text", "text": text}], "isError": False},
        {"role": "assistant", "content": [{"type": "text", "text": "done."}],
         "stopReason": "stop"},
    )  # fmt: skip
    for ident, message in zip(ids, messages, strict=True):
        entry = {"type": "message", "id": ident, "timestamp": now, "message": message}
        packed = message["role"] == "toolResult"
        claw_agent.append(agent, GATEWAY, json.dumps(entry).encode(), now, packed=packed)


def measure_changes(output, verb, config):
    output.unlink(missing_ok=True)
    words = [sys.executable, WORKERS / "timed_rows.py", output, *verb, "--config", config]
    subprocess.run(list(map(str, words)), check=True, stdout=subprocess.DEVNULL, env=environment())
    return [json.loads(line) for line in output.read_text().splitlines()]
