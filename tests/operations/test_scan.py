"""scan: which values are extracted, kept or deferred and why, and that no other byte changes."""

import itertools
import json
import math
import os
import time

import pytest

from brainsurgeon.agents.openclaw.format import OpenClaw
from brainsurgeon.files import exchange, leases
from brainsurgeon.model.entries import KINDS, unnumbered
from brainsurgeon.model.reports import Watch
from brainsurgeon.model.text import iso, minute
from brainsurgeon.operations.scan import scan
from brainsurgeon.operations.status import status
from brainsurgeon.render.formatting import document
from brainsurgeon.render.runs import report as report_lines
from brainsurgeon.render.runs import report_json
from building.claw import migrate
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
    kept_reasons,
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


def scan_deferred(world, **settings):
    """Scan, check that the session was deferred and no file changed, and return the reason."""
    before = file_states(world.root)
    report = world.scan(**settings)

    assert (only(report).outcome, report.files_deferred) == ("deferred", 1)
    assert not report.failed
    assert file_states(world.root) == before
    return only(report).reason


@pytest.fixture
def session(world, conversation):
    """Write an idle session whose first tool result is old, and return the id of that result."""
    ident = conversation.turn()
    conversation.turn("y" * 2000)
    world.put("s.jsonl", conversation.bytes())
    return ident


def test_scan_shrinks_a_large_session_by_35_percent(world):
    """A recorded session of 1 MB shrinks by 35 % or more if tool calls are triggers."""
    path = world.copy("pi", "large-session.derived-v3.jsonl")
    before = path.read_bytes()
    report = world.scan(trigger_types=["thinking", "tool_result", "tool_call"])
    after = path.read_bytes()

    assert len(after) <= 0.65 * len(before)
    assert (report.bytes_before, report.bytes_after) == (len(before), len(after))
    assert all(parse(line) is not None for line in after.split(b"\n") if line)
    assert len(replaced_values(before, after)) == report.values_extracted


def test_scan_changes_only_the_extracted_values(world):
    """Outside the extracted values every byte of the recorded sessions is unchanged."""
    copy_tree(SAMPLES / "openclaw", world.root)
    world.copy("pi", "large-session.v1.jsonl")
    before = {path: path.read_bytes() for path in world.root.rglob("*") if path.is_file()}
    report = world.scan()
    extracted = {path: replaced_values(old, path.read_bytes()) for path, old in before.items()}
    changed = {str(path) for path, values in extracted.items() if values}

    assert sum(len(values) for values in extracted.values()) == report.values_extracted > 30
    assert changed == {outcome.path for outcome in report.sessions if outcome.outcome == "changed"}
    assert len(changed) == 4
    assert not any("trajectory" in path or "v1" in path for path in changed)
    for values in extracted.values():
        for _, token in values:
            assert len(json.loads(token)) > 500


def test_second_scan_of_an_unchanged_tree_writes_nothing(world):
    """A second scan changes no file or directory and counts every file as unchanged."""
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


def test_pristine_restore_after_a_scan_keeps_bytes_and_times(world):
    """A scan and `restore --all --pristine` leave bytes, times, mode and owner as they were."""
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
    restored = {path: path.stat() for path in paths}

    assert report.sessions_changed == 5
    for path, before in stats.items():
        for after in (pruned[path], restored[path]):
            for name in ("st_atime_ns", "st_mtime_ns", "st_mode", "st_uid", "st_gid"):
                assert getattr(after, name) == getattr(before, name)
        assert path.read_bytes() == originals[path.name]
    assert world.leftovers() == []


@pytest.mark.parametrize("settings", [{}, {"keep_recent": 0, "trigger_types": list(KINDS)}])
@pytest.mark.parametrize("name", TRAPS)
def test_scan_of_a_difficult_session_is_reversible(world, name, settings):
    """A scan of each difficult sample changes only recorded values, and a restore reverts it."""
    path = world.copy("traps", name)
    original = path.read_bytes()
    report = world.scan(**settings)
    extracted = replaced_values(original, path.read_bytes())
    world.restore_all(pristine=True)

    assert not report.failed
    assert len(extracted) == report.values_extracted
    assert path.read_bytes() == original


def test_scan_defers_a_session_until_quiet_seconds_passed(world, session, clock):
    """With `quiet_seconds = 30` a session is deferred until 30 s after its last change."""
    changed = set_mtime(world.directory / "s.jsonl", clock.now)
    clock.now = changed + 29

    reason = scan_deferred(world, quiet_seconds=30)
    assert reason == "changed 29 s ago; it must be unchanged for 30 s"

    clock.now = changed + 30

    assert world.scan(quiet_seconds=30).sessions_changed == 1


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        ("user", "a user message"),
        ("call", "a tool call"),
        ("result", "a tool result"),
        ("unstopped", "the assistant has not stopped"),
        ("torn", "the last line is still being written"),
    ],
)
def test_scan_defers_an_open_turn_until_it_is_abandoned(world, conversation, clock, ending, why):
    """An open turn defers the session until it was silent for `abandoned_after_seconds`."""
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

    assert why in scan_deferred(world)

    clock.now = changed + 3600
    report = world.scan()

    assert report.sessions_changed == 1
    assert entry_text(path, ident) == f"[[extracted-{ident}]]"
    assert path.read_bytes().endswith(data[-20:])


def test_scan_skips_session_files_of_a_migrated_agent(world, session):
    """Files of an agent with a database are skipped with the reason, until the database is gone."""
    path = migrate(world.root / "main")
    before = file_states(world.root)
    report = world.scan()

    assert "SQLite" in only(report).reason
    assert (report.sessions_changed, report.failed) == (0, False)
    assert file_states(world.root) == before

    path.unlink()

    assert world.scan().sessions_changed == 1


def test_scan_counts_a_future_time_from_its_first_sight(world, session, clock):
    """A file with a time in the future is idle `quiet_seconds` after a scan first saw it."""
    path = world.put("s.jsonl", (world.directory / "s.jsonl").read_bytes(), age=-86_400)

    assert "changed 0 s ago" in scan_deferred(world, quiet_seconds=30)

    clock.now += 29

    assert "changed 29 s ago" in scan_deferred(world, quiet_seconds=30)

    clock.now += 1
    mtime = path.stat().st_mtime_ns
    report = world.scan(quiet_seconds=30)

    assert report.sessions_changed == 1
    assert path.stat().st_mtime_ns == mtime


def test_scan_defers_a_leased_session(world, session):
    """A session on which another process holds a lease is scanned by the next run."""
    descriptor = os.open(world.directory / "s.jsonl", os.O_RDONLY)
    try:
        assert leases.take(descriptor)

        assert scan_deferred(world)
    finally:
        os.close(descriptor)

    assert world.scan().sessions_changed == 1


@pytest.mark.parametrize("pending", ["restore", "pristine", "nothing"])
def test_scan_writes_nothing_while_a_session_is_open(world, pruned, conversation, clock, pending):
    """While another process has the session open, scans write neither to files nor to the store."""
    path = world.directory / "s.jsonl"
    clock.now += 5
    conversation.turn("z" * 2000)  # something to cut in any case
    world.put("s.jsonl", conversation.bytes() if pending == "nothing" else path.read_bytes())
    database = world.state / "store.db"
    with open(path, "rb"):
        if pending != "nothing":
            assert world.restore(pruned, pristine=pending == "pristine").pending
        clock.now += 5
        assert scan_deferred(world) == "another process has the file open"
        before = file_states(world.root, directories=True), database.stat().st_mtime_ns
        for _ in range(3):
            clock.now += 5
            assert scan_deferred(world) == "another process has the file open"
            assert (
                file_states(world.root, directories=True),
                database.stat().st_mtime_ns,
            ) == before

    assert world.scan().sessions_changed == 1


def test_scan_combines_requests_and_extractions_in_one_rewrite(world, conversation, clock):
    """A restore, a pin and new extractions are written by one exchange of the file."""
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
    changed = [
        json.loads(after)["id"]
        for before, after in zip(lines, fresh, strict=True)
        if before != after
    ]
    outcome = only(report)

    assert pending == (True, True)
    assert path.stat().st_ino != inode
    assert (len(outcome.executed.restorations), len(outcome.executed.extracted)) == (1, 1)
    assert changed == [first, second, third]
    assert entry_text(path, first) == "x" * 2000
    assert value_at(fresh[7], "_extractable") is False
    assert world.scan().files_unchanged == 1


def test_scan_defers_a_session_with_less_gain_than_min_reclaim(world, conversation):
    """A rewrite that frees less than `min_reclaim`, in percent or bytes, is not made."""
    conversation.turn()
    for _ in range(40):
        conversation.turn("kept because it is short " * 15)
    conversation.turn()
    size = len(conversation.bytes())
    path = world.put("s.jsonl", conversation.bytes())
    gain = 2000 - len("[[extracted-00000003]]")

    assert scan_deferred(world, min_reclaim="99%") == f"too little to gain ({gain:,} bytes)"
    assert scan_deferred(world, min_reclaim=gain + 1) == f"too little to gain ({gain:,} bytes)"
    assert gain / size < 0.1
    assert world.scan(min_reclaim=gain + 1).files_unchanged == 1
    assert world.scan(min_reclaim=gain).sessions_changed == 1
    assert path.stat().st_size == size - gain


def test_scan_extracts_a_forced_value_despite_min_reclaim(world, conversation):
    """A forced value is extracted although the rewrite frees nothing."""
    conversation.turn()
    conversation.user("hi", _extractable=True)
    path = world.put("s.jsonl", conversation.bytes())
    last = conversation.last
    report = world.scan(min_reclaim="50%")
    entry = json.loads(path.read_bytes().splitlines()[-1])

    assert (report.sessions_changed, report.values_extracted) == (1, 1)
    assert entry["message"]["content"] == f"[[extracted-{last}]]"
    assert entry["_extractable"] is True


@pytest.mark.parametrize(
    "pattern",
    ["agent:main", "agent:m*", "session:s", "session:s*", "*/main/sessions/*", "*/s.jsonl"],
)
def test_scan_skips_an_excluded_session(world, session, pattern):
    """Patterns of paths, agents and sessions in `exclude` skip the session with the reason."""
    before = file_states(world.root)
    report = world.scan(exclude=[pattern])

    assert only(report).reason == f"excluded by {pattern}"
    assert file_states(world.root) == before
    assert world.scan(exclude=["agent:other", "session:t", "*/other/*"]).sessions_changed == 1


@pytest.mark.parametrize(
    "pattern",
    ["{link}/*", "{link}", "{link}/main/sessions/s.jsonl", "{link}/main/../*/sessions/s*",
     "{root}/main", "{root}/main/sessions/", "*/sessions/", "/{root}/*"],
)  # fmt: skip
def test_scan_skips_sessions_below_an_excluded_path(world, session, pattern):
    """A path may be that of a directory, and may contain links, as the path of a root may."""
    link = world.base / "link"
    link.symlink_to(world.root)
    pattern = pattern.format(link=link, root=world.root)
    report = world.scan(roots=[{"path": str(link)}], exclude=[pattern])

    assert only(report).reason == f"excluded by {pattern}"


def test_scan_excludes_an_agent_in_another_layout_by_name(world, conversation):
    """`agent:<format>:<directory>` names the agent of a session outside the usual layout."""
    conversation.turn()
    conversation.turn()
    path = world.put("../../logs/s.jsonl", conversation.bytes())
    report = world.scan(exclude=["agent:openclaw:logs"])

    assert report.sessions_changed == 0
    assert path.read_bytes() == conversation.bytes()


def test_scan_notices_a_corrected_format_of_a_root(world):
    """A session that was skipped for a wrong `format` of its root is scanned with the right one."""
    world.copy("generic", "spec-mix.jsonl")
    wrong, right = ([{"path": str(world.root), "format": form}] for form in ("codex", "generic"))

    assert world.scan(roots=wrong).values_extracted == 0
    assert world.scan(roots=right).values_extracted > 0


def test_scan_of_a_named_session_ignores_the_others(world, session, conversation):
    """Only the named session is counted and changed."""
    other = world.put("t.jsonl", conversation.bytes())
    before = other.stat()
    report = world.scan(only={str(world.directory / "s.jsonl")})

    assert (report.files_seen, report.sessions_changed) == (1, 1)
    assert other.read_bytes() == conversation.bytes()
    assert other.stat().st_ino == before.st_ino


def test_scan_with_enabled_false_changes_nothing(world, session):
    """With `enabled = false` a scan reads sessions but changes none."""
    before = file_states(world.root)
    report = world.scan(enabled=False)

    assert (report.files_scanned, report.sessions_changed) == (1, 0)
    assert file_states(world.root) == before
    assert world.scan().sessions_changed == 1


def test_scan_keeps_an_unterminated_last_line(world, conversation):
    """The last line is kept while it has no newline and extracted once it has one."""
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


def test_scan_reads_unchanged_files_again_under_other_rules(world, session):
    """An unchanged file is read again once after each change of a rule."""
    rules = [
        {"min_value_length": 5000},
        {"min_value_length": 5000, "keep_recent": 4},
        {"min_value_length": 5000, "exclude": ["tool:x"]},
        {"trigger_types": ["thinking"]},
    ]
    for settings in rules:
        assert world.scan(**settings).files_scanned == 1
        assert world.scan(**settings).files_unchanged == 1
    assert world.scan().sessions_changed == 1


def test_dry_run_of_a_named_session_says_why_nothing_changes(world, session, clock):
    """Its values are listed by their reasons to stay, also when none would be extracted."""
    path = world.directory / "s.jsonl"
    world.scan()
    world.restore(session)
    report = world.scan(dry_run=True, only=[str(path)], named=True)
    before = list(report_lines(report))
    lines = "\n".join(before)

    assert "main/s: unchanged, nothing to extract\n  = 3 values" in lines
    assert "  = 1 value (2,000 characters) stays: restored, and kept until " in lines
    world.scan()
    again = world.scan(dry_run=True, only=[str(path)], named=True)  # known to be unchanged
    assert list(report_lines(again))[:-1] == before[:-1]
    assert world.scan(dry_run=True).sessions == []


def test_scan_reads_an_unchanged_file_after_a_protection(world, session, clock):
    """At the end of its protection an entry of an unchanged file is extracted again."""
    path = world.directory / "s.jsonl"
    world.scan()
    world.restore(session)

    assert kept_reasons(world)[f"restored, and kept until {minute(clock() + 600)}"] == 1
    assert world.scan().sessions_changed == 0

    clock.now += 599

    assert world.scan().files_unchanged == 1
    assert entry_text(path, session) == "x" * 2000

    clock.now += 1

    assert world.scan().values_extracted == 1
    assert entry_text(path, session) == f"[[extracted-{session}]]"


def counters(report):
    """Return the part of a report that a dry run must predict, sorted by path."""
    counts = report_json(report)
    for key in ("duration_seconds", "dry_run", "bytes_stored", "values_restored"):
        del counts[key]
    sessions = sorted(counts["sessions"], key=lambda session: session["path"])
    counts["sessions"] = [{key: session[key] for key in SESSION_KEYS} for session in sessions]
    return counts


def test_scan_dry_run_predicts_the_next_scan(world, conversation, clock):
    """A dry run writes nothing and has the same counts as the scan after it."""
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
    dry = scan(world.settings(**settings), world.no_store, clock=clock, dry_run=True)
    assert file_states(world.base, directories=True) == before
    assert not world.state.exists()
    real = world.scan(**settings)

    # Entries of different traps have the same ids: their placeholders get a number, each of which
    # is known only when its value is stored.
    names = [name for (name,) in sql(world, "SELECT name FROM extractions")]
    numbered = sum(len(name) - len(unnumbered(name)) for name in names)
    predicted, actual = counters(dry), counters(real)
    assert 0 < numbered == actual.pop("bytes_after") - predicted.pop("bytes_after")
    for counts in (*predicted["sessions"], *actual["sessions"]):
        counts.pop("bytes_after")
    assert predicted == actual
    assert real.sessions_changed > 10
    assert real.files_deferred == 2
    assert (dry.bytes_stored, real.bytes_stored > 0) == (0, True)

    world.restore(first, session="pinned")
    world.restore_all(session="main/crlf")
    settings["trigger_types"] = list(KINDS)
    clock.now += 700
    before = file_states(world.base, directories=True)
    dry = world.scan(dry_run=True, **settings)
    written = file_states(world.base, directories=True)
    real = world.scan(**settings)

    assert written == before
    assert counters(dry) == counters(real)
    assert real.sessions_changed > 1


def test_scan_json_has_the_documented_keys(world, session):
    """The JSON report has the documented counters, and the documented keys for each session."""
    report = json.loads(document(report_json(world.scan(keep_recent=0))))

    assert report.keys() >= COUNTERS
    assert report["sessions"][0].keys() >= SESSION_KEYS
    assert report["sessions"][0]["session"] == "main/s"
    assert report["sessions"][0]["path"] == str(world.directory / "s.jsonl")
    assert report["sessions"][0]["format"] == "openclaw"
    assert (report["files_seen"], report["files_scanned"], report["values_extracted"]) == (
        1,
        1,
        2,
    )
    assert report["bytes_before"] - report["bytes_after"] == 2 * (2000 - 22)


@pytest.fixture
def unnamed_agent_session(world, conversation):
    """Write a long session that changed just now and whose directory does not name its agent."""
    conversation.turn("x" * 4000)
    conversation.turn("y" * 4000)
    return world.put("../../-home-me/s.jsonl", conversation.bytes(), age=0)


def test_deferred_session_keeps_its_agent_name(world, unnamed_agent_session):
    """A session that was deferred when first seen keeps its name and agent in later scans."""
    world.clock = Clock(unnamed_agent_session.stat().st_mtime + 10)
    first = only(world.scan(keep_recent=0, quiet_seconds=60))
    world.clock.now += 120
    second = only(world.scan(keep_recent=0, quiet_seconds=60))

    assert (first.outcome, second.outcome) == ("deferred", "changed")
    assert first.session == second.session == "pi:-home-me/s"
    assert [session.agent for session in world.store.sessions.all()] == ["pi:-home-me"]


def test_deferred_session_of_an_excluded_agent_is_skipped(world, unnamed_agent_session):
    """An exclusion of the agent holds in the scan after the one that deferred the session."""
    world.clock = Clock(unnamed_agent_session.stat().st_mtime + 10)
    before = unnamed_agent_session.read_bytes()
    world.scan(quiet_seconds=60)
    world.clock.now += 120
    report = world.scan(keep_recent=0, quiet_seconds=60, exclude=["agent:openclaw:*"])

    assert only(report).outcome == "skipped"
    assert only(report).reason == "excluded by agent:openclaw:*"
    assert unnamed_agent_session.read_bytes() == before


def test_scan_defers_a_session_whose_agent_is_unknown(world, unnamed_agent_session):
    """A session that cannot be opened to read its agent is deferred and not recorded."""
    before = unnamed_agent_session.read_bytes()
    descriptor = os.open(unnamed_agent_session, os.O_RDWR)
    assert leases.take(descriptor)
    settings = world.settings(keep_recent=0, exclude=["agent:openclaw:*"])
    report = scan(
        settings, world.store, clock=lambda: time.time() + 60,
        # Called once the walk has come upon the file.
        watch=Watch(check_stop=lambda: leases.drop(descriptor)),
    )  # fmt: skip
    os.close(descriptor)

    assert only(report).outcome == "deferred"
    assert only(report).reason == "another process is replacing the file"
    assert list(world.store.sessions.all()) == []
    assert unnamed_agent_session.read_bytes() == before


def test_scan_of_a_path_in_an_unreadable_directory_fails(unprivileged_world, conversation):
    """The report names the directory of the session and the error."""
    world = unprivileged_world
    path = world.put("s.jsonl", conversation.bytes())
    world.directory.chmod(0)
    try:
        report = world.scan(only=[str(path)])
    finally:
        world.directory.chmod(0o700)

    [problem] = report.unreadable
    assert (problem.path, problem.reason) == (str(world.directory), "Permission denied")
    assert report.failed


@pytest.mark.parametrize(("at", "missing"), [("agents", 1), ("elsewhere", 0)])
def test_scan_of_a_path_in_a_missing_root_is_a_problem(world, at, missing):
    """A missing root is a problem if the named session is in it, and none otherwise."""
    world.root.rename(world.base / "moved")
    report = world.scan(only=[str(world.base / at / "main" / "sessions" / "s.jsonl")])

    assert [problem.reason for problem in report.unreadable] == ["no such directory"] * missing


def test_scan_reports_named_sessions_sorted_by_path(world, conversation):
    """The order of the report does not depend on the order of a set."""
    conversation.turn("x" * 4000)
    conversation.turn("y" * 4000)
    paths = {str(world.put(f"{name}.jsonl", conversation.bytes())) for name in "dbaefc"}
    report = world.scan(keep_recent=0, only=paths)

    assert [outcome.path for outcome in report.sessions] == sorted(paths)


def test_scan_lists_the_parts_of_a_large_entry_once(world, conversation, monkeypatch):
    """A scan lists the parts of an entry with many placeholders a bounded number of times."""
    # The calls are counted, since the time would depend on the load of the machine.
    blocks = [{"type": "text", "text": f"{number:06d}" * 20} for number in range(300)]
    conversation.user()
    conversation.call()
    ident = conversation.result("")
    conversation.lines[-1]["message"]["content"] = blocks
    conversation.assistant()
    path = world.put("s.jsonl", conversation.bytes())
    report = world.scan(keep_recent=0, min_value_length=100)
    copy = {**read_entry(path, ident), "id": "copy"}
    copy["message"]["toolCallId"] = "call_1"
    append(path, [copy, conversation.lines[-1]])
    resolved, yielded = OpenClaw.resolved, []

    def counting(*arguments):
        for value in resolved(*arguments):
            yielded.append(value)
            yield value

    monkeypatch.setattr(OpenClaw, "resolved", counting)
    world.scan(dry_run=True, keep_recent=0, min_value_length=100)

    assert report.values_extracted == 300
    assert 300 < len(yielded) < 7 * 300


def test_scan_retries_a_failing_session_at_growing_intervals(world, conversation, monkeypatch):
    """The second try is immediate, then the pauses double up to an hour; each scan says when."""
    world.clock = Clock(int(time.time()))
    conversation.turn("x" * 4000)
    path = world.put("s.jsonl", conversation.bytes())
    fill = exchange.fill

    def failing(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(exchange, "fill", failing)
    start, tries, deferred = world.clock.now, [], []
    while world.clock.now < start + 4 * 3600:
        report = world.scan(keep_recent=0)
        if report.files_failed:
            tries.append(world.clock.now - start)
        else:
            deferred += report.sessions
        world.clock.now += 30
    listed = status(world.settings(), world.store, world.clock())
    named_failures = world.scan(keep_recent=0, only=[str(path)]).files_failed
    monkeypatch.setattr(exchange, "fill", fill)
    path.touch()
    world.clock.now = int(time.time()) + 5 * 3600
    report = world.scan(keep_recent=0)

    assert tries[:6] == [0, 30, 90, 210, 450, 930]
    again = iso(60 * math.ceil((start + 90) / 60)).replace(":00Z", "Z")
    assert {one.outcome for one in deferred} == {"deferred"}
    assert deferred[0].reason == f"Input/output error; tried again at {again}"
    assert max(later - before for before, later in itertools.pairwise(tries)) == 3600
    assert listed.sessions_by_state == {"failed": 1}
    assert listed.reasons == {"Input/output error": 1}
    assert named_failures == 1
    assert report.sessions_changed == 1
