"""What goes wrong in silence: monitors are told of it without anybody asking `doctor`."""

import secrets
import shutil

import pytest
import structlog
from structlog.testing import capture_logs

from brainsurgeon.daemon import _Daemon
from brainsurgeon.errors import StoppedError
from brainsurgeon.operations.status import check, metrics, status
from brainsurgeon.store import extractions as blobs
from building.claw import GATEWAY, Claw, ClawWorld
from building.processes import DaemonProcess, json_output, program_for
from building.world import Conversation, sql

VALUES = 7


def told(world, **settings):
    program = program_for(world, **settings)
    done = program("status", "--check", "--json", "--max-age", "999999999")
    line = program("status", "--check", "--max-age", "999999999")
    troubles = json_output(done)["troubles"]
    metrics = program("status", "--format", "prometheus").stdout.decode().splitlines()

    assert done.returncode == line.returncode == (1 if troubles else 0)
    assert all(trouble in line.stdout.decode() for trouble in troubles)
    figures = (one.removeprefix("brainsurgeon_").split() for one in metrics if one[0] != "#")
    return troubles, {name: float(number) for name, number in figures}


def run(world, event="values_damaged", **settings):
    """Let the daemon do a retention run; give the events of a name in its log."""
    structlog.reset_defaults()
    with capture_logs() as logs:
        _Daemon(None, world.settings(**settings), world.store)._run_retention()
    assert any(entry["event"] == "retention_finished" for entry in logs)
    return [entry for entry in logs if entry["event"] == event]


@pytest.fixture
def stored(world):
    """Store some values, and sweep and check them once; give the rows in which they stand."""
    talk = Conversation()
    for number in range(VALUES):
        talk.turn(f"{number}" + secrets.token_hex(3000))
    world.put("s.jsonl", talk.bytes())
    world.scan(keep_recent=0)
    rows = [row for (row,) in sql(world, "SELECT id FROM blobs ORDER BY id")]
    assert len(rows) == VALUES
    assert [run(world) for _ in range(2)] == [[], []]
    return rows


# --- values --------------------------------------------------------------------------------------


def test_a_damaged_value_is_told_after_the_next_retention_run(world, stored):
    """By `status --check`, by a metric and in the log, until it is whole or gone again."""
    [(whole,)] = sql(world, "SELECT data FROM blobs WHERE id = ?", (stored[2],))
    sql(world, "UPDATE blobs SET data = x'00' WHERE id = ?", (stored[2],))

    assert run(world)[0]["values"] == 1
    assert run(world)[0]["log_level"] == "error"
    troubles, figures = told(world)
    assert troubles == ["1 stored value damaged: see `doctor`"]
    assert figures["damaged_values"] == 1
    assert b"trouble    1 stored value damaged" in program_for(world)("status").stdout

    sql(world, "UPDATE blobs SET data = ? WHERE id = ?", (whole, stored[2]))
    assert run(world) == []
    assert told(world)[0] == []
    assert told(world)[1]["damaged_values"] == 0


def test_a_missing_value_counts_as_damaged(world, stored):
    """A row that is gone leaves nothing that could be read wrong: it is told all the same."""
    sql(world, "DELETE FROM blobs WHERE id = ?", (stored[3],))

    assert run(world)[0]["values"] == 1


def test_each_run_checks_some_values_and_the_next_goes_on(world, stored, monkeypatch):
    """After as many runs as it takes all were checked, and then it begins again."""
    monkeypatch.setattr(blobs, "CHECKED", 3)
    sql(world, "UPDATE blobs SET data = x'00' WHERE id IN (?, ?)", (stored[1], stored[6]))

    assert [run(world)[-1]["values"] for _ in range(3)] == [1, 1, 2]
    sql(world, "UPDATE blobs SET data = x'00' WHERE id = ?", (stored[0],))
    run(world)
    assert world.store.blobs.count_damaged() == 3


def test_a_run_stops_checking_after_so_many_bytes(world, stored, monkeypatch):
    """One value at least is checked in each run, however large, so that every one has its turn."""
    monkeypatch.setattr(blobs, "CHECKED_BYTES", 1)
    sql(world, "UPDATE blobs SET data = x'00' WHERE id = ?", (stored[2],))

    assert [len(run(world)) for _ in range(VALUES)] == [0, 0, 1, 1, 1, 1, 1]


def test_a_value_is_first_checked_by_the_second_run_after_it(world, stored):
    """Reading back what was just written proves nothing: it costs every first scan a tenth."""
    talk = Conversation()
    talk.turn(secrets.token_hex(3000))
    world.put("later.jsonl", talk.bytes())
    world.scan(keep_recent=0)
    sql(world, "UPDATE blobs SET data = x'00' WHERE id > ?", (stored[-1],))

    assert [len(run(world)) for _ in range(2)] == [0, 1]


def test_a_check_that_was_stopped_is_made_by_the_next_run(world, stored):
    """It ends with the daemon, at once, and forgets nothing."""
    sql(world, "UPDATE blobs SET data = x'00' WHERE id = ?", (stored[0],))
    run(world)

    def stop():
        raise StoppedError

    with pytest.raises(StoppedError):
        world.store.blobs.check(stop)
    assert world.store.blobs.count_damaged() == 1


def test_a_value_on_a_damaged_page_is_one_that_is_damaged(world, stored):
    """Where SQLite itself cannot read a value the others are checked all the same."""
    [(data,)] = sql(world, "SELECT data FROM blobs WHERE id = ?", (stored[3],))
    path = world.state / "store.db"
    page = path.read_bytes().index(data[:500]) // 4096
    world.close()
    with open(path, "r+b") as file:
        file.seek(page * 4096)
        file.write(bytes(4096))
    events = run(world)

    assert events[0]["values"] == 1


# --- sessions ------------------------------------------------------------------------------------


def test_a_session_blocked_for_a_day_is_told_with_the_reason(world, conversation):
    """By `status --check`, by a metric and in the log, until it changes or comes free."""
    conversation.turn()
    conversation.user("are you there?")
    path = world.put("s.jsonl", conversation.bytes())
    patient = {"abandoned_after_seconds": 10**7}
    world.scan(**patient)
    world.scan(**patient)
    assert told(world, **patient)[0] == []
    assert run(world, "session_blocked", **patient) == []

    sql(world, "UPDATE files SET first_seen = first_seen - 90000")
    troubles, figures = told(world, **patient)
    [event] = run(world, "session_blocked", **patient)
    why = "the last turn is open: a user message"
    assert troubles == [f"{path}: blocked for more than a day, {why}"]
    assert figures["blocked_sessions"] == 1
    assert (event["path"], event["reason"], event["log_level"]) == (str(path), why, "warning")
    assert f"trouble    {troubles[0]}" in program_for(world)("status").stdout.decode()

    world.scan(abandoned_after_seconds=60)
    assert told(world)[0] == []


def test_the_reason_is_the_one_of_today(world, conversation):
    """A session that was restless when it was first seen, and then stayed open, says the latter."""
    conversation.turn()
    conversation.user("are you there?")
    world.put("s.jsonl", conversation.bytes(), age=1)
    patient = {"abandoned_after_seconds": 10**7}
    world.scan(**patient, quiet_seconds=3600)
    sql(world, "UPDATE files SET first_seen = first_seen - 90000")
    world.scan(**patient)

    assert "the last turn is open" in told(world, **patient)[0][0]


BLOCKED = (
    "INSERT INTO session_pending_inputs (input_id, session_key, session_id, idempotency_key,"
    " run_id, request_hash, message_json, lifecycle_generation, state, accepted_at)"
    " SELECT 'i', session_key, session_id, 'k', 'r', 'h', '{}', 'g', 'queued', 9000000000000000"
    f" FROM session_windows WHERE session_id = '{GATEWAY}'"
)
LEFT = f"UPDATE session_windows SET agent_harness_id = 'codex' WHERE session_id = '{GATEWAY}'"


@pytest.mark.parametrize(
    ("change", "reason"), [(BLOCKED, "a message waits to be answered"), (LEFT, None)]
)
def test_a_session_in_a_database_is_told_if_something_waits_there(tmp_path, change, reason):
    """A queued message blocks; what the agent keeps elsewhere, or no more, is no trouble."""
    world = ClawWorld(tmp_path)
    world.claw.sql(change)
    world.scan()
    world.later(90_000)
    world.scan()
    blocked = status(world.settings(), world.store, world.clock.now).blocked
    world.close()

    assert blocked.get(f"{world.claw.path}/{GATEWAY}") == reason


# --- roots and databases -------------------------------------------------------------------------


def logged(world, **settings):
    """Start the daemon, and give what it logs of places that it cannot use, once."""
    daemon = DaemonProcess(world, scan_interval_seconds=1, **settings)
    try:
        daemon.wait_for("root_unreadable", level="warning")
        daemon.wait_for("scan_finished", count=3)
        return [(one["path"], one["reason"]) for one in daemon.logged("root_unreadable")
                if one["level"] == "warning"]  # fmt: skip
    finally:
        daemon.kill()


def empty(world):
    """Take everything out of the root, as when its disk is not mounted."""
    shutil.rmtree(world.root)
    world.root.mkdir()


def link(world):
    world.root.symlink_to(world.root.rename(world.base / "elsewhere"))


def missing(world):
    shutil.rmtree(world.root)


def no_directory(world):
    shutil.rmtree(world.root)
    world.root.write_text("")


@pytest.mark.parametrize(
    ("befall", "why"),
    [
        (empty, "it is empty: is its disk mounted?"),
        (link, "a symbolic link: name the directory that it leads to"),
        (missing, "no such directory"),
        (no_directory, "Not a directory"),
    ],
)
def test_a_doubtful_root_is_told(world, conversation, befall, why):
    """One that is empty, a link, missing or no directory: by all three, though scans go on."""
    conversation.turn()
    world.put("s.jsonl", conversation.bytes())
    world.scan()
    assert told(world)[1]["doubtful_roots"] == 0
    befall(world)
    troubles, figures = told(world)

    [trouble] = [one for one in troubles if why in one]
    assert str(world.root) in trouble
    assert figures["doubtful_roots"] == 1
    assert logged(world) == [(str(world.root), why)]


def test_a_forbidden_root_is_told(unprivileged_world):
    """One that may not be listed is named with what the system says."""
    world = unprivileged_world
    world.scan()
    world.root.chmod(0o300)
    now = status(world.settings(), world.store, world.clock())

    assert "Permission denied" in check(now, world.clock(), max_age=900)[0]
    assert [one.value for one in metrics(world.settings(), world.store)
            if one.name == "doubtful_roots"] == [1]  # fmt: skip


def ruin(path):
    path.write_bytes(b"x" * 100 + path.read_bytes()[100:])


def replace(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("befall", [ruin, replace])
def test_a_database_that_cannot_be_read_is_told(tmp_path, world, befall):
    """By `status --check`, by a metric and in the log, each one by its path."""
    paths = [Claw(world.base, agent=agent).path for agent in ("main", "other")]
    world.scan()
    assert told(world)[1]["unreadable_databases"] == 0
    befall(paths[1])
    troubles, figures = told(world)

    assert any(str(paths[1]) in one for one in troubles)
    assert figures["unreadable_databases"] == 1
    assert [path for path, _ in logged(world)] == [str(paths[1])]
    befall(paths[0])
    assert any("(and 1 more)" in one for one in told(world)[0])
    assert told(world)[1]["unreadable_databases"] == 2
