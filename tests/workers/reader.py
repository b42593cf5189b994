"""Another reader of a session: takes snapshots and sees whether the history only ever grows.

    python reader.py SESSION HISTORY

It reads until its input ends, then prints what it saw. The history `grows`; or it may fall back,
but never to another one: an agent that replaces its file (`replaced`) adds lines that the file in
its place did not have, and one that truncates it (`truncated`) shows less than it has meanwhile.

A file that lost its name before it was read may have a late line that is not moved yet: it is
compared with what was seen before, but later snapshots are not compared with it.
"""

import json
import os
import select
import sys


def snapshot(session):
    """Read as anybody would: open, read to the end, close.

    Say whether nobody wrote meanwhile, and whether the file still has its name.
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


def wrong(history, seen, kind):
    """Tell whether what is seen does not go with what was seen before."""
    shorter = min(len(history), len(seen)) if kind != "grows" else len(history)
    return seen[:shorter] != history[:shorter]


def main(session, kind):
    taken, bad, history = 0, [], []
    while not select.select([sys.stdin], [], [], 0.02)[0]:
        try:
            lines, still, named = snapshot(session)
            if kind == "truncated" and not still:
                continue
            taken += 1
            seen = [json.loads(line).get("id") for line in lines]
        except (ValueError, OSError) as error:
            bad.append(f"snapshot {taken}: {type(error).__name__}")
            continue
        if wrong(history, seen, kind):
            bad.append(f"snapshot {taken}: {len(history)} entries before, {len(seen)} now")
        if named:
            history = max(history, seen, key=len) if kind != "grows" else seen
    print(json.dumps({"snapshots": taken, "bad": bad[:10]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
