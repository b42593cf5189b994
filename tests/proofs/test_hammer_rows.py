"""Databases: an agent that appends rows as fast as it can while values of them are extracted."""

import hashlib
import json
import random
import re
import subprocess
import sys
import time
import uuid
from contextlib import closing
from pathlib import Path

import pytest

from building.claw import GATEWAY, Claw, plain_connection
from building.processes import WORKERS
from proofs.agent_packages import OPENCLAW_FIRST, OPENCLAW_LATEST
from proofs.live.databases import Databases, Planned

PROOF = pytest.mark.long(proves=("agents", "sessions"))
PAUSE = 0.004
# Sessions to which OpenClaw's own code appends at once, and rows to each.
SESSIONS, ROWS = 3, 2500


@pytest.mark.parametrize("rows", [600, pytest.param(8000, marks=PROOF)])
def test_no_appended_row_is_lost_while_two_processes_extract(tmp_path, rows):
    """Every appended row is there, unchanged or with its original recorded beforehand.

    Signs of the agent are ignored, so that every transaction meets a session at work: its only
    safeguard is that each row is compared before it is written.
    """
    claw, report = hammer(tmp_path, rows, cutters=2)

    assert report["lost"] == report["changed"] == 0
    assert report["placeholder"] > rows / 10
    assert all(cutter["transactions"] > 3 for cutter in report["cutters"])
    assert claw.sound() == []
    transactions = [cutter["transactions"] for cutter in report["cutters"]]
    print(json.dumps({**report, "cutters": transactions}))


@PROOF
def test_a_hundred_killed_extractions_lose_no_row(tmp_path):
    """A process killed at any moment leaves each row as before or as after."""
    claw, report = hammer(tmp_path, 6000, cutters=1, kills=100)

    assert report["lost"] == report["changed"] == 0
    assert report["placeholder"] > 300
    assert claw.sound() == []


@PROOF
@pytest.mark.parametrize("release", [OPENCLAW_LATEST, OPENCLAW_FIRST], ids=lambda names: names[0])
def test_no_row_appended_by_openclaw_is_lost_during_extraction(tmp_path, start, release):
    """OpenClaw's own code appends to three sessions while two processes extract from all."""
    sessions, originals = [str(uuid.uuid4()) for _ in range(SESSIONS)], tmp_path / "originals"
    originals.mkdir()
    with Planned() as model:
        claw = Databases(tmp_path, start, model, release)
        for session in sessions:
            claw.ask(session, local=True)
    keeper = plain_connection(claw.path)
    keeper.execute("SELECT * FROM schema_meta").fetchall()
    cutters = [start_worker("claw_extractor.py", claw.path, originals, *sessions) for _ in range(2)]
    node, openclaw = claw.program[0], Path(claw.program[1]).parent
    names = [word for session in sessions for word in (session, claw.key(session))]
    words = [WORKERS / "claw_writer.mjs", openclaw, ROWS, *names]
    writer = subprocess.run(
        [node, "--no-warnings", *map(str, words)],
        env=claw.environment, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert writer.returncode == 0, writer.stderr[-2000:]
    appended = json.loads(writer.stdout.splitlines()[-1])
    reports = [stop_worker(cutter) for cutter in cutters]
    keeper.close()

    texts = {
        json.loads(text).get("id"): text for session in sessions for text in claw.texts(session)
    }
    counts = count_states(texts, appended["rows"], originals, covered=_value)
    print(
        f"{release[0]}: {len(appended['ids'])} rows appended to {SESSIONS} sessions in"
        f" {appended['seconds']:.0f} s, {len(appended['ids']) / appended['seconds']:.0f} a second,"
        f" {len(appended['errors'])} errors, longest wait {appended['longest']:.0f} ms; beside"
        f" {sum(report['transactions'] for report in reports)} transactions of"
        f" {sum(report['extracted'] for report in reports)} rows, locked"
        f" {1000 * max(seconds for report in reports for seconds in report['held']):.1f} ms at"
        f" most; {counts}"
    )
    assert appended["errors"] == []
    assert set(appended["ids"]) <= texts.keys()
    assert counts["lost"] == counts["changed"] == 0
    assert counts["placeholder"] > 300
    assert claw.sound() == []


def hammer(base, rows, cutters, kills=0):
    """Append and extract at once; return the database, and counts of appended rows by state."""
    claw, originals = Claw(base / "claw"), base / "originals"
    originals.mkdir()
    keeper = plain_connection(claw.path)  # as a gateway has the database open throughout
    keeper.execute("SELECT * FROM schema_meta").fetchall()
    writer = start_worker("claw_appender.py", claw.path, GATEWAY, rows, PAUSE)
    words = ("claw_extractor.py", claw.path, originals, GATEWAY)
    workers = [start_worker(*words) for _ in range(cutters)]
    for number in range(kills):
        if writer.poll() is not None:
            break
        wait_for_transactions(originals, number % 4)
        time.sleep(random.Random(number).random() / 50)  # at a random moment of the next one
        workers[0].kill()
        workers[0].communicate()
        workers[0] = start_worker(*words)
    output, _ = writer.communicate(timeout=900)
    assert writer.returncode == 0
    reports = [stop_worker(worker) for worker in workers]
    keeper.close()
    appended = json.loads(output.splitlines()[-1])
    with closing(plain_connection(claw.path)) as agent:
        agent.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    texts = {json.loads(text)["id"]: text for text in claw.texts(GATEWAY)}
    counts = count_states(texts, appended["rows"], originals, covered=bytes)
    return claw, {**counts, "cutters": reports, "longest_wait": appended["longest"], "rows": rows}


def wait_for_transactions(originals, count):
    """Wait for `count` more commits of a worker, or 5 seconds if nothing is left to extract."""
    log, end = Path(f"{originals}.done"), time.monotonic() + 5

    def committed():
        return log.stat().st_size if log.exists() else 0

    goal = committed() + count
    while committed() < goal and time.monotonic() < end:
        time.sleep(0.001)


def start_worker(name, *words):
    process = subprocess.Popen(
        [sys.executable, str(WORKERS / name), *map(str, words)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    process.stdout.readline()
    return process


def stop_worker(process):
    return json.loads(process.communicate(input=".", timeout=300)[0])


def count_states(texts, digests, originals, covered):
    """Count appended rows by state; `covered` returns the bytes of a row that its digest covers."""
    counts = dict.fromkeys(("lost", "changed", "placeholder", "whole"), 0)

    def is_covered(text, digest):
        return text is not None and hashlib.sha256(covered(text)).hexdigest() == digest

    for ident, digest in digests.items():
        text = texts.get(ident)
        if text is None:
            state = "lost"
        elif is_covered(text, digest):
            state = "whole"
        else:
            original = recorded_original(text, originals)
            state = "placeholder" if is_covered(original, digest) else "changed"
        counts[state] += 1
    return counts


def recorded_original(text, originals):
    """Return the recorded original of a row if only the extracted value differs, else None."""
    row = json.loads(text)
    match = re.fullmatch(r"\[\[extracted-(\w+)\]\]", row["message"]["content"][0].pop("text"))
    if not match or not (originals / match[1]).exists():
        return None
    text = (originals / match[1]).read_bytes()
    original = json.loads(text)
    original["message"]["content"][0].pop("text")
    return text if original == row else None


def _value(text):
    return json.loads(text)["message"]["content"][0]["text"].encode()
