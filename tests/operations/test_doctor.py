"""`doctor`: it names problems with advice and an exit code; only `--repair` changes anything."""

import json
import os
import re
import sqlite3
import sys
from contextlib import closing

import pytest

from brainsurgeon import cli
from brainsurgeon.cli.options import given
from brainsurgeon.files import leases, retire
from brainsurgeon.files.retire import StaysError
from brainsurgeon.formats.recognition import HEAD_LINES
from brainsurgeon.operations import doctor as doctor_module
from brainsurgeon.operations.status import status
from brainsurgeon.store import database as opening
from building.claw import migrate
from building.world import Conversation, add_two_values, pin, put_session

STRAY = ".brainsurgeon-0123456789abcdef.tmp"


@pytest.fixture
def pruned(world, conversation):
    """Return a world with one session of two extracted values."""
    conversation.turn("first " + "x" * 3000)
    conversation.turn("second " + "y" * 3000)
    world.path = world.put("one.jsonl", conversation.bytes())
    world.scan(keep_recent=0)
    return world


@pytest.fixture
def doctor(world, monkeypatch, capsys):
    """Return a function that runs the command and returns findings and exit code.

    A finding is (level, what, advice).
    """

    def run(*words):
        world.close()
        monkeypatch.setattr(given, "json", False)
        config = str(world.config_file())
        monkeypatch.setattr(
            sys, "argv", ["brainsurgeon", "doctor", "--json", "--config", config, *words]
        )
        capsys.readouterr()
        try:
            code = cli._run()
        finally:
            given.json = False
        answer = json.loads(capsys.readouterr().out)
        assert answer.pop("schema") == 1
        return [tuple(row.values()) for row in answer.get("findings", [answer])], code

    return run


def matching(findings, pattern):
    """Return level and advice of the only finding that matches."""
    [(level, _, advice)] = [finding for finding in findings if re.search(pattern, finding[1])]
    return level, advice


def check(result, code, level, pattern, advice=""):
    findings, actual_code = result
    actual_level, actual_advice = matching(findings, pattern)
    assert (actual_code, actual_level) == (code, level)
    assert advice in actual_advice


def database(world):
    world.close()
    return closing(sqlite3.connect(world.state / "store.db", isolation_level=None))


def all_files(world):
    return {
        str(path): (path.stat().st_mode, path.read_bytes() if path.is_file() else None)
        for place in (world.root, world.state)
        for path in sorted(place.rglob("*"))
    }


def test_doctor_names_the_number_of_values_that_status_counts(world, doctor):
    """Where blocks were removed whole, there are fewer placeholders than extracted values."""
    world.copy("claude-code", "entire-60_61721bc409_0.jsonl")
    world.scan()
    values = status(world.settings(), world.store, world.clock()).store.values_extracted
    findings, _ = doctor()

    assert matching(findings, f"; that makes {values} values: copies count once, and blocks")


def test_doctor_reports_a_sound_world_and_changes_nothing(pruned, doctor):
    """Every finding is ok, no file changes, and it exits 0."""
    pruned.close()
    before = all_files(pruned)
    findings, code = doctor()
    assert code == 0
    assert {level for level, *_ in findings} == {"ok"}
    assert matching(
        findings, "2 placeholders in sessions: 2 with a value, 0 expired, 0 without a record"
    )
    assert matching(findings, "2 stored values match their digest")
    assert matching(findings, "leases work")
    assert all_files(pruned) == before


def test_doctor_reports_a_store_that_cannot_be_written(unprivileged_world, conversation):
    """A store file that this user may only read is an error, with the command that helps."""
    put_session(unprivileged_world, conversation)
    unprivileged_world.scan(keep_recent=0)
    unprivileged_world.close()
    (unprivileged_world.state / "store.db").chmod(0o400)
    found = doctor_module.doctor(unprivileged_world.settings(), unprivileged_world.no_store)

    assert [one.advice for one in found if "store.db cannot be written" in one.what] == [
        f"chmod 600 {unprivileged_world.state}/store.db"
    ]


def test_doctor_creates_no_store(world, doctor):
    """Without a store it notes that the first scan creates one."""
    check(doctor(), 0, "note", "the first scan creates it")
    assert not world.state.exists()


def test_doctor_names_what_is_odd_in_a_registry(pruned, doctor):
    """Entries that say nothing are named together, by reason, and an unusable file as a whole."""
    path = pruned.directory / "sessions.json"
    path.write_text('{"a": null, "b": {"sessionId": "one"}, "c": 7, "d": {"status": []}}')
    odd = [row for row in doctor()[0] if str(path) in row[1]]
    path.write_text("")
    unusable = [row for row in doctor()[0] if str(path) in row[1]]

    assert [(level, what) for level, what, _ in odd] == [
        ("warning", f"{path}: 2 entries are ignored (a, c): no object"),
        ("warning", f"{path}: 1 entry is ignored (d): its status is not text"),
    ]
    assert [(level, what) for level, what, _ in unusable] == [
        ("warning", f"{path} cannot be used: it is not one JSON object")
    ]


def test_doctor_prints_each_finding_with_its_advice(pruned, doctor, monkeypatch, capsys):
    """As text a finding is one line, with the advice below it."""
    (pruned.directory / STRAY).touch()
    doctor()
    monkeypatch.setattr(sys, "argv", [word for word in sys.argv if word != "--json"])
    assert cli._run() == 1
    output = capsys.readouterr().out
    found = rf"error +\S+{re.escape(STRAY)}: a temporary file of an unknown rewrite"
    assert re.search(found, output)
    assert "compare it with its session" in output


def test_doctor_prints_equal_advice_and_entries_once(world, doctor, monkeypatch, capsys):
    """Findings with the same advice share it. An entry with two placeholders is named once."""
    for number in (1, 2):
        conversation = Conversation(f"{number:08}-0000-4000-8000-000000000009")
        ident = add_two_values(conversation)
        world.put(f"{number}.jsonl", conversation.bytes())
    world.scan()
    world.close()
    (world.state / "store.db").unlink()
    doctor()
    monkeypatch.setattr(sys, "argv", [word for word in sys.argv if word != "--json"])
    cli._run()
    output = capsys.readouterr().out

    assert output.count("placeholders are orphans, in") == 2
    assert output.count(doctor_module.ADVICE) == 1
    assert f"orphans, in {ident}\n" in output


@pytest.mark.parametrize("table", ["blobs", "extractions", "sessions", "journal"])
def test_doctor_reports_a_damaged_database_and_repairs_it(pruned, doctor, table):
    """A damaged page of any table is reported; `--repair` salvages the readable values."""
    with database(pruned) as store:
        page = store.execute(
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
    assert "store.db.damaged-" in matching(repaired, "the database was damaged")[1]
    assert pruned.path.read_bytes() == before
    assert matching(doctor()[0], "the database is sound")[0] == "ok"


def test_doctor_refuses_a_file_that_is_no_database(pruned, doctor):
    """It exits 7 and changes nothing."""
    pruned.close()
    with open(pruned.state / "store.db", "r+b") as handle:
        handle.write(b"\0" * 100)
    findings, code = doctor()
    assert code == 7
    assert "left as it is" in str(findings)


def test_doctor_counts_damaged_values(pruned, doctor):
    """A stored value that fails its digest is an error."""
    with database(pruned) as store:
        store.execute("UPDATE blobs SET data = zeroblob(40) WHERE id = 1")
    check(doctor(), 1, "error", "1 of 2 stored values are damaged", "backup")


def test_doctor_reports_a_missing_value(pruned, doctor):
    """A record whose value is missing is an error."""
    with database(pruned) as store:
        store.execute("PRAGMA foreign_keys = OFF")
        store.execute("DELETE FROM blobs WHERE id = 1")
    check(doctor(), 1, "error", "1 record of the store refers to a missing record")


@pytest.mark.parametrize(
    ("name", "mode", "wanted"),
    [("", 0o755, "700"), ("", 0o2750, "700"), ("store.db", 0o644, "600")],
)
def test_doctor_reports_a_store_that_others_can_read(pruned, doctor, name, mode, wanted):
    """The advice is the chmod command for the state directory or the database."""
    pruned.close()
    place = pruned.state / name
    place.chmod(mode)
    findings, code = doctor()
    assert code == 1
    level, advice = matching(findings, "other users have access")
    assert (level, advice) == ("error", f"chmod {wanted} {place}")
    assert place.stat().st_mode & 0o7777 == mode


def test_doctor_reports_a_state_directory_that_is_a_link(pruned, doctor):
    """Commands refuse a link, whose own mode means nothing; the advice names its target."""
    pruned.close()
    target = pruned.state.rename(pruned.state.with_name("elsewhere"))
    pruned.state.symlink_to(target)

    check(doctor(), 1, "error", f"{pruned.state} is a symbolic link", f"set state_dir to {target}")


def test_doctor_reports_a_database_that_is_a_link(pruned, doctor):
    """The advice is no other state directory: there, the store might have to have another name."""
    pruned.close()
    path = pruned.state / "store.db"
    target = path.rename(pruned.base / "values.db")
    path.symlink_to(target)

    advice = f"replace the link by its target, {target}"
    check(doctor(), 1, "error", f"{path} is a symbolic link", advice)


def _interrupt(world, monkeypatch):
    """Leave an interrupted rewrite, with the old file beside the session."""

    def killed(*arguments, **keywords):
        raise StaysError("")

    world.put("two.jsonl", other_session())
    with monkeypatch.context() as patch:
        patch.setattr(retire, "retire", killed)
        world.scan(keep_recent=0)
    assert len(world.leftovers()) == 1


def other_session():
    conversation = Conversation()
    conversation.turn("third " + "z" * 3000)
    conversation.turn("fourth " + "w" * 3000)
    return conversation.bytes()


def test_doctor_repair_finishes_an_interrupted_rewrite(pruned, doctor, monkeypatch):
    """Without `--repair` an interrupted rewrite is a note and stays as it is."""
    _interrupt(pruned, monkeypatch)
    left = pruned.leftovers()
    check(doctor(), 0, "note", "two.jsonl: a rewrite is unfinished; the next run", "--repair")
    assert pruned.leftovers() == left
    check(doctor("--repair"), 0, "note", "recovered .*two.jsonl: finished")
    assert pruned.leftovers() == []
    findings, code = doctor()
    assert (code, {level for level, *_ in findings}) == (0, {"ok"})


def test_doctor_names_an_old_file_that_cannot_be_merged(pruned, doctor, monkeypatch):
    """If both files were rewritten, both stay until the user removes the old one."""
    path = pruned.put("two.jsonl", other_session())
    real = retire.retire

    def write_both(place, **keywords):
        monkeypatch.setattr(retire, "retire", real)
        for name in place.temporary, place.name:
            path.with_name(name).write_bytes(b'{"new":"%s"}\n' % name.encode())
        return real(place, **keywords)

    monkeypatch.setattr(retire, "retire", write_both)
    pruned.scan(keep_recent=0)
    [beside] = pruned.directory.glob(".brainsurgeon-*")
    why = "the old file was written anew, while the session was written anew"
    assert status(pruned.settings(), pruned.store, pruned.clock()).unfinished.kept_beside == {
        str(beside): why
    }
    stays = rf"two.jsonl: its old file {beside.name} remains: {why}"
    advice = "add the lines that the session lacks, then remove the old file"
    check(doctor(), 1, "error", stays, advice)

    before = path.read_bytes()
    assert pruned.scan(keep_recent=0).recovered == []  # reported once
    assert (path.read_bytes(), beside.exists()) == (before, True)

    beside.unlink()
    assert [action.what for action in pruned.scan(keep_recent=0).recovered] == ["finished"]
    assert status(pruned.settings(), pruned.store, pruned.clock()).unfinished.kept_beside == {}


def test_doctor_keeps_a_temporary_file_of_an_unknown_rewrite(pruned, doctor):
    """It may contain original lines: it is an error, and `--repair` does not remove it."""
    stray = pruned.directory / STRAY
    stray.write_bytes(b"perhaps the only copy\n")
    for words in ((), ("--repair",)):
        check(doctor(*words), 1, "error", "of an unknown rewrite", "compare")
        assert stray.read_bytes() == b"perhaps the only copy\n"


def test_doctor_ignores_the_temporary_file_of_a_scan_at_work(pruned, doctor, monkeypatch):
    """A rewrite may begin after `doctor` has, and end before it reports the file."""
    stray = pruned.directory / STRAY
    stray.write_bytes(b"of a scan\n")
    walked = doctor_module.list_rows

    def finish(*arguments):
        stray.unlink()
        return walked(*arguments)

    monkeypatch.setattr(doctor_module, "list_rows", finish)
    findings, code = doctor()

    assert not stray.exists()
    assert (code, {level for level, *_ in findings}) == (0, {"ok"})


def test_doctor_warns_of_an_unknown_placeholder(pruned, doctor):
    """Text that looks like a placeholder is counted and left unchanged."""
    conversation = Conversation()
    conversation.turn("[[extracted-deadbeef]]")
    path = pruned.put("pasted.jsonl", conversation.bytes())
    unknown = "pasted: 1 text looks like a placeholder, unknown to the store"
    check(doctor("--repair"), 0, "warning", unknown, "harmless")
    assert path.read_bytes() == conversation.bytes()


def test_doctor_counts_no_typed_text_for_an_extracted_custom_entry(pruned, doctor):
    """A placeholder in an entry that is not extractable any more is ours: no text was typed."""
    conversation = Conversation()
    ident = conversation.entry("custom", customType="plugin", data={"text": "state " * 500})
    conversation.turn("[[extracted-deadbeef]]")
    pruned.put("plugin.jsonl", conversation.bytes())
    pin(pruned, ident, True, session="plugin")
    assert pruned.scan().values_extracted == 1
    pin(pruned, ident, None, session="plugin")

    check(doctor(), 0, "warning", "plugin: 1 text looks like a placeholder", "harmless")
    check(doctor(), 0, "note", "3 placeholders in sessions: 3 with a value")


def test_doctor_reports_orphaned_placeholders(pruned, doctor):
    """With a lost store, every placeholder is an orphan, and the advice is to check state_dir."""
    pruned.close()
    (pruned.state / "store.db").unlink()
    check(doctor(), 1, "error", "2 placeholders are orphans, in 00000003", "state_dir")
    total = "2 placeholders in sessions: 0 with a value, 0 expired, 2 without a record"
    check(doctor(), 1, "error", total)


def test_doctor_counts_placeholders_of_expired_values(pruned, doctor):
    """A placeholder whose value has expired is an error, and is counted apart."""
    with pruned.store.transaction():
        row = pruned.store._connection.execute("SELECT min(id) FROM extractions").fetchone()[0]
        pruned.store.expiry.delete([(row, "for the test")], 0.0)
    total = "2 placeholders in sessions: 1 with a value, 1 expired, 0 without a record"
    check(doctor(), 1, "error", total)
    check(doctor(), 1, "error", "one: 1 placeholder has a value that expired or was lost, in 0000")


def test_doctor_reports_a_missing_root(pruned, doctor):
    """The advice is to correct the roots in the configuration."""
    pruned.root.rename(pruned.base / "elsewhere")
    check(doctor(), 1, "error", "agents: no such directory$", "correct roots in the configuration")


def test_doctor_reports_an_empty_root_as_status_does(pruned, doctor):
    """An empty root may be the mount point of a missing disk: an error, and exit code 1."""
    pruned.root.rename(pruned.base / "disk")
    pruned.root.mkdir()
    check(doctor(), 1, "error", f"{pruned.root}: the directory is empty: is its disk mounted")


def test_doctor_only_notes_an_empty_root_that_never_had_a_session(world, doctor):
    """Before the agent's first session, an empty root is no error."""
    world.root.rename(world.base / "elsewhere")
    world.root.mkdir()
    check(doctor(), 0, "note", f"{world.root}: the directory is empty: is its disk mounted")


def test_doctor_warns_of_a_root_without_leases(pruned, doctor, monkeypatch):
    """If the kernel grants no lease there, the advice is `exclusive = true`."""

    def none(descriptor):
        raise leases.LeaseUnsupportedError

    monkeypatch.setattr(leases, "take", none)
    check(doctor(), 0, "warning", "leases do not work here", "exclusive = true")
    assert pruned.leftovers() == []


def test_doctor_notes_an_agent_that_moved_to_sqlite(pruned, doctor):
    """The agent's session files are no longer written by it."""
    migrate(pruned.directory.parent)
    moved = "main: its sessions are in SQLite now"
    check(doctor(), 0, "note", moved, "the agent no longer uses its files")


def test_doctor_repair_rebuilds_the_placements(pruned, doctor):
    """`--repair` records where placeholders stand again; without it nothing changes."""
    count = "SELECT count(*) FROM placements"
    with database(pruned) as store:
        before = store.execute(count).fetchall()
        store.execute("DELETE FROM placements")
    doctor()
    with database(pruned) as store:
        assert store.execute(count).fetchall() == [(0,)]
    doctor("--repair")
    with database(pruned) as store:
        assert store.execute(count).fetchall() == before


def test_doctor_does_not_break_the_lease_of_a_rewrite(doctor, world):
    """A temporary file under a lease is named without being opened."""
    directory = world.root / "-home-me"
    directory.mkdir()
    (directory / STRAY).write_bytes(b"whole\n")
    descriptor = os.open(directory / STRAY, os.O_RDWR)
    assert leases.take(descriptor)
    findings, _ = doctor()
    undisturbed = leases.held(descriptor)
    os.close(descriptor)

    assert matching(findings, STRAY)[0] == "error"
    assert undisturbed


def test_doctor_names_programs_that_cannot_be_run(world):
    """A program of the configuration that is missing or not executable is an error with its key."""
    plain = world.base / "plain"
    plain.write_text("#!/bin/sh\n")
    plain.chmod(0o600)
    settings = world.settings(
        signals={"on_signal": [str(plain)]}, archive={"command": ["sh", "-c", "true"]},
        profiles={"deep": {"archive": {"command": ["no-such-program", "--short"]}}},
    )  # fmt: skip
    found = [
        finding.what for finding in doctor_module.doctor(settings, world.store)
        if finding.level == "error"
    ]  # fmt: skip

    assert found == [
        "profiles.deep.archive.command: no-such-program cannot be found or executed",
        f"signals.on_signal: {plain} cannot be found or executed",
    ]


def test_a_log_that_is_no_longer_recognised_is_an_error(world, doctor):
    """Its placeholders are named, as nothing restores them until its format is recognised."""
    path = world.copy("described", "openai-chat-nanobot.jsonl")
    world.scan(keep_recent=0, min_value_length=300)
    path.write_bytes(b'{"event":1}\n' * HEAD_LINES + path.read_bytes())
    found, code = doctor()
    ((what, advice),) = [(what, advice) for level, what, advice in found if level == "error"]

    assert code == 1
    assert re.search(r": not a known session format; [0-9]+ placeholders stood in it$", what)
    assert "until its format is recognised again" in advice
