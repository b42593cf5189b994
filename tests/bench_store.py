"""Measure the store: a retention run over a million rows, and the bytes that values take.

Run it with `python tests/bench_store.py [retention_rows|store_bytes]... [--rows 1000000]`. Each
measure prints a line: the work, its limit, the figure beside the limit, memory. The data are
seeded, so that two runs measure the same.
"""

import argparse
import json
import os
import random
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import zstandard

from brainsurgeon.model.edits import Cut
from brainsurgeon.model.records import Confirmation
from brainsurgeon.model.sessions import Fingerprint, SessionFile
from brainsurgeon.store import open_store

DAY = 86_400
PER_SESSION = 1000
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
                  "held": report.values_held, "marked": report.values_marked,
                  "deleted": report.values_deleted, "blobs": report.blobs_deleted}))
"""
EMPTY = 'print(int(dict(l.split(":") for l in open("/proc/self/status"))["VmHWM"].split()[0])/1024)'
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


def main():
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("measures", nargs="*", default=["retention_rows", "store_bytes"])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--mb", type=int, default=50)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--keep", help="where the store for retention is built, or was built")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="brainsurgeon-bench-") as scratch:
        for name in wanted.measures:
            place = Path(wanted.keep or scratch) / name
            if name == "retention_rows":
                tell(retention_rows(place, wanted.rows, wanted.runs))
            elif name == "store_bytes":
                tell(store_bytes(place, wanted.mb << 20))


def tell(rows):
    """Print one line a measure: work, limit, figure, memory."""
    for work, limit, figure, memory in rows:
        print(f"{work:58}{limit:>26}{figure:>24}{memory:>12}", flush=True)


def retention_rows(scratch, rows=1_000_000, runs=1):
    """Measure a run that finds nothing, one that marks a tenth, and one that deletes it.

    Beside each a second process writes every 10 ms and tells how long it had to wait.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    built = scratch / "built"
    if not built.exists():
        fill(built, rows)
    empty = peak_of_nothing()
    found = {}
    for _ in range(runs):
        state = scratch / "state"
        shutil.rmtree(state, ignore_errors=True)
        shutil.copytree(built, state)
        agents = scratch / "agents"
        agents.mkdir(exist_ok=True)
        for what, shift in (("nothing due", -40 * DAY), ("mark a tenth", 0.0),
                            ("delete a tenth", 60.0), ("nothing due again", 120.0)):  # fmt: skip
            figure = one_run(state, agents, shift)
            found.setdefault(what, []).append(figure)
            seen_whole(state, agents, shift + 30)
    limits = {"nothing due": 0.1, "nothing due again": 0.1}
    for what, figures in found.items():
        median = {key: statistics.median(one[key] for one in figures) for key in figures[0]}
        limit = limits.get(what, 10)
        done = {key: int(median[key]) for key in ("marked", "deleted", "blobs") if median[key]}
        yield (
            f"retention, {int(median['held']):,} held: {what} {done or ''}",
            f"{limit} s, wait 0.2 s, 64 MB",
            (
                f"{median['wall']:.2f} s, wait {max(one['lock'] for one in figures):.2f} s"
                f" ({max(one['whole'] for one in figures):.2f})"
            ),
            f"{median['peak'] - empty:.0f} MB",
        )


def peak_of_nothing():
    """Measure the memory of an interpreter that does nothing."""
    done = subprocess.run([sys.executable, "-c", EMPTY], check=True, stdout=subprocess.PIPE)
    return float(done.stdout)


def one_run(state, agents, shift):
    """Do one retention run in a process of its own, beside a writer."""
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, state / "store.db"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    writer.stdout.readline()
    settings = {"roots": [{"path": str(agents)}], "state_dir": str(state)}
    try:
        words = [sys.executable, "-c", RETENTION, json.dumps(settings), str(shift)]
        done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    finally:
        told, _ = writer.communicate("end\n")
    return {**json.loads(done.stdout), **json.loads(told)}


def seen_whole(state, agents, shift):
    """Note what a scan notes when it has seen the root without error."""
    with open_store(str(state)) as store, store.transaction():
        store.facts.note_pass(time.time() + shift, [os.path.realpath(agents)])


def fill(state, rows):
    """Fill a store as rewrites do; of every tenth session the stubs were last seen long ago."""
    chance = random.Random(7)
    now = time.time()
    with open_store(str(state)) as store:
        for number in range(rows // PER_SESSION):
            then = now - 35 * DAY if number % 10 == 0 else now
            values = [chance.randbytes(90).hex().encode() for _ in range(PER_SESSION)]
            record(store, state.parent / "agents", number, values, then, chance)


def record(store, root, number, values, now, chance):
    """Record the values of one session as a rewrite that happened."""
    agent = f"agent{number % 10}"
    home = f"{root}/{agent}"
    seen = Fingerprint(1, number + 2, 3000, 4, 5)
    name = f"{number:08x}-0000-4000-8000-000000000000"
    file = SessionFile(str(root), f"{home}/sessions", f"{name}.jsonl", agent, home, "auto", seen)
    with store.transaction():
        row = store.sessions.note(file, "openclaw", None)
        shelved = []
        for value in values:
            blob, digest, _ = store.blobs.put(row.agent_id, value, now)
            shelved.append((cut_of(f"{chance.getrandbits(32):08x}", value, chance), blob, digest,
                            len(value)))  # fmt: skip
        done = Confirmation(at=now)
        entry = store.journal.begin(row.id, file, ".brainsurgeon-0.tmp", done)
        store.extractions.add(row.id, entry, shelved, now)
        store.journal.confirm(entry, row.id, done)
        store.journal.close(entry)


def cut_of(entry, value, chance):
    """Give the cut of a tool's result, as it is planned."""
    stub = f"[[extracted-{entry}]]"
    return Cut(
        0, len(value), f'"{stub}"'.encode(), entry, stub, ("message", "content", 0, "text"),
        "tool_result", chance.choice(("exec", "read", "web_fetch", "process")), len(value),
        block=False, forced=False, reason=f"tool_result of {len(value):,} characters",
        anchor=f"call_{chance.getrandbits(96):024x}", exact=False, said=chance.randbytes(32),
        whole=chance.randbytes(32),
    )  # fmt: skip


def store_bytes(scratch, volume):
    """Measure the store beside the bytes that were extracted, a fifth of them twice."""
    scratch.mkdir(parents=True, exist_ok=True)
    for size, limit in ((40_000, 0.32), (4_000, 0.40), (713, 0.60)):
        state = scratch / f"of-{size}"
        shutil.rmtree(state, ignore_errors=True)
        chance = random.Random(size)
        values = list(texts(chance, size, volume // 4 if size < 1000 else volume))
        begun = time.monotonic()
        with open_store(str(state)) as store:
            for number, at in enumerate(range(0, len(values), 500)):
                part = values[at : at + 500]
                record(store, scratch / "agents", 10 * number, part, time.time(), chance)
            for blob, name in store.blobs.named()[:50]:
                store.blobs.get(blob, name)
        wall = time.monotonic() - begun
        extracted = sum(map(len, values))
        distinct = set(values)
        packed = sum(len(zstandard.ZstdCompressor(1).compress(one)) for one in distinct)
        taken = os.path.getsize(state / "store.db")
        yield (
            f"store beside {len(values):,} values of {size:,} bytes",
            f"{limit:.0%}, zstd {packed / extracted:.1%}",
            f"{taken / extracted:.1%}",
            f"{wall:.1f} s",
        )
        break_down(state / "store.db", extracted)


def break_down(path, extracted):
    """Print which tables and indexes take the bytes, where SQLite can tell."""
    with closing(sqlite3.connect(path)) as database:
        try:
            rows = database.execute(
                "SELECT name, sum(pgsize), sum(unused) FROM dbstat GROUP BY name ORDER BY 2 DESC"
            ).fetchall()
        except sqlite3.Error:
            return
        for name, size, unused in rows:
            if size > extracted / 500:
                print(f"    {name:40}{size / extracted:8.1%}{unused / extracted:8.1%} unused")


def texts(chance, size, volume):
    """Yield what tools print, as it stands in a line of JSON: listings, logs, code, tables."""
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
    """Write one text of a tool."""
    kind = chance.randrange(4)
    lines, written = [], 0
    while written < length:
        some = chance.choices(words, weights, k=chance.randint(4, 9))
        if kind == 0:
            line = (f"-rw-r--r-- 1 dev dev {chance.randrange(10**6):7} Nov {chance.randrange(30):2}"
                    f" 10:{chance.randrange(60):02} {'_'.join(some[:3])}.py")  # fmt: skip
        elif kind == 1:
            line = (f"2026-11-{chance.randrange(30):02}T10:{chance.randrange(60):02}:"
                    f"{chance.randrange(60):02}.{chance.randrange(1000):03}Z INFO {some[0]}:"
                    f" {' '.join(some[1:])} id={chance.getrandbits(48):012x}")  # fmt: skip
        elif kind == 2:
            line = f"    {some[0]}_{some[1]} = {some[2]}({', '.join(some[3:])})"
        else:
            line = " ".join(some).capitalize() + "."
        lines.append(line)
        written += len(line) + 1
    return "\n".join(lines)[:length]


if __name__ == "__main__":
    main()
