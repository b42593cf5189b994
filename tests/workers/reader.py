"""Another reader of a session: takes snapshots and sees whether the history only ever grows.

    python reader.py SESSION

It reads until its input ends, then prints what it saw.
"""

import json
import os
import select
import sys


def snapshot(session):
    """Read the whole lines as anybody would: open, read to the end, close."""
    descriptor = os.open(session, os.O_RDONLY)
    parts = []
    while part := os.read(descriptor, 1 << 16):
        parts.append(part)
    os.close(descriptor)
    return b"".join(parts).split(b"\n")[:-1]


def main(session):
    """Take snapshots; print how many, and what was wrong with some of them."""
    taken, bad, history = 0, [], []
    while not select.select([sys.stdin], [], [], 0.02)[0]:
        taken += 1
        try:
            seen = [json.loads(line).get("id") for line in snapshot(session)]
        except (ValueError, OSError) as error:
            bad.append(f"snapshot {taken}: {type(error).__name__}")
            continue
        if seen[: len(history)] != history:
            bad.append(f"snapshot {taken}: {len(history)} entries before, {len(seen)} now")
        history = seen
    print(json.dumps({"snapshots": taken, "bad": bad[:10]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
