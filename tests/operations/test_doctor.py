"""The doctor: each thing that can be wrong is named, with what to do and an exit code.

Only what is safe is repaired; a doctor that only looks changes nothing.
"""

import json
import os
import re
import sqlite3
import sys
from contextlib import closing

import pytest

from brainsurgeon import cli
from brainsurgeon.cli.options import given
from brainsurgeon.operations.status import status
from brainsurgeon.sessions import leases, retire
from brainsurgeon.sessions.retire import StaysError
from brainsurgeon.store import database as opening
from building.world import Conversation

STRAY = ".brainsurgeon-0123456789abcdef.tmp"


@pytest.fixture
def pruned(world, conversation):
    """Give a world with one session of two cut values."""
    conversation.turn("first " + "x" * 3000)
    conversation.turn("second " + "y" * 3000)
    world.path = world.put("one.jsonl", conversation.bytes())
    world.scan(keep_recent=0)
    return world


@pytest.fixture
def doctor(world, monkeypatch, capsys):
    """Give the command: what it finds, as (level, what, advice), and its exit code."""

    def run(*words):
        world.close()
        monkeypatch.setattr(given, "json", False)
        told = ["brainsurgeon", "doctor", "--json", "--config", str(world.config_file()), *words]
        monkeypatch.setattr(sys, "argv", told)
        capsys.readouterr()
        try:
            code = cli._run()
        finally:
            given.json = False
        said = json.loads(capsys.readouterr().out)
        assert said.pop("schema") == 1
        listed = said.get("findings", [said])
        return [tuple(one.values()) for one in listed], code

    return run


def fitting(findings, pattern):
    (found,) = [one for one in findings if re.search(pattern, one[1])]
    return found[0], found[2]


def check(done, code, level, pattern, advice=""):
    findings, ended = done
    given, found = fitting(findings, pattern)
    assert (ended, given) == (code, level)
    assert advice in found


def database(world):
    world.close()
    return closing(sqlite3.connect(world.state / "store.db", isolation_level=None))


def everything(world):
    return {
        str(path): (path.stat().st_mode, path.read_bytes() if path.is_file() else None)
        for place in (world.root, world.state)
        for path in sorted(place.rglob("*"))
    }


def test_a_sound_world_is_found_sound_and_left_as_it_is(pruned, doctor):
    """Where nothing is wrong, nothing is said to be, nothing changes, and the exit code is 0."""
    pruned.close()
    before = everything(pruned)
    findings, code = doctor()
    assert code == 0
    assert {level for level, *_ in findings} == {"ok"}
    assert fitting(
        findings, "2 placeholders stand in live files, 2 lead to a value, 0 to a tombstone"
    )
    assert fitting(findings, "2 stored values match their digest")
    assert fitting(findings, "leases work")
    assert everything(pruned) == before


def test_before_the_first_scan_nothing_is_made(world, doctor):
    """Without a store the doctor says so and does not make one."""
    check(doctor(), 0, "note", "the first scan makes it")
    assert not world.state.exists()


def test_in_words_each_finding_stands_with_its_advice(pruned, doctor, monkeypatch, capsys):
    """People get a line for each finding, and below it what to do."""
    (pruned.directory / STRAY).touch()
    doctor()
    monkeypatch.setattr(sys, "argv", [one for one in sys.argv if one != "--json"])
    assert cli._run() == 1
    said = capsys.readouterr().out
    assert re.search(rf"error +\S+{re.escape(STRAY)}: a temporary file of no known rewrite", said)
    assert "compare it before removing it" in said


@pytest.mark.parametrize("table", ["blobs", "extractions", "sessions", "journal"])
def test_a_damaged_database_is_named(pruned, doctor, table):
    """Whichever table a damaged page belongs to, the doctor says what to do, and writes nothing."""
    with database(pruned) as opened:
        page = opened.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)
        ).fetchone()[0]
    with open(pruned.state / "store.db", "r+b") as handle:
        handle.seek((page - 1) * opening.PAGE)
        handle.write(b"\xff" * 64)
    before = pruned.path.read_bytes()
    check(doctor(), 1, "error", "the database is damaged", "backup")
    check(doctor(), 1, "ok", "leases work")
    repaired, code = doctor("--repair")
    assert code == (0 if table in ("journal", "sessions") else 1)
    assert "store.db.damaged-" in fitting(repaired, "the database was damaged")[1]
    assert pruned.path.read_bytes() == before
    assert fitting(doctor()[0], "the database is sound")[0] == "ok"


def test_what_is_no_database_is_refused(pruned, doctor):
    """A file that is no store of ours is left alone, with exit code 7."""
    pruned.close()
    with open(pruned.state / "store.db", "r+b") as handle:
        handle.write(b"\0" * 100)
    findings, code = doctor()
    assert code == 7
    assert "nothing was touched" in str(findings)


def test_a_damaged_value_is_counted(pruned, doctor):
    """A stored value that is not, bit for bit, what was stored is an error."""
    with database(pruned) as opened:
        opened.execute("UPDATE blobs SET data = zeroblob(40) WHERE id = 1")
    check(doctor(), 1, "error", "1 of 2 stored values are damaged", "backup")


def test_a_missing_value_is_no_sound_one(pruned, doctor):
    """A placeholder whose value is simply not there any more is never said to lead to one."""
    with database(pruned) as opened:
        opened.execute("PRAGMA foreign_keys = OFF")
        opened.execute("DELETE FROM blobs WHERE id = 1")
    check(doctor(), 1, "error", "1 row of the store refers to a missing row")


@pytest.mark.parametrize(
    ("name", "mode", "wanted"),
    [("", 0o755, "700"), ("", 0o2750, "700"), ("store.db", 0o644, "600")],
)
def test_what_others_can_read_is_an_error(pruned, doctor, name, mode, wanted):
    """The state directory and the database are this user's alone, or the doctor says how."""
    pruned.close()
    place = pruned.state / name
    place.chmod(mode)
    findings, code = doctor()
    assert code == 1
    level, advice = fitting(findings, "is open to others")
    assert (level, advice) == ("error", f"chmod {wanted} {place}")
    assert place.stat().st_mode & 0o7777 == mode


def _interrupt(world, monkeypatch):
    """Leave a rewrite with the old file beside the session."""

    def killed(*arguments, **keywords):
        raise StaysError("")

    world.put("two.jsonl", other_session())
    with monkeypatch.context() as patch:
        patch.setattr(retire, "retire", killed)
        world.scan(keep_recent=0)
    assert len(world.leftovers()) == 1


def other_session():
    one = Conversation()
    one.turn("third " + "z" * 3000)
    one.turn("fourth " + "w" * 3000)
    return one.bytes()


def test_an_interrupted_rewrite_is_named_and_finished_on_request(pruned, doctor, monkeypatch):
    """A rewrite that was stopped is a warning; --repair finishes it and says so."""
    _interrupt(pruned, monkeypatch)
    left = pruned.leftovers()
    check(doctor(), 0, "warning", "two.jsonl: a rewrite was interrupted", "--repair")
    assert pruned.leftovers() == left
    check(doctor("--repair"), 0, "note", "recovered .*two.jsonl: finished")
    assert pruned.leftovers() == []
    findings, code = doctor()
    assert (code, {level for level, *_ in findings}) == (0, {"ok"})


def test_an_old_file_that_stays_is_named_with_the_reason(pruned, doctor, monkeypatch):
    """Where both files were written anew, both stay until a person has looked."""
    path = pruned.put("two.jsonl", other_session())
    real = retire.retire

    def others_write(place, **keywords):
        monkeypatch.setattr(retire, "retire", real)
        for name in place.temporary, place.name:
            path.with_name(name).write_bytes(b'{"anew":"%s"}\n' % name.encode())
        return real(place, **keywords)

    monkeypatch.setattr(retire, "retire", others_write)
    pruned.scan(keep_recent=0)
    [beside] = pruned.directory.glob(".brainsurgeon-*")
    why = "the old file was written anew, while the session was written anew"
    assert status(pruned.settings(), pruned.store, pruned.clock()).kept_beside == {str(beside): why}
    stays = rf"two.jsonl: {beside.name} stays beside it: {why}"
    check(doctor(), 0, "warning", stays, "add the lines that the session lacks, and remove that")

    before = path.read_bytes()
    assert pruned.scan(keep_recent=0).recovered == []  # it has been said
    assert (path.read_bytes(), beside.exists()) == (before, True)

    beside.unlink()
    assert [one.what for one in pruned.scan(keep_recent=0).recovered] == ["finished"]
    assert status(pruned.settings(), pruned.store, pruned.clock()).kept_beside == {}


def test_a_file_of_ours_that_no_journal_names_is_left(pruned, doctor):
    """A stray temporary file may hold original lines: it is an error, and nobody removes it."""
    stray = pruned.directory / STRAY
    stray.write_bytes(b"perhaps the only copy\n")
    for words in ((), ("--repair",)):
        check(doctor(*words), 1, "error", "no known rewrite", "compare")
        assert stray.read_bytes() == b"perhaps the only copy\n"


def test_a_placeholder_unknown_to_the_store_is_a_warning(pruned, doctor):
    """What only looks like a placeholder is counted; nothing is done about it."""
    one = Conversation()
    one.turn("[[extracted-deadbeef]]")
    path = pruned.put("pasted.jsonl", one.bytes())
    unknown = "pasted: 1 text looks like a placeholder, unknown to the store"
    check(doctor("--repair"), 0, "warning", unknown, "harmless")
    assert path.read_bytes() == one.bytes()


def test_with_another_store_every_placeholder_is_unknown(pruned, doctor):
    """Where the store was lost, the doctor says so before anybody starts to trust a new one."""
    pruned.close()
    (pruned.state / "store.db").unlink()
    check(doctor(), 0, "warning", "2 placeholders are orphans, in 00000003", "state_dir")


def test_an_expired_placeholder_leads_to_its_tombstone(pruned, doctor):
    """A placeholder whose value retention has deleted is accounted for, and is no error."""
    with pruned.store.transaction():
        row = pruned.store._connection.execute("SELECT min(id) FROM extractions").fetchone()[0]
        pruned.store.expiry.delete([(row, "for the test")], 0.0)
    findings, code = doctor()
    assert code == 0
    assert fitting(
        findings, "2 placeholders stand in live files, 1 leads to a value, 1 to a tombstone"
    )


def test_a_missing_root_is_an_error(pruned, doctor):
    """A root that is not there is named with where to correct it."""
    pruned.root.rename(pruned.base / "elsewhere")
    check(doctor(), 1, "error", "agents: no such directory$", "correct roots in the configuration")


def test_a_root_without_leases_is_a_warning(pruned, doctor, monkeypatch):
    """Where the kernel grants no leases, the doctor says what that means."""

    def none(descriptor):
        raise leases.LeaseUnsupportedError

    monkeypatch.setattr(leases, "take", none)
    check(doctor(), 0, "warning", "leases do not work here", "exclusive = true")
    assert pruned.leftovers() == []


# No mode closes a directory to root, who meets this case nowhere; any other account proves it.
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_root_that_is_not_ours_is_an_error(pruned, doctor):
    """A root in which we may not write is named with who should run us."""
    pruned.root.chmod(0o500)
    findings, code = doctor()
    pruned.root.chmod(0o700)
    assert code == 1
    assert fitting(findings, "Permission denied") == ("error", "run as the user that owns it")


def test_an_agent_that_moved_to_sqlite_is_mentioned(pruned, doctor):
    """Where an agent keeps its sessions in SQLite now, the doctor says that nothing is written."""
    place = pruned.directory.parent / "agent"
    place.mkdir()
    with closing(sqlite3.connect(place / "openclaw-agent.sqlite", isolation_level=None)) as made:
        made.execute("CREATE TABLE transcript_events (id INTEGER)")
        made.execute("INSERT INTO transcript_events VALUES (1)")
    moved = "main: its sessions are in SQLite now"
    check(doctor(), 0, "note", moved, "its files are not written any more")


def test_the_catalogue_is_corrected_by_the_files(pruned, doctor):
    """A placeholder that stands although the store says restored counts after a repair."""
    count = "SELECT count(*) FROM placements"
    with database(pruned) as opened:
        before = opened.execute(count).fetchall()
        opened.execute("DELETE FROM placements")
    doctor()
    with database(pruned) as opened:
        assert opened.execute(count).fetchall() == [(0,)]
    doctor("--repair")
    with database(pruned) as opened:
        assert opened.execute(count).fetchall() == before


def test_a_temporary_file_is_not_opened(doctor, world):
    """A file that a rewrite holds by a lease is named, and the rewrite goes on undisturbed."""
    directory = world.root / "-home-me"
    directory.mkdir()
    (directory / STRAY).write_bytes(b"whole\n")
    descriptor = os.open(directory / STRAY, os.O_RDWR)
    assert leases.take(descriptor)
    findings, _ = doctor()
    undisturbed = leases.held(descriptor)
    os.close(descriptor)

    assert fitting(findings, STRAY)[0] == "error"
    assert undisturbed
