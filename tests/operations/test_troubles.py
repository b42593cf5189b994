"""Troubles reported by `status --check`, metrics and the log: damage, blocked sessions, roots."""

import os
import secrets
import shutil
import time

import pytest
import structlog
from structlog.testing import capture_logs

from brainsurgeon.daemon import _Daemon
from brainsurgeon.errors import StoppedError
from brainsurgeon.operations.doctor import doctor
from brainsurgeon.operations.status import check, metrics, status
from brainsurgeon.render import runs
from brainsurgeon.store import extractions as blobs
from building.claw import GATEWAY, Claw, ClawWorld
from building.exchange import begin_interrupted_rewrite
from building.processes import DaemonProcess, json_output, program_for
from building.world import Conversation, put_session, sql

VALUES = 7


def check_and_metrics(world, **settings):
    """Return the troubles of `status --check` and the metrics by name."""
    program = program_for(world, **settings)
    check = program("status", "--check", "--json", "--max-age", "999999999")
    text = program("status", "--check", "--max-age", "999999999")
    troubles = json_output(check)["troubles"]
    lines = program("status", "--format", "prometheus").stdout.decode().splitlines()

    assert check.returncode == text.returncode == (1 if troubles else 0)
    assert all(trouble in text.stdout.decode() for trouble in troubles)
    samples = (line.removeprefix("brainsurgeon_").split() for line in lines if line[0] != "#")
    return troubles, {name: float(number) for name, number in samples}


def run_retention(world, event="values_damaged", **settings):
    """Run retention as the daemon does and return the log entries of an event."""
    structlog.reset_defaults()
    with capture_logs() as logs:
        _Daemon(None, world.settings(**settings), world.store)._run_retention()
    assert any(entry["event"] == "retention_finished" for entry in logs)
    return [entry for entry in logs if entry["event"] == event]


@pytest.fixture
def blob_ids(world):
    """Store some values, run retention twice, and return the ids of their blobs."""
    talk = Conversation()
    for number in range(VALUES):
        talk.turn(f"{number}" + secrets.token_hex(3000))
    world.put("s.jsonl", talk.bytes())
    world.scan(keep_recent=0)
    rows = [row for (row,) in sql(world, "SELECT id FROM blobs ORDER BY id")]
    assert len(rows) == VALUES
    assert [run_retention(world) for _ in range(2)] == [[], []]
    return rows


# --- values --------------------------------------------------------------------------------------


def test_damaged_value_is_reported_after_retention(world, blob_ids):
    """`status --check`, a metric and the log report a damaged value until it is intact again."""
    [(whole,)] = sql(world, "SELECT data FROM blobs WHERE id = ?", (blob_ids[2],))
    sql(world, "UPDATE blobs SET data = x'00' WHERE id = ?", (blob_ids[2],))

    assert run_retention(world)[0]["values"] == 1
    assert run_retention(world)[0]["log_level"] == "error"
    troubles, figures = check_and_metrics(world)
    assert troubles == ["1 stored value damaged or lost: see `doctor`"]
    assert figures["damaged_values"] == 1
    assert b"trouble    1 stored value damaged" in program_for(world)("status").stdout

    sql(world, "UPDATE blobs SET data = ? WHERE id = ?", (whole, blob_ids[2]))
    assert run_retention(world) == []
    troubles, figures = check_and_metrics(world)
    assert (troubles, figures["damaged_values"]) == ([], 0)


def test_missing_blob_counts_as_damaged(world, blob_ids):
    """A value whose blob row was deleted is reported as damaged."""
    sql(world, "DELETE FROM blobs WHERE id = ?", (blob_ids[3],))

    assert run_retention(world)[0]["values"] == 1


def test_retention_checks_values_in_rotation(world, blob_ids, monkeypatch):
    """Each run checks a limited number of values, the next continues, and then all start again."""
    monkeypatch.setattr(blobs, "CHECKED", 3)
    sql(world, "UPDATE blobs SET data = x'00' WHERE id IN (?, ?)", (blob_ids[1], blob_ids[6]))

    assert [run_retention(world)[-1]["values"] for _ in range(3)] == [1, 1, 2]
    sql(world, "UPDATE blobs SET data = x'00' WHERE id = ?", (blob_ids[0],))
    run_retention(world)
    assert world.store.blobs.count_damaged() == 3


def test_retention_checks_at_least_one_value_a_run(world, blob_ids, monkeypatch):
    """A run stops checking after a number of bytes but checks one value of any size."""
    monkeypatch.setattr(blobs, "CHECKED_BYTES", 1)
    sql(world, "UPDATE blobs SET data = x'00' WHERE id = ?", (blob_ids[2],))

    assert [len(run_retention(world)) for _ in range(VALUES)] == [0, 0, 1, 1, 1, 1, 1]


def test_value_is_first_checked_by_the_second_retention(world, blob_ids):
    """A value is not checked by the first run after its scan, since that would slow down scans."""
    talk = Conversation()
    talk.turn(secrets.token_hex(3000))
    world.put("later.jsonl", talk.bytes())
    world.scan(keep_recent=0)
    sql(world, "UPDATE blobs SET data = x'00' WHERE id > ?", (blob_ids[-1],))

    assert [len(run_retention(world)) for _ in range(2)] == [0, 1]


def test_stopped_check_keeps_the_known_damage(world, blob_ids):
    """A check stopped with the daemon ends at once and forgets no damaged value."""
    sql(world, "UPDATE blobs SET data = x'00' WHERE id = ?", (blob_ids[0],))
    run_retention(world)

    def stop():
        raise StoppedError

    with pytest.raises(StoppedError):
        world.store.blobs.check(stop)
    assert world.store.blobs.count_damaged() == 1


def test_value_on_a_damaged_page_counts_as_damaged(world, blob_ids):
    """A value that SQLite cannot read counts as damaged, and the others are still checked."""
    [(data,)] = sql(world, "SELECT data FROM blobs WHERE id = ?", (blob_ids[3],))
    path = world.state / "store.db"
    page = path.read_bytes().index(data[:500]) // 4096
    world.close()
    with open(path, "r+b") as file:
        file.seek(page * 4096)
        file.write(bytes(4096))
    events = run_retention(world)

    assert events[0]["values"] == 1


# --- sessions ------------------------------------------------------------------------------------


def test_session_blocked_for_a_day_is_reported(world, conversation):
    """`status --check`, a metric and the log report it with the reason until it is scanned."""
    conversation.turn()
    conversation.user("are you there?")
    path = world.put("s.jsonl", conversation.bytes())
    patient = {"abandoned_after_seconds": 10**7}
    for _ in range(2):
        world.scan(**patient)
    assert check_and_metrics(world, **patient)[0] == []
    assert run_retention(world, "session_blocked", **patient) == []

    sql(world, "UPDATE files SET first_seen = first_seen - 90000")
    troubles, figures = check_and_metrics(world, **patient)
    [event] = run_retention(world, "session_blocked", **patient)
    why = "the last turn is open: a user message"
    assert troubles == [f"{path}: blocked for more than a day, {why}"]
    assert figures["blocked_sessions"] == 1
    assert (event["path"], event["reason"], event["log_level"]) == (str(path), why, "warning")
    assert f"trouble    {troubles[0]}" in program_for(world)("status").stdout.decode()

    world.scan(abandoned_after_seconds=60)
    assert check_and_metrics(world)[0] == []


def test_blocked_session_is_reported_with_its_current_reason(world, conversation):
    """The reason is that of the last scan, not that of the scan that first saw the session."""
    conversation.turn()
    conversation.user("are you there?")
    world.put("s.jsonl", conversation.bytes(), age=1)
    patient = {"abandoned_after_seconds": 10**7}
    world.scan(**patient, quiet_seconds=3600)
    sql(world, "UPDATE files SET first_seen = first_seen - 90000")
    world.scan(**patient)

    assert "the last turn is open" in check_and_metrics(world, **patient)[0][0]


QUEUED_MESSAGE = (
    "INSERT INTO session_pending_inputs (input_id, session_key, session_id, idempotency_key,"
    " run_id, request_hash, message_json, lifecycle_generation, state, accepted_at)"
    " SELECT 'i', session_key, session_id, 'k', 'r', 'h', '{}', 'g', 'queued', 9000000000000000"
    f" FROM session_windows WHERE session_id = '{GATEWAY}'"
)
OTHER_HARNESS = (
    f"UPDATE session_windows SET agent_harness_id = 'codex' WHERE session_id = '{GATEWAY}'"
)


@pytest.mark.parametrize(
    ("change", "reason"),
    [(QUEUED_MESSAGE, "a message waits to be answered"), (OTHER_HARNESS, None)],
)
def test_blocked_database_session_is_reported_if_input_waits(tmp_path, change, reason):
    """A queued message is reported; a session that another harness continues is not."""
    world = ClawWorld(tmp_path)
    world.claw.sql(change)
    world.scan()
    world.later(90_000)
    world.scan()
    blocked = status(world.settings(), world.store, world.clock.now).blocked
    world.close()

    assert blocked.get(f"{world.claw.path}/{GATEWAY}") == reason


# --- roots and databases -------------------------------------------------------------------------


def unreadable_roots_logged(world, **settings):
    """Start the daemon and return the places that it logs as unreadable in its first scans."""
    daemon = DaemonProcess(world, scan_interval_seconds=1, **settings)
    try:
        daemon.wait_for("root_unreadable", level="warning")
        daemon.wait_for("scan_finished", count=3)
        entries = daemon.logged("root_unreadable")
        warnings = [entry for entry in entries if entry["level"] == "warning"]
        return [(entry["path"], entry["reason"]) for entry in warnings]
    finally:
        daemon.kill()


def empty_root(world):
    """Empty the root, as when its disk is not mounted."""
    shutil.rmtree(world.root)
    world.root.mkdir()


def replace_by_link(world):
    world.root.symlink_to(world.root.rename(world.base / "elsewhere"))


def delete_root(world):
    shutil.rmtree(world.root)


def replace_by_file(world):
    shutil.rmtree(world.root)
    world.root.write_text("")


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (empty_root, "the directory is empty: is its disk mounted?"),
        (replace_by_link, "the root is a symbolic link: configure its target instead"),
        (delete_root, "no such directory"),
        (replace_by_file, "Not a directory"),
    ],
)
def test_unusable_root_is_reported(world, conversation, damage, why):
    """A root that is empty, a link, missing or a file is reported by check, metric and log."""
    conversation.turn()
    world.put("s.jsonl", conversation.bytes())
    world.scan()
    assert check_and_metrics(world)[1]["doubtful_roots"] == 0
    damage(world)
    troubles, figures = check_and_metrics(world)

    [trouble] = [trouble for trouble in troubles if why in trouble]
    assert str(world.root) in trouble
    assert figures["doubtful_roots"] == 1
    assert b"no session file" not in program_for(world)("status").stdout
    assert unreadable_roots_logged(world) == [(str(world.root), why)]


# Only root can make files that belong to another user.
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_status_and_doctor_agree_about_leases(unprivileged_world, conversation):
    """A file of another user, such as one from a container, says nothing about leases."""
    world = unprivileged_world
    path = put_session(world, conversation)
    user = os.geteuid()
    for name in ("a.jsonl", "z.jsonl"):
        shutil.copy(path, path.parent / name)
    os.seteuid(0)
    for name in ("a.jsonl", "z.jsonl"):
        os.chown(path.parent / name, 0, 0)
        os.chmod(path.parent / name, 0o644)
    os.seteuid(user)
    settings = world.settings()
    [root] = status(settings, world.store, time.time()).places.roots

    assert root.protocol == "leases"
    assert any("leases work" in finding.what for finding in doctor(settings, world.store))
    path.unlink()
    [root] = status(settings, world.store, time.time()).places.roots
    assert root.protocol == "unknown: no session file that this user owns and can read"


def test_root_without_permission_is_reported(unprivileged_world):
    """A root that may not be listed is reported with the system's error."""
    world = unprivileged_world
    world.scan()
    world.root.chmod(0o300)
    now = status(world.settings(), world.store, world.clock())

    assert "Permission denied" in check(now, world.clock(), max_age=900)[0]
    figures = {figure.name: figure.value for figure in metrics(world.settings(), world.store)}
    assert figures["doubtful_roots"] == 1


def corrupt(path):
    path.write_bytes(b"x" * 100 + path.read_bytes()[100:])


def replace_by_directory(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [corrupt, replace_by_directory])
def test_unreadable_database_is_reported(tmp_path, world, damage):
    """`status --check`, a metric and the log report each unreadable database by its path."""
    world.state = world.base / "ours"  # `state` belongs to OpenClaw
    paths = [Claw(world.base, agent=agent).path for agent in ("main", "other")]
    world.scan()
    assert check_and_metrics(world)[1]["unreadable_databases"] == 0
    damage(paths[1])
    troubles, figures = check_and_metrics(world)

    assert any(str(paths[1]) in trouble for trouble in troubles)
    assert figures["unreadable_databases"] == 1
    assert [path for path, _ in unreadable_roots_logged(world)] == [str(paths[1])]
    damage(paths[0])
    assert any("(and 1 more)" in trouble for trouble in check_and_metrics(world)[0])
    assert check_and_metrics(world)[1]["unreadable_databases"] == 2


# --- runs ----------------------------------------------------------------------------------------


def problems(world, now, **settings):
    world.close()
    return tuple(check(status(world.settings(**settings), world.store, now), now, max_age=900))


def test_check_reports_an_old_last_run(world, pruned, clock):
    """The problem names the age of the last run and `--max-age`."""
    assert problems(world, clock() + 7300) == (
        "the last run was 2 h ago, more than --max-age 15 min",
    )


def test_check_does_not_count_a_scan_of_some_sessions_as_a_full_scan(world, conversation):
    """After a scan of one session only, the status says that no full scan is recorded."""
    path = put_session(world, conversation)
    world.scan(only=[str(path)], named=True, keep_recent=0)
    state = status(world.settings(), world.store, world.clock())

    assert len(state.runs) == 1
    assert check(state, world.clock(), max_age=900) == ["no full scan is recorded"]
    assert "full scan  never" in runs.status(state, world.clock(), "config.toml")


def test_check_reports_failures_missing_roots_and_disabling(world, pruned, clock):
    """A failed session, a missing root and `enabled = false` are one problem each."""
    sql(world, "UPDATE files SET outcome = 'failed', reason = 'torn'")
    assert problems(world, clock()) == ("1 session failed",)
    assert "nothing is extracted: enabled = false" in problems(world, clock(), enabled=False)
    world.root.rename(world.base / "elsewhere")
    assert any("agents" in problem for problem in problems(world, clock()))


# --- rewrites -------------------------------------------------------------------------------------


def test_only_a_rewrite_that_nobody_carries_out_is_shown(world):
    """It is shown unless a run holds the session's lock, and no alarm: the next run ends it."""
    path = world.put("s.jsonl", Conversation().bytes())
    world.scan()
    begin_interrupted_rewrite(world, path)
    [rewrite] = world.store.journal.open_rewrites()
    with world.store.lock(rewrite.session_id):
        troubles, samples = check_and_metrics(world)
        assert (troubles, samples["interrupted_rewrites"]) == ([], 0)
        assert world.scan(dry_run=True).interrupted == []
    with world.store.lock(rewrite.session_id + 1):  # of another session
        troubles, samples = check_and_metrics(world)
    assert (troubles, samples["interrupted_rewrites"]) == ([], 1)
    state = status(world.settings(), world.store, world.clock())
    what = f"{path}: a rewrite is unfinished; the next run finishes or undoes it"
    assert f"unfinished {what}" in runs.status(state, world.clock(), "config.toml").splitlines()
