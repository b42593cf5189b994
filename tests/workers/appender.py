"""An agent at work: whole turns in bursts, with pauses between them.

    python appender.py SESSION REFERENCE STYLE SECONDS

`path` opens, appends and closes for each line; `kept` keeps one appending descriptor for a turn.
What was written goes into the reference as well, line by line, as the agent's own memory of it.
"""

import json
import os
import random
import sys
import time

APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND
TURN = (
    ("user", "go on"),
    (
        "assistant",
        [{"type": "toolCall", "id": "c", "name": "exec", "arguments": {"command": "ls"}}],
    ),
    ("toolResult", None),
    ("assistant", [{"type": "text", "text": "done."}]),
)


def lines(number):
    """Give the lines of one turn."""
    for step, (role, content) in enumerate(TURN):
        ident = number * len(TURN) + step
        text = f"result {number} " + "x" * (1500 + number % 7 * 1000)
        message = {"role": role, "content": content or [{"type": "text", "text": text}]}
        if role == "assistant":
            message["stopReason"] = "stop" if step == len(TURN) - 1 else "toolUse"
        if role == "toolResult":
            message.update(toolCallId="c", toolName="exec", isError=False)
        entry = {
            "type": "message", "id": f"{ident + 1:08x}",
            "parentId": f"{ident:08x}" if ident else None, "message": message,
        }  # fmt: skip
        yield json.dumps(entry, separators=(",", ":")).encode() + b"\n"


def main(session, reference, style, seconds):
    """Write turns until the time is over; print how many lines there were."""
    chance = random.Random(style)
    remembered = os.open(reference, APPEND, 0o600)
    until, number, written, longest = time.monotonic() + float(seconds), 0, 0, 0.0
    while time.monotonic() < until:
        begun = time.monotonic()
        kept = os.open(session, APPEND) if style == "kept" else None
        for line in lines(number):
            descriptor = os.open(session, APPEND) if kept is None else kept
            os.write(descriptor, line)
            os.write(remembered, line)
            if kept is None:
                os.close(descriptor)
            longest = max(longest, time.monotonic() - begun)
            written += 1
            time.sleep(chance.uniform(0, 0.003))
            begun = time.monotonic()
        if kept is not None:
            os.close(kept)
        number += 1
        time.sleep(chance.uniform(0.01, 0.15) if number % 6 else 0.5)
    print(json.dumps({"turns": number, "lines": written, "longest_ms": round(longest * 1e3, 1)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
