"""A reader that takes snapshots of a session and checks that its history only grows.

    python reader.py SESSION HISTORY

It reads until its input ends, then prints what it saw. HISTORY is `grows`, or `replaced` or
`truncated` for agents that replace or truncate the file: snapshots may then be shorter, but must
agree with earlier ones.

A file that lost its name before it was read may hold a late line that is not moved yet. It is
compared with earlier snapshots, but later ones are not compared with it.
"""

import json
import os
import select
import sys


def snapshot(session):
    """Open the session, read it to its end, and close it.

    Return the lines, whether nobody wrote meanwhile, and whether the file still has its name.
    """
    descriptor = os.open(session, os.O_RDONLY)
    before = os.fstat(descriptor)
    parts = []
    while part := os.read(descriptor, 1 << 16):
        parts.append(part)
    after = os.fstat(descriptor)
    named = os.stat(session).st_ino == after.st_ino
    os.close(descriptor)
    data = b"".join(parts)
    still = len(data) == before.st_size and before.st_mtime_ns == after.st_mtime_ns
    return data.split(b"\n")[:-1], still and before.st_size == after.st_size, named


def disagrees(history, seen, kind):
    """Check whether a snapshot disagrees with the history."""
    shorter = min(len(history), len(seen)) if kind != "grows" else len(history)
    return seen[:shorter] != history[:shorter]


def main(session, kind):
    snapshots, problems, history = 0, [], []
    while not select.select([sys.stdin], [], [], 0.02)[0]:
        try:
            lines, still, named = snapshot(session)
            if kind == "truncated" and not still:
                continue
            snapshots += 1
            seen = [json.loads(line).get("id") for line in lines]
        except (ValueError, OSError) as error:
            problems.append(f"snapshot {snapshots}: {type(error).__name__}")
            continue
        if disagrees(history, seen, kind):
            problems.append(f"snapshot {snapshots}: {len(history)} entries before, {len(seen)} now")
        if named:
            history = max(history, seen, key=len) if kind != "grows" else seen
    print(json.dumps({"snapshots": snapshots, "bad": problems[:10]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
