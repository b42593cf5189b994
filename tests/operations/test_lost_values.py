"""Placeholders without a stored value: an alarm everywhere, and no new store beside them."""

import re
import shutil
import sqlite3
from contextlib import closing

import pytest

from brainsurgeon.operations.archive import archive
from brainsurgeon.operations.doctor import doctor
from brainsurgeon.operations.status import check, metrics, status
from brainsurgeon.sessions.transcripts import Transcripts
from brainsurgeon.store import backup, open_store, open_to_read
from brainsurgeon.store.schema import ADDED
from building.claw import ClawWorld
from building.processes import DaemonProcess, error_line, json_output, program_for
from building.world import Conversation, dump, sql

ALWAYS = ("--max-age", "999999999")


def extract(world, values=3, name="s.jsonl"):
    """Write a session with a number of values and extract all of them."""
    conversation = Conversation()
    for number in range(values):
        conversation.turn(f"{number}" * 3000)
    path = world.put(name, conversation.bytes())
    assert world.scan(keep_recent=0).values_extracted == values
    return path


def figures(world):
    """Return what `status --check`, `doctor`, the metrics and the page say of lost values."""
    world.close()
    program = program_for(world)
    checked = program("status", "--check", "--json", *ALWAYS)
    examined = program("doctor", "--json")
    text = program("status", "--format", "prometheus").stdout.decode()
    page = world.base / "page.html"
    program("status", "--format", "html", "--output", page, "--force")
    shown = re.search(r'class="warn"><dt>Cannot be restored</dt><dd>([0-9]+)<', page.read_text())
    state = json_output(checked)
    errors = [
        finding["what"] for finding in json_output(examined)["findings"]
        if finding["level"] == "error" and "there is no store" not in finding["what"]
    ]  # fmt: skip
    named = [trouble for trouble in state["troubles"] if "no stored value" in trouble]
    counts = {
        state["values_lost"], int(shown[1]) if shown else 0,
        int(re.search(r"^brainsurgeon_lost_values ([0-9]+)$", text, re.MULTILINE)[1]),
        int(re.search(r'troubles\{trouble="lost_values"\} ([0-9]+)$', text, re.MULTILINE)[1]),
        sum(int(re.search(r"([0-9]+) placeholders? ", what)[1]) for what in errors
            if "a record" not in what),
    }  # fmt: skip
    assert checked.returncode == bool(state["troubles"])
    assert examined.returncode == bool(errors)
    assert all(trouble in page.read_text() for trouble in named)
    [count] = counts
    assert [trouble.partition(" ")[0] for trouble in named] == ([str(count)] if count else [])
    return count


def lose_directory(world):
    world.close()
    shutil.rmtree(world.state)


def lose_database(world):
    world.close()
    (world.state / "store.db").unlink()


@pytest.mark.parametrize("lose", [lose_directory, lose_database])
def test_no_new_store_is_begun_beside_placeholders_of_a_lost_one(world, lose):
    """Every command that needs the store ends with 7, names the ways out, and changes nothing."""
    path = extract(world)
    extract(world, 1, "t.jsonl")
    lose(world)
    before, program = path.read_bytes(), program_for(world)
    for words in (
        ("scan",), ("scan", "--dry-run"), ("scan", "--session", path), ("scan", "--retention"),
        ("run",), ("init", "--yes"), ("init", "--dry-run"), ("restore", "--all"),
        ("pin", "00000003"), ("relieve", "s"), ("archive", "s"), ("restore", "00000003"),
        ("show", "00000003"), ("show", "--search", "text"), ("show", "s", "--search", "text"),
        ("history",), ("history", "--events"), ("history", "--follow"),
        ("archive", "--list"), ("scan", "--retention", "--dry-run"), ("store", "purge", "--yes"),
        ("store", "backup", world.base / "copy.db"),
    ):  # fmt: skip
        result = program(*words)
        message = result.stderr.decode()

        assert (words, result.returncode) == (words, 7)
        assert f"{world.state}: there is no store, but 2 sessions have placeholders" in message
        assert "of one (4): nothing was touched" in message
        assert "state_dir" in message
        assert "store restore FILE" in message
        assert "`brainsurgeon scan --new-store` begins a new store" in message
    assert error_line(program("scan")).startswith("brainsurgeon: ")
    assert path.read_bytes() == before
    assert not (world.state / "store.db").exists()
    assert not (world.base / "copy.db").exists()
    assert figures(world) == 4
    for words in (("doctor",), ("status", "--check")):
        said = program(*words).stdout.decode()
        assert "there is no store" in said
        assert "`brainsurgeon scan --new-store` begins a new store" in said
        assert "first scan" not in said
    assert program("show", "s").stdout == before  # it needs no store


@pytest.mark.parametrize("command", ["scan", "run", "init"])
def test_new_store_is_begun_if_the_user_says_so(world, command):
    """The alarm stays with the new store, and ends when the former one is back."""
    extract(world)
    world.close()
    former = world.state.rename(world.base / "former")
    if command == "run":
        daemon = DaemonProcess(world, ("run", "--new-store"))
        daemon.wait_for("scan_finished")
        assert daemon.stop()[1] == 0
    else:
        words = ("init", "--yes") if command == "init" else ("scan",)
        assert program_for(world)(*words, "--new-store").returncode == 0
        assert program_for(world)("scan").returncode == 0
    assert figures(world) == 3

    shutil.rmtree(world.state)
    former.rename(world.state)
    assert figures(world) == 0
    assert program_for(world)("scan").returncode == 0


def test_expired_values_are_reported_until_placeholders_are_gone(world):
    """A tombstone whose placeholder stands is counted without a further scan."""
    path = extract(world)
    assert figures(world) == 0
    rows = [row for (row,) in sql(world, "SELECT id FROM extractions ORDER BY id")]
    with world.store.transaction():
        world.store.expiry.delete([(row, "for the test") for row in rows[:2]], world.clock())
    assert figures(world) == 2
    world.scan()
    assert figures(world) == 2
    path.unlink()
    world.scan()
    with world.store.transaction():
        world.store.sessions.record_missing([(1, world.clock())])
    assert figures(world) == 0


def test_values_in_sessions_from_elsewhere_are_reported(world):
    """A copied session with placeholders of another store is counted once a scan has seen it."""
    path = extract(world)
    lose_directory(world)
    data = path.read_bytes()
    path.unlink()
    extract(world, 1, "own.jsonl")
    assert figures(world) == 0
    world.put("s.jsonl", data.replace(b"11111111-0000", b"22222222-0000"))
    world.scan()
    # Equal ids of entries: only the first value is in this store, in another session.
    assert figures(world) in (2, 3)
    (world.directory / "s.jsonl").unlink()
    world.scan()
    assert figures(world) == 0


def test_printed_placeholders_are_no_trouble(world):
    """Placeholders that a tool printed or a user typed hinder no new store and raise no alarm."""
    conversation = Conversation()
    conversation.user("[[extracted-00000009]]")
    conversation.turn("[[extracted-deadbeef]]")
    conversation.turn("see [[extracted-00000007]]")
    world.put("s.jsonl", conversation.bytes())

    assert program_for(world)("scan").returncode == 0
    assert figures(world) == 0
    findings = json_output(program_for(world)("doctor", "--json"))["findings"]
    assert [one["level"] for one in findings if "look like" in one["what"]] == ["warning"]


def test_printed_placeholder_of_a_stored_value_is_no_trouble(world):
    """A whole placeholder that a tool prints is harmless while its value is stored."""
    extract(world, 1)
    conversation = Conversation("33333333-0000-4000-8000-000000000001")
    conversation.turn("other")
    conversation.turn("other")
    conversation.turn("[[extracted-00000003]]", call="call_2")
    world.put("printed.jsonl", conversation.bytes())
    world.scan()

    assert figures(world) == 0


def test_scan_of_a_grown_session_keeps_the_count_of_lost_values(world):
    """The number stays right when a session grows and only its new end is read."""
    world.kept = Transcripts()
    conversation = Conversation()
    for number in range(3):
        conversation.turn(f"{number}" * 3000)
    for number in range(400):
        conversation.user()
        conversation.assistant(f"kept {number} " + "k" * 900)
    path = world.put("s.jsonl", conversation.bytes())
    assert world.scan(keep_recent=0).values_extracted == 3
    lose_directory(world)
    world.scan(keep_recent=0)
    assert world.store.files.count_lost() == 3

    for _ in range(2):
        count = len(conversation.lines)
        conversation.turn("more")
        world.put("s.jsonl", path.read_bytes() + b"".join(map(dump, conversation.lines[count:])))
        world.scan(keep_recent=0)
        assert world.store.files.count_lost() == 3


def test_values_of_a_database_and_of_archives_are_counted(tmp_path):
    """Placeholders in an agent's database and archived turns need their store, too."""
    world = ClawWorld(tmp_path)
    assert world.scan(keep_recent=0).values_extracted
    number = len(world.placeholders())
    lose_directory(world)
    result = program_for(world)("scan")
    world.close()

    assert number
    assert result.returncode == 7
    assert "placeholders" in result.stderr.decode() or "placeholder" in result.stderr.decode()


def test_archived_turns_without_their_store_are_lost(world):
    """An archive whose store is missing counts as a value that cannot be restored."""
    conversation = Conversation()
    for number in range(8):
        conversation.turn(f"{number}" * 3000)
    world.put("s.jsonl", conversation.bytes())
    world.scan(enabled=False)
    done = archive(world.settings(), world.store, "s", clock=world.clock, turns=(1, 4), note=None)
    assert done.archived
    lose_directory(world)
    state = status(world.settings(), world.no_store, world.clock())
    assert state.store.values_lost
    assert program_for(world)("scan").returncode == 7
    world.scan()
    assert world.store.files.count_lost() == state.store.values_lost


def test_daemon_that_loses_its_store_names_the_ways_out(world):
    """Its last message says how to get the store back or to begin a new one."""
    extract(world)
    world.close()
    daemon = DaemonProcess(world, scan_interval_seconds=1, watch=False)
    daemon.wait_for("scan_finished")
    shutil.move(world.state, world.base / "former")
    code = daemon.process.wait(60)
    [failure] = daemon.logged("daemon_failed")

    assert code == 7
    assert "scan --new-store" in failure["reason"]
    assert "Run the command again" not in failure["reason"]
    again = DaemonProcess(world)
    assert again.process.wait(60) == 7
    assert "scan --new-store" in again.logged("daemon_failed")[0]["reason"]


def test_store_of_an_earlier_program_is_completed(world):
    """A store without the newest table is read as it is, completed by a writer, and copied."""
    extract(world)
    world.close()
    with closing(sqlite3.connect(world.state / "store.db")) as connection:
        for table in ADDED:
            connection.execute(f"DROP TABLE {table}")
    with open_to_read(str(world.state)) as store:
        assert store.files.count_lost() == 0
    backup.write_copy(str(world.state), str(world.base / "copy.db"))
    with open_store(str(world.state)) as store:
        assert store.files.count_lost() == 0
    assert [sql(world, f"SELECT count(*) FROM {table}") for table in ADDED] == [[(0,)]] * len(ADDED)
    assert world.scan(keep_recent=0).files_unchanged == 1


def test_every_trouble_of_status_is_an_error_of_doctor(world, conversation):
    """`doctor` ends with 1 whenever `status --check` does, and with the same troubles."""
    conversation.turn()
    world.put("s.jsonl", conversation.bytes())
    world.scan()
    sql(world, "UPDATE files SET outcome = 'failed', reason = 'torn'")
    settings = world.settings(enabled=False, signals={"on_signal": ["/no/such/program"]})
    troubles = check(status(settings, world.store, world.clock()), world.clock())
    errors = [one.what for one in doctor(settings, world.store) if one.level == "error"]
    [counts] = [one.value for one in metrics(settings, world.store) if one.name == "troubles"]

    assert troubles == [
        "nothing is extracted: enabled = false",
        "signals.on_signal: /no/such/program cannot be found or executed",
        "1 session failed",
    ]
    assert errors == troubles
    assert {kind: number for kind, number in counts.items() if number} == {
        "disabled": 1, "programs": 1, "failed_sessions": 1,
    }  # fmt: skip
