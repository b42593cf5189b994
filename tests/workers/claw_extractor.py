"""Extract large tool results of sessions in OpenClaw's database repeatedly, without a gate.

    python claw_extractor.py DATABASE DIRECTORY SESSION...

The gate, which defers sessions at work, is left out to test the transaction alone. The newest
events are extracted first, where the agent writes. Each original is written below DIRECTORY before
its row is changed, and each transaction adds a byte to DIRECTORY.done. Ends with its stdin, and
prints its counts as JSON.
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
from brainsurgeon.agents import rows
from brainsurgeon.errors import BusyError, FailedError
from brainsurgeon.files.reading import RefusedError
from brainsurgeon.model.session_files import Root
from brainsurgeon.planning import row_steps
from brainsurgeon.sessions.discovery import open_session
from brainsurgeon.sessions.row_listing import list_rows_at
from building.edits import ByteEdit, no_record

LONG = 1000
# Rows extracted at once, and the number of newest rows searched.
AT_ONCE, NEWEST = 128, 2000


def main():
    path, directory, *sessions = sys.argv[1:]
    counts = {"extracted": 0, "transactions": 0, "refused": 0, "held": []}
    print("extracting", flush=True)
    for session in itertools.cycle(sessions):
        if select.select([sys.stdin], [], [], 0)[0]:
            break
        try:
            extract_once(path, session, directory, counts)
        except (RefusedError, BusyError):
            counts["refused"] += 1
        except FailedError as error:
            counts.setdefault("failed", []).append(str(error))
    print(json.dumps(counts), flush=True)


def extract_once(path, session, directory, counts):
    (listed,) = list_rows_at([Root(str(Path(path).parents[2]))], f"{path}/{session}")
    with open_session(listed) as opened:
        newest = itertools.islice(reversed([*opened.lines]), NEWEST)
        candidates = ((line.offset, line.raw, extraction_edit(line, directory)) for line in newest)
        large = list(itertools.islice((row for row in candidates if row[-1]), AT_ONCE))
        texts = {offset: raw for offset, raw, _ in large}
        chunks = row_steps.chunks(row_steps.by_row(opened.lines.index, [row[-1] for row in large]))
        prepared = [
            [edit for row in chunk if (edit := row_edit(opened, row, texts[row.span.offset]))]
            for chunk in chunks
        ]
    locked = []
    for edits in filter(None, prepared):
        with opened.writing():
            opened.change(
                edits, lambda _: locked.append(time.monotonic()), time.time, durable=False
            )
            counts["held"].append(time.monotonic() - locked[-1])
        counts["extracted"] += len(edits)
        counts["transactions"] += 1
        with open(f"{directory}.done", "ab") as file:
            file.write(b".")
        time.sleep(rows.PAUSE)


def row_edit(opened, row, text):
    """Return the change of a row, or None if its text has changed."""
    before = opened.lines.row(row.span)
    if before.line() != text:
        return None
    return opened.edit_of(row, before, no_record)


def extraction_edit(line, directory):
    """Write the original of a large tool result; return the edit that extracts it."""
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
