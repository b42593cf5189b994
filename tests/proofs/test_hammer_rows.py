"""An agent that appends as fast as it can, and rows that are extracted beside it all the while."""

import hashlib
import json
import random
import subprocess
import sys
import time
import uuid
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from building.claw import GATEWAY, Claw, plain_connection
from building.processes import WORKERS
from proofs.agent_packages import OPENCLAW_FIRST, OPENCLAW_LATEST
from proofs.live.databases import Databases, Planned

PROOF = pytest.mark.long(proves=("hosts", "sessions"))
PAUSE = 0.004
# To how many sessions OpenClaw's own code appends at once, and how many rows to each.
SESSIONS, ROWS = 3, 2500


@pytest.mark.parametrize("rows", [600, pytest.param(8000, marks=PROOF)])
def test_no_append_is_lost_beside_two_cutters(tmp_path, rows):
    """Every row that was appended is there, as it was or with its original written down first.

    The gate is left out, so that every transaction meets a session at work: what holds is that
    each row is compared before it is written. Two processes cut the same rows at once.
    """
    claw, report = hammer(tmp_path, rows, cutters=2)

    assert report["lost"] == report["changed"] == 0
    assert report["placeholders"] > rows / 10
    assert all(told["transactions"] > 3 for told in report["cutters"])
    assert claw.sound() == []
    print(json.dumps({**report, "cutters": [told["transactions"] for told in report["cutters"]]}))


@PROOF
def test_a_hundred_killed_cutters_lose_nothing(tmp_path):
    """A cutter that is killed at any moment leaves rows that are as before or as after."""
    claw, report = hammer(tmp_path, 6000, cutters=1, kills=100)

    assert report["lost"] == report["changed"] == 0
    assert report["placeholders"] > 300
    assert claw.sound() == []


@PROOF
@pytest.mark.parametrize("release", [OPENCLAW_LATEST, OPENCLAW_FIRST], ids=lambda one: one[0])
def test_no_append_of_openclaws_own_code_is_lost(tmp_path, start, release):
    """What OpenClaw's own program appends stands beside two cutters, or its original was held.

    It writes to several sessions at once, as its gateway does; both cutters go over all of them.
    """
    sessions, originals = [str(uuid.uuid4()) for _ in range(SESSIONS)], tmp_path / "originals"
    originals.mkdir()
    with Planned() as model:
        claw = Databases(tmp_path, start, model, release)
        for session in sessions:
            claw.ask(session, local=True)
    keeper = plain_connection(claw.path)
    keeper.execute("SELECT * FROM schema_meta").fetchall()
    cutting = [begun("claw_cutter.py", claw.path, originals, *sessions) for _ in range(2)]
    node, openclaw = claw.program[0], Path(claw.program[1]).parent
    named = [word for session in sessions for word in (session, claw.key(session))]
    words = [WORKERS / "claw_writer.mjs", openclaw, ROWS, *named]
    done = subprocess.run(
        [node, "--no-warnings", *map(str, words)],
        env=claw.environment, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    appended = json.loads(done.stdout.splitlines()[-1])
    said = [json.loads(one.communicate(input=".", timeout=300)[0]) for one in cutting]
    keeper.close()

    texts = {
        json.loads(text).get("id"): text for session in sessions for text in claw.texts(session)
    }
    counts = Counter(
        _became(texts[ident], digest, originals) for ident, digest in appended["rows"].items()
        if ident in texts
    )  # fmt: skip
    print(
        f"{release[0]}: {len(appended['ids'])} rows appended to {SESSIONS} sessions in"
        f" {appended['seconds']:.0f} s, {len(appended['ids']) / appended['seconds']:.0f} a second,"
        f" {len(appended['errors'])} errors, longest wait {appended['longest']:.0f} ms; beside"
        f" {sum(one['transactions'] for one in said)} transactions of"
        f" {sum(one['cut'] for one in said)} rows, held"
        f" {1000 * max(held for one in said for held in one['held']):.1f} ms at most;"
        f" {dict(counts)}"
    )
    assert appended["errors"] == []
    assert set(appended["ids"]) <= texts.keys()
    assert counts["changed"] == 0
    assert counts["placeholder"] > 300
    assert claw.sound() == []


def _became(text, digest, originals):
    value = json.loads(text)["message"]["content"][0]["text"]
    if hashlib.sha256(value.encode()).hexdigest() == digest:
        return "whole"
    held = originals / value.removeprefix("[[extracted-").removesuffix("]]")
    if not held.exists():
        return "changed"
    before, now = json.loads(held.read_bytes()), json.loads(text)
    whole = before["message"]["content"][0].pop("text")
    now["message"]["content"][0].pop("text")
    same = before == now and hashlib.sha256(whole.encode()).hexdigest() == digest
    return "placeholder" if same else "changed"


def hammer(base, rows, cutters, kills=0):
    """Append and cut at once; give the database, and what became of every appended row."""
    claw, originals = Claw(base / "claw"), base / "originals"
    originals.mkdir()
    keeper = plain_connection(claw.path)  # its gateway has the database open all the while
    keeper.execute("SELECT * FROM schema_meta").fetchall()
    writer = begun("claw_appender.py", claw.path, GATEWAY, rows, PAUSE)
    cutting = [begun("claw_cutter.py", claw.path, originals, GATEWAY) for _ in range(cutters)]
    for number in range(kills):
        if writer.poll() is not None:
            break
        at_work(originals, number % 4)
        time.sleep(random.Random(number).random() / 50)  # a moment of its own, amid whatever it is
        cutting[0].kill()
        cutting[0].communicate()
        cutting[0] = begun("claw_cutter.py", claw.path, originals, GATEWAY)
    told, _ = writer.communicate(timeout=900)
    assert writer.returncode == 0
    said = [json.loads(one.communicate(input=".", timeout=300)[0]) for one in cutting]
    keeper.close()
    appended = json.loads(told.splitlines()[-1])
    return claw, {**judged(claw, appended["rows"], originals), "cutters": said,
                  "longest_wait": appended["longest"], "rows": rows}  # fmt: skip


def at_work(originals, transactions):
    """Wait until a cutter has cut so many times more.

    For a few seconds, should all be extracted.
    """
    done, end = Path(f"{originals}.done"), time.monotonic() + 5

    def so_far():
        return done.stat().st_size if done.exists() else 0

    wanted = so_far() + transactions
    while so_far() < wanted and time.monotonic() < end:
        time.sleep(0.001)


def begun(name, *words):
    process = subprocess.Popen(
        [sys.executable, str(WORKERS / name), *map(str, words)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    process.stdout.readline()
    return process


def judged(claw, appended, originals):
    with closing(plain_connection(claw.path)) as agent:
        agent.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    texts = {json.loads(text)["id"]: text for text in claw.texts(GATEWAY)}
    report = {"lost": 0, "changed": 0, "placeholders": 0, "whole": 0}
    for ident, digest in appended.items():
        text = texts.get(ident)
        if text is None:
            report["lost"] += 1
        elif hashlib.sha256(text).hexdigest() == digest:
            report["whole"] += 1
        elif _is_cut(text, digest, originals):
            report["placeholders"] += 1
        else:
            report["changed"] += 1
    return report


def _is_cut(text, digest, originals):
    """Tell whether a row differs from its original, which is held, in the one value only."""
    place = originals / digest
    if not place.exists():
        return False
    original, now = json.loads(place.read_bytes()), json.loads(text)
    value = now["message"]["content"][0].pop("text")
    original["message"]["content"][0].pop("text")
    return value == f"[[extracted-{digest}]]" and original == now
