"""One run over real sessions: what goes, what stays and why, and that nothing else moves."""

import itertools
import json
import os
import sqlite3
import time
from contextlib import closing

import pytest

from brainsurgeon.formats.openclaw import OpenClaw
from brainsurgeon.model.entries import KINDS, unnumbered
from brainsurgeon.model.reports import Watch
from brainsurgeon.operations.scan import scan
from brainsurgeon.operations.sessions import context
from brainsurgeon.operations.status import status
from brainsurgeon.render.formatting import as_json
from brainsurgeon.render.runs import report_json
from brainsurgeon.sessions import exchange, leases
from building.version_diff import parse, replaced_values
from building.world import (
    LONG_AGO,
    SAMPLES,
    Clock,
    Conversation,
    append,
    copy_tree,
    dump,
    entry_text,
    file_states,
    pin,
    read_entry,
    set_mtime,
    sql,
    value_at,
)

TRAPS = sorted(path.name for path in (SAMPLES / "traps").glob("*.jsonl"))


COUNTERS = {
    "files_seen", "files_unchanged", "files_scanned", "files_deferred", "files_failed",
    "sessions_changed", "entries_extracted", "values_extracted", "bytes_before", "bytes_after",
    "bytes_stored", "duration_seconds", "dry_run", "sessions",
}  # fmt: skip
SESSION_KEYS = {
    "session", "path", "format", "outcome", "reason", "entries_extracted", "values_extracted",
    "bytes_before", "bytes_after",
}  # fmt: skip


def only(report):
    assert len(report.sessions) == 1, report.sessions
    return report.sessions[0]


def deferred(world, **settings):
    """Scan, check that the one session was deferred and no file was touched, give the reason."""
    before = file_states(world.root)
    report = world.scan(**settings)

    assert (only(report).outcome, report.files_deferred) == ("deferred", 1)
    assert not report.failed
    assert file_states(world.root) == before
    return only(report).reason


@pytest.fixture
def clock(world):
    world.clock = Clock()
    return world.clock


@pytest.fixture
def session(world, conversation):
    """Give an idle session whose first tool result is old, and that result's id."""
    ident = conversation.turn()
    conversation.turn("y" * 2000)
    world.put("s.jsonl", conversation.bytes())
    return ident


def test_a_large_session_shrinks_by_a_third_and_more(world):
    """A real session of a megabyte loses at least 35 % where tool calls are triggers too."""
    path = world.copy("pi", "large-session.derived-v3.jsonl")
    before = path.read_bytes()
    report = world.scan(trigger_types=["thinking", "tool_result", "tool_call"])
    after = path.read_bytes()

    assert len(after) <= 0.65 * len(before)
    assert (report.bytes_before, report.bytes_after) == (len(before), len(after))
    assert all(parse(line) is not None for line in after.split(b"\n") if line)
    assert len(replaced_values(before, after)) == report.values_extracted


def test_only_the_swapped_values_of_real_sessions_differ(world):
    """Outside the swapped values every byte of every real session stays as its agent wrote it."""
    copy_tree(SAMPLES / "openclaw", world.root)
    world.copy("pi", "large-session.v1.jsonl")
    before = {path: path.read_bytes() for path in world.root.rglob("*") if path.is_file()}
    report = world.scan()
    swapped = {path: replaced_values(old, path.read_bytes()) for path, old in before.items()}
    touched = {str(path) for path, cuts in swapped.items() if cuts}

    assert sum(len(cuts) for cuts in swapped.values()) == report.values_extracted > 30
    assert touched == {done.path for done in report.sessions if done.outcome == "changed"}
    assert len(touched) == 4
    assert not any("trajectory" in path or "v1" in path for path in touched)
    for cuts in swapped.values():
        for _, token in cuts:
            assert len(json.loads(token)) > 500


def test_a_second_scan_writes_nothing(world):
    """A second scan of an unchanged tree leaves every file as it is and says so."""
    copy_tree(SAMPLES / "openclaw", world.root)
    copy_tree(SAMPLES / "traps", world.root / "traps" / "sessions")
    world.copy("pi", "large-session.derived-v3.jsonl")
    settings = {"trigger_types": list(KINDS), "keep_recent": 0}
    first = world.scan(**settings)
    before = file_states(world.root, directories=True)
    second = world.scan(**settings)

    assert first.sessions_changed > 10
    assert file_states(world.root, directories=True) == before
    assert (second.files_unchanged, second.files_scanned) == (second.files_seen, 0)
    assert (second.sessions_changed, second.values_extracted, second.sessions) == (0, 0, [])


def test_pristine_gives_back_every_byte_and_nanosecond(world):
    """What a scan took, `restore --all --pristine` gives back, with both times of each file."""
    copy_tree(SAMPLES / "openclaw", world.root)
    world.copy("pi", "large-session.derived-v3.jsonl")
    paths = sorted(world.root.rglob("*.jsonl"))
    for number, path in enumerate(paths):
        moment = time.time_ns() - LONG_AGO * 10**9
        os.utime(path, ns=(moment + number, moment + 7 * number))
        path.chmod(0o640)
    stats = {path: path.stat() for path in paths}
    originals = {path.name: path.read_bytes() for path in SAMPLES.rglob("*.jsonl")}
    report = world.scan(trigger_types=list(KINDS), keep_recent=1)
    pruned = {path: path.stat() for path in paths}
    world.restore_all(pristine=True)
    back = {path: path.stat() for path in paths}

    assert report.sessions_changed == 5
    for path, then in stats.items():
        for now in (pruned[path], back[path]):
            assert (now.st_atime_ns, now.st_mtime_ns) == (then.st_atime_ns, then.st_mtime_ns)
            assert (now.st_mode, now.st_uid, now.st_gid) == (then.st_mode, then.st_uid, then.st_gid)
        assert path.read_bytes() == originals[path.name]
    assert world.leftovers() == []


@pytest.mark.parametrize("settings", [{}, {"keep_recent": 0, "trigger_types": list(KINDS)}])
@pytest.mark.parametrize("name", TRAPS)
def test_a_trap_passes_a_scan_unharmed(world, name, settings):
    """A file with a trap in it loses nothing but recorded values, and gets them all back."""
    path = world.copy("traps", name)
    original = path.read_bytes()
    report = world.scan(**settings)
    swapped = replaced_values(original, path.read_bytes())
    world.restore_all(pristine=True)

    assert not report.failed
    assert len(swapped) == report.values_extracted
    assert path.read_bytes() == original


def test_all_traps_together_run_a_scan_unharmed(world):
    """One bad file never stops the rest: beside every trap the others are pruned and undone."""
    for name in TRAPS:
        world.copy("traps", name)
    report = world.scan(keep_recent=0)
    pruned = {name: (world.directory / name).read_bytes() for name in TRAPS}
    originals = {name: (SAMPLES / "traps" / name).read_bytes() for name in TRAPS}
    swapped = sum(len(replaced_values(originals[name], pruned[name])) for name in TRAPS)
    world.restore_all(pristine=True)

    assert (report.files_seen, report.files_failed) == (len(TRAPS), 0)
    assert swapped == report.values_extracted >= 15
    for name, original in originals.items():
        assert (world.directory / name).read_bytes() == original, name


def test_a_session_that_changed_too_recently_is_deferred(world, session, clock):
    """A session is left alone until it has been silent for `quiet_seconds`, to the second."""
    changed = set_mtime(world.directory / "s.jsonl", clock.now)
    clock.now = changed + 29

    assert deferred(world, quiet_seconds=30) == "changed 29 s ago; it must be unchanged for 30 s"

    clock.now = changed + 30

    assert world.scan(quiet_seconds=30).sessions_changed == 1


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        ("user", "a user message"),
        ("call", "a tool call"),
        ("result", "a tool result"),
        ("unstopped", "the assistant has not stopped"),
        ("torn", "the last line is torn"),
    ],
)
def test_an_open_turn_is_deferred_until_it_counts_as_abandoned(
    world, conversation, clock, ending, why
):
    """An open turn defers the session; silent for `abandoned_after_seconds` it counts as closed."""
    ident = conversation.turn()
    conversation.turn()
    if ending in ("call", "result"):
        conversation.user()
        conversation.call()
    if ending == "result":
        conversation.result("short")
    elif ending == "user":
        conversation.user()
    elif ending == "unstopped":
        conversation.user()
        conversation.assistant(stop=None)
    data = conversation.bytes() + (b'{"type":"message","id":"to' if ending == "torn" else b"")
    path = world.put("s.jsonl", data)
    changed = set_mtime(path, clock.now)
    clock.now = changed + 3599

    assert why in deferred(world)

    clock.now = changed + 3600
    report = world.scan()

    assert report.sessions_changed == 1
    assert entry_text(path, ident) == f"[[extracted-{ident}]]"
    assert path.read_bytes().endswith(data[-20:])


def test_the_sessions_of_a_migrated_agent_are_left_alone(world, session):
    """They stay as they are, with the reason; once the migration is undone, they are pruned."""
    path = world.root / "main" / "agent" / "openclaw-agent.sqlite"
    path.parent.mkdir()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE transcript_events (id INTEGER PRIMARY KEY)")
        database.execute("INSERT INTO transcript_events DEFAULT VALUES")
    before = file_states(world.root)
    report = world.scan()

    assert "SQLite" in only(report).reason
    assert (report.sessions_changed, report.failed) == (0, False)
    assert file_states(world.root) == before

    path.unlink()

    assert world.scan().sessions_changed == 1


def test_a_future_time_counts_from_when_it_was_first_seen(world, session, clock):
    """A file that claims to be of tomorrow is idle once it was seen unchanged long enough."""
    path = world.put("s.jsonl", (world.directory / "s.jsonl").read_bytes(), age=-86_400)

    assert "changed 0 s ago" in deferred(world, quiet_seconds=30)

    clock.now += 29

    assert "changed 29 s ago" in deferred(world, quiet_seconds=30)

    clock.now += 1
    mtime = path.stat().st_mtime_ns
    report = world.scan(quiet_seconds=30)

    assert report.sessions_changed == 1
    assert path.stat().st_mtime_ns == mtime


def test_a_session_that_somebody_leases_is_deferred(world, session):
    """A file that another pruner is replacing at this moment is tried again at the next run."""
    descriptor = os.open(world.directory / "s.jsonl", os.O_RDONLY)
    try:
        assert leases.take(descriptor)

        assert deferred(world)
    finally:
        os.close(descriptor)

    assert world.scan().sessions_changed == 1


@pytest.mark.parametrize("asked", ["restore", "pristine", "nothing"])
def test_what_waits_for_an_open_session_costs_no_write(world, pruned, conversation, clock, asked):
    """While somebody has it open, run after run writes nothing, beside it or in the store."""
    path = world.directory / "s.jsonl"
    clock.now += 5
    conversation.turn("z" * 2000)  # something to cut in any case
    world.put("s.jsonl", conversation.bytes() if asked == "nothing" else path.read_bytes())
    database = world.state / "store.db"
    with open(path, "rb"):
        if asked != "nothing":
            assert world.restore(pruned, pristine=asked == "pristine").pending
        clock.now += 5
        assert deferred(world) == "somebody has the file open"
        before = file_states(world.root, directories=True), database.stat().st_mtime_ns
        for _ in range(3):
            clock.now += 5
            assert deferred(world) == "somebody has the file open"
            assert (
                file_states(world.root, directories=True),
                database.stat().st_mtime_ns,
            ) == before

    assert world.scan().sessions_changed == 1


def test_requests_and_cuts_are_carried_out_in_one_rewrite(world, conversation, clock):
    """A put-back, a pin and new cuts are one replacement of the file."""
    first, second, third = (conversation.turn(letter * 2000) for letter in "xyz")
    path = world.put("s.jsonl", conversation.bytes())
    world.scan()
    conversation.turn()
    append(path, conversation.lines[-4:-1])
    pending = (world.restore(first).pending, pin(world, second, False).pending)
    append(path, conversation.lines[-1:])
    inode, lines = path.stat().st_ino, path.read_bytes().split(b"\n")
    clock.now = time.time() + 1
    report = world.scan()
    fresh = path.read_bytes().split(b"\n")
    changed = [json.loads(b)["id"] for a, b in zip(lines, fresh, strict=True) if a != b]
    done = only(report)

    assert pending == (True, True)
    assert path.stat().st_ino != inode
    assert (len(done.made.restorations), len(done.made.extracted)) == (1, 1)
    assert changed == [first, second, third]
    assert entry_text(path, first) == "x" * 2000
    assert value_at(fresh[7], "_extractable") is False
    assert world.scan().files_unchanged == 1


def reasons(report):
    return {kept.reason: kept.values for kept in only(report).plan.kept}


def test_a_session_with_too_little_to_gain_is_deferred(world, conversation):
    """A rewrite that frees less than `min_reclaim` is not made, in share or in bytes."""
    conversation.turn()
    for _ in range(40):
        conversation.turn("kept because it is short " * 15)
    conversation.turn()
    size = len(conversation.bytes())
    path = world.put("s.jsonl", conversation.bytes())
    gain = 2000 - len("[[extracted-00000003]]")

    assert deferred(world, min_reclaim="99%") == f"too little to gain ({gain:,} bytes)"
    assert deferred(world, min_reclaim=gain + 1) == f"too little to gain ({gain:,} bytes)"
    assert gain / size < 0.1
    assert world.scan(min_reclaim=gain + 1).files_unchanged == 1
    assert world.scan(min_reclaim=gain).sessions_changed == 1
    assert path.stat().st_size == size - gain


def test_what_is_forced_is_done_however_little_it_frees(world, conversation):
    """A forced value goes although the rewrite frees nothing, whatever its kind or length."""
    conversation.turn()
    conversation.user("hi", _extractable=True)
    path = world.put("s.jsonl", conversation.bytes())
    last = conversation.last
    report = world.scan(min_reclaim="50%")
    entry = json.loads(path.read_bytes().splitlines()[-1])

    assert (report.sessions_changed, report.values_extracted) == (1, 1)
    assert entry["message"]["content"] == f"[[extracted-{last}]]"
    assert entry["_extractable"] is True


def test_entries_whose_ids_stand_twice_are_left_alone(world, conversation):
    """Where readers would disagree on which entry an id names, neither goes, as is said."""
    conversation.turn("a" * 2000)
    for letter in "bc":
        conversation.turn(letter * 2000, ident="twice")
    conversation.turn("short")
    path = world.put("s.jsonl", conversation.bytes())
    report = world.scan()
    data = path.read_bytes()

    assert (b"a" * 2000 in data, b"b" * 2000 in data, b"c" * 2000 in data) == (False, True, True)
    assert report.values_extracted == 1
    assert reasons(report)["not extractable: its id occurs twice in the file"] == 2


def test_smaller_sessions_are_left_alone(world, session):
    """A session below `min_session_bytes` is skipped with the reason, untouched."""
    size = (world.directory / "s.jsonl").stat().st_size
    before = file_states(world.root)
    report = world.scan(min_session_bytes=size + 1)

    assert only(report).reason == "smaller than min_session_bytes"
    assert file_states(world.root) == before
    assert world.scan(min_session_bytes=size).sessions_changed == 1


@pytest.mark.parametrize(
    "pattern",
    ["agent:main", "agent:m*", "session:s", "session:s*", "*/main/sessions/*", "*/s.jsonl"],
)
def test_an_excluded_session_is_left_alone(world, session, pattern):
    """Globs of paths, agents and sessions in `exclude` keep what they name untouched."""
    before = file_states(world.root)
    report = world.scan(exclude=[pattern])

    assert only(report).reason == f"excluded by {pattern}"
    assert file_states(world.root) == before
    assert world.scan(exclude=["agent:other", "session:t", "*/other/*"]).sessions_changed == 1


def test_an_agent_in_another_layout_is_excluded_by_name(world, conversation):
    """`agent:<format>:<directory>` names the agent of a session that stands elsewhere."""
    conversation.turn()
    conversation.turn()
    (world.root / "logs").mkdir()
    path = world.put("../../logs/s.jsonl", conversation.bytes())
    report = world.scan(exclude=["agent:openclaw:logs"])

    assert report.sessions_changed == 0
    assert path.read_bytes() == conversation.bytes()


def test_a_run_over_one_session_leaves_the_others(world, session, conversation):
    """Only the session that was named is looked at; the others are not even counted."""
    other = world.put("t.jsonl", conversation.bytes())
    before = other.stat()
    report = world.scan(only={str(world.directory / "s.jsonl")})

    assert (report.files_seen, report.sessions_changed) == (1, 1)
    assert other.read_bytes() == conversation.bytes()
    assert other.stat().st_ino == before.st_ino


def test_disabled_changes_nothing(world, session):
    """With `enabled = false` a scan looks and changes nothing."""
    before = file_states(world.root)
    report = world.scan(enabled=False)

    assert (report.files_scanned, report.sessions_changed) == (1, 0)
    assert file_states(world.root) == before
    assert world.scan().sessions_changed == 1


def test_an_unterminated_last_line_is_never_cut(world, conversation):
    """The last line stays as it is while it has no newline, and goes once it has one."""
    conversation.turn()
    conversation.assistant("z" * 2000)
    data = conversation.bytes().removesuffix(b"\n")
    path = world.put("s.jsonl", data)
    settings = {"keep_recent": 0, "trigger_types": list(KINDS)}
    first = world.scan(**settings)

    assert first.values_extracted == 1
    assert path.read_bytes().endswith(data[-2000:])

    path.write_bytes(path.read_bytes() + b"\n")
    world.clock = Clock(time.time() + 5)

    assert world.scan(**settings).values_extracted == 1
    assert b"z" * 2000 not in path.read_bytes()


def test_other_rules_make_every_file_due_again(world, session):
    """A file that did not change is looked at again as soon as a rule did."""
    rules = [
        {"min_value_length": 5000},
        {"min_value_length": 5000, "keep_recent": 4},
        {"min_value_length": 5000, "exclude": ["tool:x"]},
        {"min_value_length": 5000, "min_session_bytes": 1},
        {"trigger_types": ["thinking"]},
    ]
    for settings in rules:
        assert world.scan(**settings).files_scanned == 1
        assert world.scan(**settings).files_unchanged == 1
    assert world.scan().sessions_changed == 1


def test_the_end_of_a_protection_makes_an_unchanged_file_due(world, session, clock):
    """A restored entry goes again when its protection ends, though its file did not change."""
    clock.now = int(clock.now)
    path = world.directory / "s.jsonl"
    world.scan()
    world.restore(session)

    assert reasons_of_context(world)["restored 0 s ago"] == 1
    assert world.scan().sessions_changed == 0

    clock.now += 599

    assert world.scan().files_unchanged == 1
    assert entry_text(path, session) == "x" * 2000

    clock.now += 1

    assert world.scan().values_extracted == 1
    assert entry_text(path, session) == f"[[extracted-{session}]]"


def reasons_of_context(world):
    one = context(world.settings(), world.store, "main/s", world.clock())
    return {kept.reason: kept.values for kept in one.plan.kept}


def counters(report):
    """Give what a dry run must foretell, session by session."""
    said = report_json(report)
    for key in ("duration_seconds", "dry_run", "bytes_stored", "values_restored"):
        del said[key]
    listed = sorted(said["sessions"], key=lambda one: one["path"])  # each has its own order
    said["sessions"] = [{key: one[key] for key in SESSION_KEYS} for one in listed]
    return said


def test_a_dry_run_foretells_the_scan_that_follows(world, conversation, clock):
    """Every counter of a dry run is that of the real scan after it, and nothing is written."""
    copy_tree(SAMPLES / "openclaw", world.root)
    for name in TRAPS:
        world.copy("traps", name)
    conversation.turn()
    first = conversation.turn("y" * 2000)
    conversation.turn()
    world.put("pinned.jsonl", conversation.bytes())
    world.put("busy.jsonl", conversation.bytes() + dump(conversation.lines[1]))
    set_mtime(world.directory / "busy.jsonl", clock.now - 60)
    little = Conversation()
    little.turn("z" * 700)
    for _ in range(50):
        little.turn("w" * 400)
    world.put("little.jsonl", little.bytes())
    settings = {"keep_recent": 1, "min_reclaim": "5%"}
    before = file_states(world.base, directories=True)
    foretold = scan(world.settings(**settings), world.no_store, clock=clock, dry_run=True)
    assert file_states(world.base, directories=True) == before
    assert not world.state.exists()
    real = world.scan(**settings)

    # Entries of different traps have the same ids: their placeholders get a number, each of which
    # is known only when its value is stored.
    names = [name for (name,) in sql(world, "SELECT name FROM extractions")]
    numbered = sum(len(name) - len(unnumbered(name)) for name in names)
    expected, found = counters(foretold), counters(real)
    assert 0 < numbered == found.pop("bytes_after") - expected.pop("bytes_after")
    for one in (*expected["sessions"], *found["sessions"]):
        one.pop("bytes_after")
    assert expected == found
    assert real.sessions_changed > 10
    assert real.files_deferred == 2
    assert (foretold.bytes_stored, real.bytes_stored > 0) == (0, True)

    world.restore(first, session="pinned")
    world.restore_all(session="main/crlf")
    settings["trigger_types"] = list(KINDS)
    clock.now += 700
    before = file_states(world.base, directories=True)
    foretold = world.scan(dry_run=True, **settings)
    written = file_states(world.base, directories=True)
    real = world.scan(**settings)

    assert written == before
    assert counters(foretold) == counters(real)
    assert real.sessions_changed > 1


def test_the_report_says_at_least_what_is_promised(world, session):
    """The JSON of a scan has the promised counters, and the promised keys for each session."""
    report = world.scan(keep_recent=0)
    said = json.loads(as_json(report_json(report)))

    assert said.keys() >= COUNTERS
    assert said["sessions"][0].keys() >= SESSION_KEYS
    assert said["sessions"][0]["session"] == "main/s"
    assert said["sessions"][0]["path"] == str(world.directory / "s.jsonl")
    assert said["sessions"][0]["format"] == "openclaw"
    assert (said["files_seen"], said["files_scanned"], said["values_extracted"]) == (1, 1, 2)
    assert said["bytes_before"] - said["bytes_after"] == 2 * (2000 - 22)


@pytest.fixture
def elsewhere(world, conversation):
    """Give a long session whose agent the layout of directories does not name, changed just now."""
    conversation.turn("x" * 4000)
    conversation.turn("y" * 4000)
    directory = world.root / "-home-me"
    directory.mkdir()
    path = directory / "s.jsonl"
    path.write_bytes(conversation.bytes())
    return path


def test_a_deferred_session_keeps_the_name_of_its_agent(world, elsewhere):
    """A session that was first seen while it was busy is known by the same name ever after."""
    world.clock = Clock(elsewhere.stat().st_mtime + 10)
    first = only(world.scan(keep_recent=0, quiet_seconds=60))
    world.clock.now += 120
    second = only(world.scan(keep_recent=0, quiet_seconds=60))

    assert (first.outcome, second.outcome) == ("deferred", "changed")
    assert first.session == second.session == "pi:-home-me/s"
    assert [one.agent for one in world.store.sessions.all()] == ["pi:-home-me"]


def test_a_deferred_session_of_an_excluded_agent_stays_excluded(world, elsewhere):
    """What keeps an agent's sessions out holds at the second look, too."""
    world.clock = Clock(elsewhere.stat().st_mtime + 10)
    before = elsewhere.read_bytes()
    world.scan(quiet_seconds=60)
    world.clock.now += 120
    report = world.scan(keep_recent=0, quiet_seconds=60, exclude=["agent:openclaw:*"])

    assert (only(report).outcome, only(report).reason) == (
        "skipped", "excluded by agent:openclaw:*",
    )  # fmt: skip
    assert elsewhere.read_bytes() == before


def test_a_session_that_could_not_be_opened_to_name_its_agent_waits(world, elsewhere):
    """Nothing is done, and nothing excluded is touched, while the agent of a file is not known."""
    before = elsewhere.read_bytes()
    descriptor = os.open(elsewhere, os.O_RDWR)
    assert leases.take(descriptor)
    settings = world.settings(keep_recent=0, exclude=["agent:openclaw:*"])
    report = scan(
        settings, world.store, clock=lambda: time.time() + 60,
        # Called once the walk has come upon the file.
        watch=Watch(check_stop=lambda: leases.drop(descriptor)),
    )  # fmt: skip
    os.close(descriptor)

    assert (only(report).outcome, only(report).reason) == (
        "deferred", "another process is replacing the file",
    )  # fmt: skip
    assert list(world.store.sessions.all()) == []
    assert elsewhere.read_bytes() == before


def test_a_named_path_below_a_directory_that_cannot_be_read_is_a_problem(
    unprivileged_world, conversation
):
    """Whoever scans one session is told when its directory cannot be opened."""
    world = unprivileged_world
    path = world.put("s.jsonl", conversation.bytes())
    world.directory.chmod(0)
    try:
        report = world.scan(only=[str(path)])
    finally:
        world.directory.chmod(0o700)

    assert [(one.path, one.why) for one in report.problems] == [
        (str(world.directory), "Permission denied")
    ]
    assert report.failed


@pytest.mark.parametrize(("at", "missing"), [("agents", 1), ("elsewhere", 0)])
def test_a_named_path_below_a_root_that_is_gone_is_a_problem(world, at, missing):
    """So it is told when the root of that session is gone, and not when another one is."""
    world.root.rename(world.base / "moved")
    report = world.scan(only=[str(world.base / at / "main" / "sessions" / "s.jsonl")])

    assert [one.why for one in report.problems] == ["no such directory"] * missing


def test_several_named_sessions_are_reported_in_the_order_of_their_paths(world, conversation):
    """The report on a few sessions does not depend on how a set happens to be ordered."""
    conversation.turn("x" * 4000)
    conversation.turn("y" * 4000)
    paths = {str(world.put(f"{name}.jsonl", conversation.bytes())) for name in "dbaefc"}
    report = world.scan(keep_recent=0, only=paths)

    assert [one.path for one in report.sessions] == sorted(paths)


def test_an_entry_of_many_values_is_looked_through_once(world, conversation, monkeypatch):
    """However many placeholders stand in an entry.

    Again in a copy of it, its parts are listed once.

    Time is no measure on a busy machine: how often the parts are asked for is.
    """
    blocks = [{"type": "text", "text": f"{number:06d}" * 20} for number in range(300)]
    conversation.user()
    conversation.call()
    ident = conversation.result("")
    conversation.lines[-1]["message"]["content"] = blocks
    conversation.assistant()
    path = world.put("s.jsonl", conversation.bytes())
    done = world.scan(keep_recent=0, min_value_length=100)
    copy = {**read_entry(path, ident), "id": "copy"}
    copy["message"]["toolCallId"] = "call_1"
    append(path, [copy, conversation.lines[-1]])
    parts, yielded = OpenClaw.parts, []

    def counting(*arguments):
        for part in parts(*arguments):
            yielded.append(part)
            yield part

    monkeypatch.setattr(OpenClaw, "parts", counting)
    world.scan(dry_run=True, keep_recent=0, min_value_length=100)

    assert done.values_extracted == 300
    assert 300 < len(yielded) < 7 * 300


def test_a_session_that_keeps_failing_is_tried_again_with_growing_pauses(
    world, conversation, monkeypatch
):
    """The second try comes at once, the next ones after one, two, four minutes, at most an hour."""
    world.clock = Clock(int(time.time()))
    conversation.turn("x" * 4000)
    path = world.put("s.jsonl", conversation.bytes())
    fill = exchange.fill

    def failing(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(exchange, "fill", failing)
    begun, tried = world.clock.now, []
    while world.clock.now < begun + 4 * 3600:
        if world.scan(keep_recent=0).files_failed:
            tried.append(world.clock.now - begun)
        world.clock.now += 30
    listed = status(world.settings(), world.store, world.clock())
    insisted = world.scan(keep_recent=0, only=[str(path)]).files_failed
    monkeypatch.setattr(exchange, "fill", fill)
    path.touch()
    world.clock.now = int(time.time()) + 5 * 3600
    done = world.scan(keep_recent=0)

    assert tried[:6] == [0, 30, 90, 210, 450, 930]
    assert max(later - before for before, later in itertools.pairwise(tried)) == 3600
    assert listed.sessions_by_state == {"failed": 1}
    assert listed.reasons == {"Input/output error": 1}
    assert insisted == 1
    assert done.sessions_changed == 1
