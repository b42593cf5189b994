"""Removal large tool results of sessions in OpenClaw's database, again and again, without a gate.

    python claw_cutter.py DATABASE DIRECTORY SESSION...

The gate is left out on purpose: what is tried here is the transaction alone. The newest events are
cut first, which is where their agent is at work. Each original is written down below DIRECTORY
before its row is changed, and each transaction adds a byte to DIRECTORY.done. Ends at the end of
its stdin, and prints as JSON what it did.
"""

import hashlib
import itertools
import json
import os
import select
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from brainsurgeon.errors import BusyError, FailedError
from brainsurgeon.model.sessions import Root
from brainsurgeon.sessions import row_writing
from brainsurgeon.sessions.reading import RefusedError
from brainsurgeon.sessions.row_listing import list_rows_at, open_rows
from building.edits import ByteEdit, no_record

LONG = 1000
# How many rows are cut in one go, and among how many of the newest they are looked for.
AT_ONCE, NEWEST = 128, 2000


def main():
    path, directory, *sessions = sys.argv[1:]
    told = {"cut": 0, "transactions": 0, "refused": 0, "held": []}
    print("cutting", flush=True)
    for session in itertools.cycle(sessions):
        if select.select([sys.stdin], [], [], 0)[0]:
            break
        try:
            once(path, session, directory, told)
        except (RefusedError, BusyError):
            told["refused"] += 1
        except FailedError as why:
            told.setdefault("failed", []).append(str(why))
    print(json.dumps(told), flush=True)


def once(path, session, directory, told):
    (found,) = list_rows_at([Root(str(Path(path).parents[2]))], f"{path}/{session}")
    with open_rows(found) as opened:
        wide = opened.schema.compressing
        newest = itertools.islice(opened.lines.backward(), NEWEST)
        found = ((line.offset, line.raw, cut(line, directory)) for line in newest)
        large = list(itertools.islice((one for one in found if one[-1]), AT_ONCE))
        said = {offset: raw for offset, raw, _ in large}
        chunks = row_writing.chunks(
            row_writing.by_row(opened.lines.index, [one[-1] for one in large])
        )
        prepared = [
            [edit for row in chunk if (edit := rewritten(opened, row, said[row.place.offset]))]
            for chunk in chunks
        ]
    locked = []
    for edits in filter(None, prepared):
        with row_writing.writing(path) as writer:
            writer.change(
                session, edits, lambda _: locked.append(time.monotonic()),
                compressing=wide, durable=False,
            )  # fmt: skip
            told["held"].append(time.monotonic() - locked[-1])
        told["cut"] += len(edits)
        told["transactions"] += 1
        with open(f"{directory}.done", "ab") as done_so_far:
            done_so_far.write(b".")
        time.sleep(row_writing.PAUSE)


def rewritten(opened, row, said):
    """Prepare the change of a row, unless it says something else by now."""
    before = opened.lines.row(row.place)
    if before.event() != said:
        return None
    wide = opened.schema.compressing
    return row_writing.rewritten(before, row, no_record, no_record, compressing=wide)


def cut(line, directory):
    """Plan to cut the text of a large tool result; its original is written down first."""
    message = json.loads(line.raw).get("message", {})
    if message.get("role") != "toolResult":
        return None
    token = json.dumps(message["content"][0]["text"], ensure_ascii=False).encode()
    at = line.raw.find(token)
    if len(token) < LONG or at < 0:
        return None
    digest = hashlib.sha256(line.raw).hexdigest()
    with open(os.path.join(directory, digest), "wb") as file:
        file.write(line.raw)
        file.flush()
        os.fsync(file.fileno())
    placeholder = f'"[[extracted-{digest}]]"'.encode()
    return ByteEdit(line.offset + at, line.offset + at + len(token), placeholder)


if __name__ == "__main__":
    main()
