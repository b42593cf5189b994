"""The store: a retention run over many rows, and the bytes that values take.

Rows are written as a rewrite writes them; session files hold only their header.
"""

import json
import os
import random
import subprocess
import sys
import time

import zstandard

from bench.measuring import above_empty
from bench.table import Row
from brainsurgeon.model.plans import Removal
from brainsurgeon.model.records import Confirmation
from brainsurgeon.model.session_files import Fingerprint, SessionFile
from brainsurgeon.store import open_store

DAY = 86_400
PER_SESSION = 1000
AGENTS = 10
RETENTION = """
import json, os, resource, sys, time
from brainsurgeon import config
from brainsurgeon.operations.retention import retention
from brainsurgeon.store import open_store
settings = config.Settings.model_validate(json.loads(sys.argv[1]))
shift = float(sys.argv[2])
with open_store(settings.state_dir) as store:
    begun = time.monotonic()
    report = retention(settings, store, clock=lambda: time.time() + shift)
    wall = time.monotonic() - begun
status = dict(line.split(":") for line in open("/proc/self/status"))
print(json.dumps({"wall": wall, "peak": int(status["VmHWM"].split()[0]) / 1024,
                  "held": report.values_held, "deleted": report.values_deleted}))
"""
WRITER = """
import json, sqlite3, sys, time
store = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
store.execute("PRAGMA synchronous = EXTRA")
print("ready", flush=True)
waits, end = [], False
import select
while not select.select([sys.stdin], [], [], 0.01)[0]:
    begun = time.monotonic()
    store.execute("BEGIN IMMEDIATE")
    got = time.monotonic()
    store.execute("INSERT INTO meta VALUES ('bench', '1') ON CONFLICT (key) DO UPDATE"
                  " SET value = value + 1")
    store.execute("COMMIT")
    waits.append((got - begun, time.monotonic() - begun))
print(json.dumps({"times": len(waits), "lock": max(w[0] for w in waits),
                  "whole": max(w[1] for w in waits)}))
"""


def rows(place, options):
    yield from retention_rows(place / "retention", 1_000_000 if options.large else 100_000)
    yield from store_bytes(place / "bytes", (50 if options.large else 20) << 20)


def retention_rows(place, count):
    """Measure the first run in days, one that deletes a tenth, and one without work.

    Beside each, another process writes every 10 ms and measures its waits.
    """
    state, agents = place / "state", place / "agents"
    agents.mkdir(parents=True)
    fill(state, count)
    for situation, shift, target in (
        ("the first run in days", 0.0, "0.1 s"),
        ("a tenth is deleted", 60.0, "10 s, 64 MB, wait 0.2 s"),
        ("nothing due any more", 120.0, "0.1 s"),
    ):
        figure = one_run(state, agents, shift)
        yield Row(
            f"retention, {figure['held']:,} values, {situation}", figure["wall"],
            memory=above_empty(figure["peak"]), target=target,
            note=f"{figure['deleted']:,} deleted; another writer waits"
            f" {figure['lock']:.2f} s at most, {figure['whole']:.2f} s with its own commit",
        )  # fmt: skip


def one_run(state, agents, shift):
    """Run retention in a process, beside a writer; return both outputs."""
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, state / "store.db"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    writer.stdout.readline()
    settings = {"roots": [{"path": str(agents)}], "state_dir": str(state)}
    try:
        words = [sys.executable, "-c", RETENTION, json.dumps(settings), str(shift)]
        result = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    finally:
        output, _ = writer.communicate("end\n")
    return {**json.loads(result.stdout), **json.loads(output)}


def fill(state, rows):
    """Fill a store as rewrites do; every tenth session was last changed 35 days ago."""
    chance = random.Random(7)
    now = time.time()
    with open_store(str(state)) as store:
        for number in range(rows // PER_SESSION):
            then = now - 35 * DAY if number % 10 == 0 else now
            values = [chance.randbytes(90).hex().encode() for _ in range(PER_SESSION)]
            path = record(store, state.parent / "agents", number, values, then, chance)
            write_header(path, then)


def record(store, root, number, values, now, chance):
    """Record the values of one session as a completed rewrite; return the session's path."""
    agent = f"agent{number % AGENTS}"
    home = f"{root}/{agent}"
    seen = Fingerprint(1, number + 2, 3000, 4, 5)
    name = f"{number:08x}-0000-4000-8000-000000000000"
    file = SessionFile(str(root), f"{home}/sessions", f"{name}.jsonl", agent, home, "auto", seen)
    with store.transaction():
        row = store.sessions.note(file, "openclaw", None)
        confirmation = Confirmation(at=now)
        entry = store.journal.begin(row.id, file, ".brainsurgeon-0.tmp", confirmation)
        for value in values:
            blob, digest, _ = store.blobs.put(value)
            removal = removal_of(f"{chance.getrandbits(32):08x}", value, chance)
            name = store.placeholders.name(removal.name, removal.path, (blob, digest))
            store.extractions.add(
                removal.with_name(name), session_id=row.id, journal_id=entry, extracted_at=now,
                blob_id=blob, digest=digest, size=len(value),
            )  # fmt: skip
        store.journal.confirm(entry, row.id, confirmation)
        store.journal.close(entry)
    return file.path


def write_header(path, moment):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    header = {"type": "session", "version": 3, "id": os.path.basename(path).partition(".")[0],
              "timestamp": "2026-11-01T10:00:00.000Z", "cwd": "/w"}  # fmt: skip
    with open(path, "wb") as file:
        file.write(json.dumps(header).encode() + b"\n")
    os.utime(path, (moment, moment))


def removal_of(entry, value, chance):
    """Return the removal of a tool result, as it is planned."""
    return Removal(
        entry, entry, ("message", "content", 0, "text"), "tool_result",
        chance.choice(("exec", "read", "web_fetch", "process")), len(value), block=False,
        call=f"call_{chance.getrandbits(96):024x}", parent=None, rest=None, tokens=0,
        start=0, end=len(value), new=b"", forced=False,
        reason=f"tool_result of {len(value):,} characters",
    )  # fmt: skip


def store_bytes(place, volume):
    """Measure the store beside the bytes that were extracted, a fifth of them twice."""
    place.mkdir(parents=True)
    for size, target in ((40_000, "32 %"), (713, "60 %")):
        state = place / f"of-{size}"
        chance = random.Random(size)
        values = list(texts(chance, size, volume // 4 if size < 1000 else volume))
        with open_store(str(state)) as store:
            for number, at in enumerate(range(0, len(values), 500)):
                part = values[at : at + 500]
                record(store, place / "agents", number, part, time.time(), chance)
        extracted = sum(map(len, values))
        packed = sum(len(zstandard.ZstdCompressor(1).compress(value)) for value in set(values))
        yield Row(
            f"store beside {len(values):,} values of {size:,} bytes",
            100 * os.path.getsize(state / "store.db") / extracted, "%",
            "zstd of each", 100 * packed / extracted, target=target,
        )  # fmt: skip


def texts(chance, size, volume):
    """Yield tool output as it is written in a line of JSON: listings, logs, code, prose."""
    words = [
        "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 11)))
        for _ in range(4000)
    ]
    weights = [1 / (rank + 5) for rank in range(len(words))]
    earlier = []
    total = 0
    while total < volume:
        if earlier and chance.random() < 0.2:
            value = chance.choice(earlier)
        else:
            length = size if size < 1000 else chance.randint(size // 2, size * 3 // 2)
            value = json.dumps(text(chance, length, words, weights)).encode()
            earlier.append(value)
            del earlier[:-2000]
        total += len(value)
        yield value


def text(chance, length, words, weights):
    kind = chance.randrange(4)
    lines, written = [], 0
    while written < length:
        chosen = chance.choices(words, weights, k=chance.randint(4, 9))
        if kind == 0:
            line = (f"-rw-r--r-- 1 dev dev {chance.randrange(10**6):7} Nov {chance.randrange(30):2}"
                    f" 10:{chance.randrange(60):02} {'_'.join(chosen[:3])}.py")  # fmt: skip
        elif kind == 1:
            line = (f"2026-11-{chance.randrange(30):02}T10:{chance.randrange(60):02}:"
                    f"{chance.randrange(60):02}.{chance.randrange(1000):03}Z INFO {chosen[0]}:"
                    f" {' '.join(chosen[1:])} id={chance.getrandbits(48):012x}")  # fmt: skip
        elif kind == 2:
            line = f"    {chosen[0]}_{chosen[1]} = {chosen[2]}({', '.join(chosen[3:])})"
        else:
            line = " ".join(chosen).capitalize() + "."
        lines.append(line)
        written += len(line) + 1
    return "\n".join(lines)[:length]
