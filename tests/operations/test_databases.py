"""Sessions in OpenClaw's databases: scan, restore, retention, and reasons for deferral."""

import json
import os
import time
from contextlib import closing

import pytest
import zstandard

from brainsurgeon.agents import rows
from brainsurgeon.agents.openclaw.rows import OpenClawDatabases
from brainsurgeon.errors import BusyError, NotFoundError
from brainsurgeon.files import processes as clocks
from brainsurgeon.files import sqlite
from brainsurgeon.formats.transcript import Transcript
from brainsurgeon.lookup.sessions import session_named
from brainsurgeon.model.records import Confirmation
from brainsurgeon.model.reports import Watch
from brainsurgeon.operations.doctor import doctor
from brainsurgeon.operations.estimate import estimate
from brainsurgeon.operations.restore import restore_all, rollback
from brainsurgeon.operations.retention import HIDDEN, retention
from brainsurgeon.operations.scan import scan, sizes_to_scan
from brainsurgeon.operations.sessions import context, sessions
from brainsurgeon.operations.show import cat, search, show
from brainsurgeon.operations.status import status
from brainsurgeon.planning import row_steps
from brainsurgeon.render import runs as render
from brainsurgeon.rewrite import recover
from brainsurgeon.sessions.discovery import open_session
from brainsurgeon.sessions.transcripts import Transcripts
from building import claw_agent
from building.claw import (
    COMPACTED,
    DAY_BEFORE,
    FORK,
    GATEWAY,
    KILLED,
    LATER,
    LOCAL,
    REWOUND,
    VERSIONS,
    WAITS_FOR_ENGINE,
    WINDOW_AFTER_REWIND,
    WRITTEN,
    Claw,
    ClawWorld,
    plain_connection,
)
from building.world import Conversation, dump, pin, sql

WORLD = ClawWorld

DAY = 86_400


@pytest.fixture(params=VERSIONS)
def every_world(request, tmp_path):
    world = ClawWorld(tmp_path, request.param)
    yield world
    world.close()


@pytest.fixture
def world(world, monkeypatch):
    """Return the world, with a boot clock that runs with its wall clock."""
    monkeypatch.setattr(clocks, "boot_clock", world.clock)
    return world


class TestScanning:
    """A scan over databases."""

    def test_a_second_scan_writes_nothing(self, every_world):
        """The first scan extracts values from an idle session; the database stays consistent."""
        before = every_world.claw.texts(GATEWAY)

        first = every_world.scan()

        assert not first.failed
        assert GATEWAY in {row.session.removeprefix("main/") for row in first.sessions}
        assert every_world.placeholders()
        after = every_world.claw.contents()
        assert len(every_world.claw.texts(GATEWAY)) == len(before)
        second = every_world.scan()
        assert second.sessions_changed == 0
        assert every_world.claw.contents() == after
        assert list(after) == ["openclaw-agent.sqlite"]
        assert every_world.claw.sound() == []

    def test_restore_all_restores_every_event(self, every_world):
        """With `pristine` every event is as its agent wrote it; what was never changed, as stored.

        What was changed is stored as plain text with its length, which the agent reads as well.
        """
        listed = (GATEWAY, LOCAL, COMPACTED, FORK, REWOUND)
        before = {session: every_world.claw.events(session) for session in listed}
        stored = {session: every_world.claw.columns(session) for session in listed}
        every_world.scan()
        pruned = {session: every_world.claw.columns(session) for session in listed}

        answers = every_world.restore_all(pristine=True)

        assert {answer.state for answer in answers} == {"restored"}
        assert {session: every_world.claw.events(session) for session in listed} == before
        compressing = any(row[3] for row in stored[GATEWAY])
        for session in listed:
            for old, cut, (seq, text, *others) in zip(
                stored[session], pruned[session], every_world.claw.columns(session), strict=True
            ):
                if cut == old:
                    assert (seq, text, *others) == old
                else:
                    assert others == [None, len(text.encode()) if compressing else None, None]
        assert every_world.claw.sound() == []

    def test_kept_transcripts_follow_edited_rows(self, world):
        """After an extraction, a kept session is its rows as they are, and stays kept."""
        world.kept = Transcripts()
        assert world.scan().sessions_changed == 6

        for path in (world.claw.session(GATEWAY).path, world.claw.session(FORK).path):
            assert path in world.kept
            own = world.store.rows.own_times()[path]
            with open_session(world.claw.session(path.rpartition("/")[2], own)) as opened:
                fresh = Transcript.read(opened.form, opened.lines)
                kept = world.kept.transcript(opened)
            assert kept.entries == fresh.entries
            assert (kept.starts, kept.sums, kept.end) == (fresh.starts, fresh.sums, fresh.end)

    def test_rollback_restores_every_event(self, world):
        """A rollback undoes the rows of one run and records one event a session."""
        before = world.claw.events(GATEWAY)
        world.scan()
        run = world.store.runs.by_id(1).facts
        report = rollback(world.settings(), world.store, 1, clock=world.clock)

        assert {session.state for session in report.sessions} == {"rolled back"}
        assert sum(session.values_restored for session in report.sessions) == run["extracted"]
        assert len(report.sessions) == run["sessions"]
        assert world.claw.events(GATEWAY) == before
        assert world.claw.sound() == []
        events = world.store.events.after(0)
        assert sum(event.facts["values"] for event in events) == 2 * run["extracted"]
        assert {event.kind for event in events} == {"extraction", "rollback"}

    def test_restores_are_durable_and_extractions_are_not(self, world, monkeypatch):
        """A lost extraction only returns the old row; a restored value must not vanish."""
        durable_flags, change = [], rows.OpenRows.change

        def record_flag(*arguments, durable, **keywords):
            durable_flags.append(durable)
            return change(*arguments, durable=durable, **keywords)

        monkeypatch.setattr(rows.OpenRows, "change", record_flag)
        world.scan()
        cuts = len(durable_flags)
        world.restore_all()
        restores = len(durable_flags) - cuts

        assert min(cuts, restores) > 0
        assert durable_flags == [False] * cuts + [True] * restores

    def test_texts_in_the_search_index_are_not_extracted(self, world):
        """User and assistant text is indexed by OpenClaw, and stays with any triggers."""
        before = _indexed(world)
        world.scan(trigger_types=["user", "assistant", "tool_result"], min_value_length=1,
                   keep_recent=0)  # fmt: skip

        assert _indexed(world) == before
        assert world.placeholders()
        settings = world.settings(trigger_types=["user"], keep_recent=0, min_value_length=1)
        parts = context(settings, world.store, f"main/{GATEWAY}", LATER).plan.kept
        assert any("index of the agent's database" in part.reason for part in parts)

    def test_an_open_turn_is_never_abandoned(self, world):
        """A turn that the gateway left open stays deferred after a year."""
        world.later(365 * DAY)

        assert world.outcome(KILLED) == ("deferred", "the last turn is open: a tool result")
        assert not world.placeholders(KILLED)

    def test_a_turn_marked_as_killed_counts_as_closed(self, world):
        """An open turn that OpenClaw marked as killed is pruned and restored."""
        rules = {"keep_recent": 0, "min_value_length": 100}
        assert world.outcome(KILLED, **rules)[0] == "deferred"
        before = world.claw.events(KILLED)
        world.claw.sql("UPDATE session_windows SET status = 'killed' WHERE session_id = ?",
                       (KILLED,))  # fmt: skip

        assert world.outcome(KILLED, **rules)[0] == "changed"
        assert {answer.state for answer in world.restore_all(pristine=True)} == {"restored"}
        assert world.claw.events(KILLED) == before

    def test_a_dry_run_names_the_database_and_changes_nothing(self, every_world):
        """It prints the path and version, and that extraction saves context, not disk."""
        before = every_world.claw.contents()

        report = every_world.scan(dry_run=True)

        assert every_world.claw.contents() == before
        text = "\n".join(render.report(report))
        assert f"database of main {every_world.claw.path} (OpenClaw 2026." in text
        assert "its sessions are pruned" in text
        assert "pruning a database saves context, not disk" in text
        assert render.report_json(report)["databases"][0]["left_alone"] is None

    def test_an_unchanged_database_is_not_opened(self, world, monkeypatch):
        """A scan only checks the status of its files."""
        world.scan()
        world.scan()  # reads again what the first scan wrote
        paths = []
        opened = sqlite.opened
        monkeypatch.setattr(
            sqlite, "opened", lambda path, *more: paths.append(path) or opened(path, *more)
        )

        report = world.scan()

        assert paths == []
        assert (report.files_seen, report.files_unchanged) == (8, 8)

    def test_a_progress_bar_counts_the_sessions_that_are_read(self, world, monkeypatch):
        """Rewritten sessions are not counted again, those that wait for a change are."""
        monkeypatch.setattr(time, "time", world.clock)
        for number in (8, 1, 0):
            read = []
            sizes = sizes_to_scan(world.settings(), world.store)
            world.scan(watch=Watch(lambda file, read=read: read.append(file.fingerprint.size)))

            assert (sorted(read), len(read)) == (sorted(sizes), number)
            world.later(60)

    def test_a_scan_reads_only_the_session_that_changed(self, world):
        """The other sessions of the database count as unchanged."""
        world.scan()
        world.scan()
        _touch(world, int(LATER * 1000) + 1000)
        world.later(10)
        why = "changed 9 s ago; it must be unchanged for 30 s"
        assert world.outcome(GATEWAY) == ("deferred", why)

        world.later(60)
        assert world.scan().files_unchanged == 7

    def test_a_deferred_session_is_checked_after_a_change(self, world):
        """A session that only its agent can release is checked again when its database changed."""
        world.claw.sql(WAITS_FOR_ENGINE % 1)
        assert "a turn waits for its context engine, stuck" in world.outcome(GATEWAY)[1]
        world.scan()
        assert world.scan().files_unchanged == 8

        world.claw.sql("DELETE FROM context_engine_turn_outbox")

        assert world.outcome(GATEWAY)[0] == "changed"

    def test_a_scan_can_be_limited_to_a_database_or_session(self, world):
        """`only` takes the path of a database, or that of one session in it."""
        assert world.scan(only=[f"{world.claw.path}/{LOCAL}"]).files_seen == 1
        assert world.scan(only=[str(world.claw.path)]).files_seen == 8

    def test_jsonl_files_beside_a_database_are_skipped(self, world):
        """The reason names SQLite, and the session's name means the one in the database."""
        path = world.claw.root / "main" / "sessions" / f"{LOCAL}.jsonl"
        path.parent.mkdir()
        talk = Conversation(LOCAL)
        talk.turn("x" * 3000)
        path.write_bytes(talk.bytes())
        before = path.read_bytes()

        report = world.scan(keep_recent=0)

        reasons = {row.path: row.reason for row in report.sessions}
        assert "SQLite" in reasons[str(path)]
        assert path.read_bytes() == before
        assert session_named(world.settings(), world.store, LOCAL).file.in_database


REFUSALS = {
    "numbers that disagree": "PRAGMA user_version = 24",
    "an unknown trigger":
        "CREATE TRIGGER novel AFTER UPDATE ON session_windows BEGIN SELECT 1; END",
    "an added column": "ALTER TABLE session_windows ADD COLUMN novelty TEXT",
}  # fmt: skip


def _table(claw, name):
    [(made,)] = claw.sql("SELECT sql FROM sqlite_master WHERE name = ?", (name,))
    return f"{claw.path}: table {name}: {' '.join(made.split())}"


# What `doctor` prints of a refused layout.
DIFFERENCES = {
    "numbers that disagree": lambda _claw: [],
    "an unknown trigger":
        lambda claw: [f"{claw.path}: trigger novel: {REFUSALS['an unknown trigger']}"],
    "an added column": lambda claw: [_table(claw, "session_windows")],
}  # fmt: skip

WINDOW = f"UPDATE session_windows SET {{}} WHERE session_id = '{GATEWAY}'"
NODE = f"UPDATE session_nodes SET {{}} WHERE current_session_id = '{GATEWAY}'"
_DELIVERY = (
    "json_set(event_json, '$.message.provider', 'openclaw', '$.message.model', 'delivery-mirror')"
)
# A change to an idle session, and the reason for deferring it then.
SIGNS = {
    "an open turn": (
        (f"DELETE FROM session_transcript_active_events WHERE session_id = '{GATEWAY}' AND"
         " message_position = (SELECT max(message_position) FROM session_transcript_active_events"
         f" WHERE session_id = '{GATEWAY}')"), "the last turn is open: a tool result"),
    "a delivery after an open turn": (
        (f"UPDATE transcript_events SET event_json = {_DELIVERY}, navigation_json = NULL,"
         f" event_utf8_bytes = length(CAST({_DELIVERY} AS BLOB)) WHERE session_id = '{GATEWAY}'"
         " AND seq = (SELECT event_seq FROM session_transcript_active_events"
         f" WHERE session_id = '{GATEWAY}' ORDER BY message_position DESC LIMIT 1)"),
        "the last turn is open: a tool result"),
    "a stuck claim": (
        NODE.format("entry_json = json_set(entry_json, '$.activeWriterRunId', 'abcdefghij'),"
                    f" updated_at = {DAY_BEFORE}"),
        "claimed by the run abcdefgh for 24 h; a restart of OpenClaw ends the claim"),
    "a stuck outbox row": (
        WAITS_FOR_ENGINE % DAY_BEFORE,
        "a turn waits for its context engine, stuck for 24 h; only OpenClaw can settle it"),
    "a doctor at work": (
        ("INSERT INTO state_leases (scope, lease_key, owner, expires_at, created_at, updated_at)"
         f" VALUES ('core:agent-database-maintenance', 'x', 'y', {2 * DAY_BEFORE}, 1, 1)"),
        "OpenClaw's doctor is at work on the database"),
}  # fmt: skip


class TestUnchangedDatabases:
    """Databases and sessions that are left unchanged, with the reason."""

    @pytest.mark.parametrize("sign", SIGNS)
    def test_signs_of_its_agent_defer_a_session(self, world, sign):
        """Scan, list and status give the reason, a pin is pending, and no byte changes."""
        statement, expected = SIGNS[sign]
        world.claw.lease()
        world.claw.sql(statement, state="state_leases" in statement)
        with closing(plain_connection(world.claw.path)) as gateway:
            gateway.execute("SELECT * FROM schema_meta").fetchall()
            before = _files_without_index(world)

            [outcome] = world.scan(only=(f"{world.claw.path}/{GATEWAY}",)).sessions
            assert (outcome.outcome, outcome.reason) == ("deferred", expected)
            rows = sessions(world.settings(), world.store, world.clock())
            assert [row.reason for row in rows if row.session == f"main/{GATEWAY}"] == [expected]
            assert f"x {expected}" in status_text(world)
            assert pin(world, _results(world)[0], False, GATEWAY).pending
            assert _files_without_index(world) == before

    @pytest.mark.parametrize("change", REFUSALS)
    def test_an_unknown_layout_is_only_read(self, world, change):
        """Its sessions are skipped, status names the version, and values can still be shown."""
        world.scan()
        ident = world.placeholders()[0]
        world.claw.sql(REFUSALS[change])
        before = world.claw.contents()

        world.later(60)
        assert {row.outcome for row in world.scan().sessions} == {"skipped"}
        assert "left alone, its layout, version 2" in status_text(world)
        assert {row.state for row in sessions(world.settings(), world.store, LATER)} == {"skipped"}
        assert show(world.settings(), world.store, ident, session=GATEWAY)
        assert b"[[extracted-" not in b"".join(cat(world.settings(), world.store, GATEWAY, LATER))
        findings = doctor(world.settings(), world.store)
        assert any("only read" in finding.advice for finding in findings)
        reported = [finding.what for finding in findings if "report it" in finding.advice]
        assert reported == DIFFERENCES[change](world.claw)
        assert world.claw.contents() == before

    @pytest.mark.parametrize(
        ("configured", "mode", "written"),
        [
            ("{plugins: {slots: {contextEngine: 'lossless'}}}", "auto", False),
            ("{plugins: {slots: {contextEngine: 'lossless'}}}", "engines", True),
            ("{plugins: {slots: {contextEngine: 'legacy'}}}", "auto", True),
            (
                "{about: 'it\\'s a \"claw\" \\\n of\ttwo lines', /* own */ agents: [1, 2,],}",
                "auto",
                True,
            ),
            ("{plugins: {$include: './plugins.json'}}", "auto", False),
            ("{plugins: {$include: './plugins.json'}}", "engines", True),
            ("not json at all {", "auto", False),
            ("{}", "off", False),
        ],
        ids=[
            "another engine",
            "another, allowed",
            "the usual engine",
            "JSON5",
            "an include",
            "an include, allowed",
            "unreadable",
            "off",
        ],
    )
    def test_another_context_engine_prevents_writing(self, world, configured, mode, written):
        """`databases = "engines"` allows it; `off` reads no database."""
        world.claw.configure(configured)
        before = world.claw.contents()

        report = world.scan(databases=mode)

        assert bool(world.placeholders()) is written
        assert (world.claw.contents() == before) is not written
        if mode == "off":
            assert report.files_seen == 0

    def test_a_missing_configuration_prevents_writing(self, world):
        """Without the state of OpenClaw its context engine is unknown."""
        world.claw.state.unlink()
        before = world.claw.path.read_bytes()

        assert {row.outcome for row in world.scan().sessions} == {"skipped"}

        assert world.claw.path.read_bytes() == before
        text = status_text(world)
        assert 'its configuration cannot be found; databases = "engines" skips this check' in text

    def test_a_configured_store_elsewhere_prevents_reading(self, world):
        """With `session.store`, the database in the standard place is reported and not read."""
        world.claw.configure("{session: {store: '/data/sessions.sqlite'}}")
        before = world.claw.contents()

        report = world.scan()

        assert [(problem.path, problem.failed) for problem in report.unreadable] == [
            (str(world.claw.path), False)
        ]
        assert "session.store" in report.unreadable[0].reason
        assert report.files_seen == 0
        assert world.claw.contents() == before

    @pytest.mark.parametrize("odd", [
        NODE.format("entry_json = json_set(entry_json, '$.agentHarnessId', 5)"),
        NODE.format("entry_json = json_set(entry_json, '$.activeWriterRunId', 7)"),
        WINDOW.format("updated_at = 9000000000000000"),
    ], ids=["runtime", "run", "time"])  # fmt: skip
    def test_an_invalid_session_record_defers_one_session(self, world, odd):
        """A number as a name, or an impossible time, does not affect the other sessions."""
        world.claw.lease()
        world.claw.sql(odd)
        before = world.claw.texts(GATEWAY)

        report = world.scan()

        assert not report.failed
        assert report.sessions_changed > 0
        assert world.claw.texts(GATEWAY) == before

    def test_a_linked_shm_file_is_a_problem_of_its_database(self, world):
        """A symbolic link in place of the WAL index is not followed."""
        (world.claw.path.parent / (world.claw.path.name + "-shm")).symlink_to("/elsewhere")

        report = world.scan()

        assert [problem.path for problem in report.unreadable] == [str(world.claw.path)]
        assert report.files_seen == 0

    def test_a_database_of_unknown_schema_stops_no_other(self, world):
        """It is named with its version and stays unchanged; the next database is pruned."""
        odd = Claw(world.claw.base, agent="another")
        for statement in (
            "CREATE TABLE odd AS SELECT * FROM transcript_rewrite_watermarks",
            "DROP TABLE transcript_rewrite_watermarks",
            "CREATE TABLE transcript_rewrite_watermarks (session_id, generation, updated_at)",
            "INSERT INTO transcript_rewrite_watermarks SELECT session_id, 5, updated_at FROM odd",
        ):
            odd.sql(statement)
        before = odd.contents()

        report = world.scan()

        assert [problem.path for problem in report.unreadable] == [str(odd.path)]
        assert "version 23 (OpenClaw 2026.9.6), differs" in report.unreadable[0].reason
        assert report.sessions_changed > 0
        assert odd.contents() == before
        listed = sessions(world.settings(), world.store, world.clock())
        assert {row.session.partition("/")[0] for row in listed} >= {"main"}

    def test_an_invalid_lease_record_stops_no_scan(self, world):
        """A session marked as running is deferred beside it, the others are pruned."""
        for statement in (
            "DROP TABLE agent_database_leases",
            "CREATE TABLE agent_database_leases (path, owner_pid, owner_start_time, opened_at)",
            f"INSERT INTO agent_database_leases VALUES ('{world.claw.path}', 'x', 'y', NULL)",
        ):
            world.claw.sql(statement, state=True)
        world.claw.sql(WINDOW.format("status = 'running'"))

        report = world.scan()

        reasons = {row.session: row.reason for row in report.sessions}
        assert reasons[f"main/{GATEWAY}"] == "marked as running by its agent"
        assert report.sessions_changed > 0
        assert not report.failed

    def test_a_deleted_session_is_no_failure(self, world):
        """A session that was deleted is not found, and the scan does not fail."""
        assert world.claw.session(GATEWAY).in_database
        world.claw.sql("PRAGMA foreign_keys = ON")
        with closing(plain_connection(world.claw.path)) as agent:
            agent.execute("DELETE FROM session_windows WHERE session_id = ?", (GATEWAY,))

        with pytest.raises(NotFoundError):
            session_named(world.settings(), world.store, GATEWAY)
        assert not world.scan().failed


class TestRequests:
    """Restore, show, pins and context of sessions in a database."""

    def test_restore_in_a_row_is_protected_for_a_time(self, world):
        """The restored row has a mark; later scans keep it until the protection ends."""
        before = _texts_by_id(world)
        world.scan()
        ident = world.placeholders()[0]

        assert not world.restore(ident).pending
        assert ident not in world.placeholders()
        entry = json.loads(_texts_by_id(world)[ident])
        assert entry.pop("_restored")
        assert entry == json.loads(before[ident])
        world.later(60)
        world.scan()
        assert ident not in world.placeholders()
        world.later(3600)
        world.scan()
        assert ident in world.placeholders()

    def test_restore_during_a_turn_is_pending(self, world):
        """The value is returned at once, and its row restored by a scan of the idle session."""
        world.scan()
        ident = world.placeholders()[0]
        world.later(1)
        world.claw.lease()
        world.claw.sql(WINDOW.format("status = 'running'"))

        answer = world.restore(ident)

        assert answer.pending
        assert answer.content
        assert ident in world.placeholders()
        world.claw.sql(WINDOW.format("status = 'done'"))
        world.later(30)
        world.scan()
        assert ident not in world.placeholders()

    def test_a_pin_is_set_and_undone(self, world):
        """A pin is a field at the top level of the event, and `restore_all` removes it."""
        before = world.claw.events(GATEWAY)
        ident = _results(world)[0]

        assert not pin(world, ident, False, GATEWAY).pending
        assert json.loads(_texts_by_id(world)[ident])["_extractable"] is False
        world.scan()
        assert ident not in world.placeholders()
        world.restore_all(pristine=True)
        assert world.claw.events(GATEWAY) == before

    def test_a_database_in_use_stops_no_other_session(self, world, conversation, monkeypatch):
        """If a database changes while it is read, search and estimate handle the other agents."""
        conversation.user("a needle")
        world.directory = world.root / "other" / "sessions"
        world.put("s.jsonl", conversation.bytes())
        _change_while_read(world, monkeypatch)

        found = search(world.settings(), world.store, "a needle")

        assert [hit.session for hit in found.hits] == ["other/s"]
        assert len(found.not_searched) == 8
        assert GATEWAY in str(found.not_searched)
        assert "try again" in found.not_searched[0].reason
        assert estimate(world.settings(), world.store, (), LATER).sessions_left_out == 9

    def test_a_search_names_a_session_with_a_damaged_event(self, world):
        """A session that is refused while its events are read is not left out silently."""
        world.claw.sql("UPDATE transcript_events SET event_zstd = x'28b52ffd00'"
                       " WHERE session_id = ? AND event_zstd IS NOT NULL", (KILLED,))  # fmt: skip

        found = search(world.settings(), world.store, "a needle")

        [unread] = found.not_searched
        assert KILLED in unread.session
        assert unread.reason == "one of its events is damaged"

    @pytest.mark.parametrize("read", [
        lambda world: search(world.settings(), world.store, "a needle", GATEWAY),
        lambda world: estimate(world.settings(), world.store, (GATEWAY,), LATER),
        lambda world: pin(world, _results(world)[0], False, GATEWAY),
    ], ids=["search", "estimate", "pin"])  # fmt: skip
    def test_a_named_session_in_use_is_to_be_tried_again(self, world, monkeypatch, read):
        """If it changes while it is read, it is not called empty, nor is its entry missing."""
        _change_while_read(world, monkeypatch)
        with pytest.raises(BusyError, match="try again"):
            read(world)

    def test_cat_prints_the_original_session(self, world):
        """Every placeholder is filled and the database stays unchanged."""
        whole = b"".join(text + b"\n" for text in world.claw.texts(GATEWAY))
        world.scan()
        before = world.claw.contents()

        assert b"".join(cat(world.settings(), world.store, GATEWAY, LATER)) == whole
        assert world.claw.contents() == before

    def test_a_session_is_found_by_key_id_and_path(self, world):
        """The agent may stand before the id."""
        for name in (f"agent:main:explicit:{GATEWAY}", GATEWAY, f"main/{GATEWAY}",
                     f"{world.claw.path}/{GATEWAY}"):  # fmt: skip
            session = session_named(world.settings(), world.store, name)
            assert (session.name, session.agent) == (GATEWAY, "main")

    def test_a_fork_with_placeholders_is_restored(self, world):
        """Rows that the agent copied with their placeholders get their values back."""
        before = world.claw.texts(GATEWAY)
        world.scan()
        fork = _fork(world)
        assert world.placeholders(fork) == world.placeholders(GATEWAY)

        world.later(60)
        world.scan()
        world.restore_all(pristine=True)

        assert world.claw.texts(fork) == before
        assert world.claw.events(fork) == world.claw.events(GATEWAY)

    def test_an_unscanned_fork_with_a_long_event_is_searched(self, world, monkeypatch):
        """An entry of a fork is restored although another event is too long to be read."""
        world.scan()
        ident, fork = world.placeholders()[0], _fork(world)
        texts = world.claw.texts(fork)
        longest = max(len(text) for text in texts if b"[[extracted-" in text)
        monkeypatch.setattr(rows, "LONGEST_LINE", longest)
        assert longest < max(map(len, texts))

        world.later(60)
        restored = world.restore(ident, fork)

        assert not restored.pending
        assert ident not in world.placeholders(fork)

    def test_entries_copied_under_new_ids_are_restored(self, world):
        """Thinking, which no tool call identifies, is matched by the rest of its entry."""
        thought = {"type": "thinking", "thinking": "a long thought " * 300}
        call = {"type": "toolCall", "id": "c9", "name": "exec", "arguments": {}}
        messages = (
            {"role": "assistant", "content": [thought, call], "stopReason": "toolUse"},
            {"role": "toolResult", "toolCallId": "c9", "toolName": "exec", "isError": False,
             "content": [{"type": "text", "text": "what it printed " * 300}]},
            {"role": "assistant", "content": [{"type": "text", "text": "done"}],
             "stopReason": "stop"},
        )  # fmt: skip
        entries = [
            {"type": "message", "id": f"first-{number}", "timestamp": 1, "message": message}
            for number, message in enumerate(messages)
        ]
        now, other = int(WRITTEN * 1000), (b'"id":"first-', b'"id":"second-')
        with claw_agent.transaction(world.claw.path) as agent:
            for entry in entries:
                claw_agent.append(agent, GATEWAY, dump(entry).rstrip(), now)
        world.scan(keep_recent=0)
        assert b"a long thought" not in b"".join(world.claw.texts(GATEWAY))
        with claw_agent.transaction(world.claw.path) as agent:
            here = claw_agent.texts(agent, GATEWAY)[-3:]
            claw_agent.reappend(agent, GATEWAY, 3)
            for _, text in here:
                claw_agent.append(agent, GATEWAY, text.replace(*other), now)

        world.later(60)
        world.restore_all(pristine=True)

        texts = [dump(entry).rstrip() for entry in entries]
        anew = [text.replace(*other) for text in texts]
        assert world.claw.texts(GATEWAY)[-6:] == texts + anew

    def test_many_rows_are_changed_in_several_steps(self, world, monkeypatch):
        """With two rows a step all rows are extracted, and all restored."""
        monkeypatch.setattr(row_steps, "MOST_ROWS", 2)
        before = world.claw.events(GATEWAY)
        world.scan()
        assert len(world.placeholders()) > 6

        world.restore_all(pristine=True)

        assert world.claw.events(GATEWAY) == before

    @pytest.mark.parametrize("pending", [False, True], ids=["at once", "by a scan"])
    def test_one_damaged_value_loses_no_other(self, world, monkeypatch, pending):
        """Every other value of the database is restored, in all steps; the lost one is named."""
        monkeypatch.setattr(row_steps, "MOST_ROWS", 2)
        before = world.claw.texts(GATEWAY)
        world.scan()
        values = [
            value for value in world.store.extractions.contained_in(
                world.store.sessions.at(f"{world.claw.path}/{GATEWAY}").id
            ) if value.blob_id
        ]  # fmt: skip
        damaged = values[len(values) // 2]
        sql(
            world, "UPDATE blobs SET data = zeroblob(length(data)) WHERE id = ?", (damaged.blob_id,)
        )
        lost = [value for value in values if value.blob_id == damaged.blob_id]
        if pending:
            _touch(world, int(world.clock() * 1000))
        answers = {one.session: one for one in world.restore_all(pristine=True)}
        world.later(60)
        if pending:
            assert answers[f"main/{GATEWAY}"].state == "pending"
            world.scan(enabled=False)
        else:
            assert answers[f"main/{GATEWAY}"].values_restored == len(values) - len(lost)
            assert {*answers[f"main/{GATEWAY}"].missed} == {
                f"{value.entry_id}: damaged in the store" for value in lost
            }
        different = [
            now for now, was in zip(world.claw.texts(GATEWAY), before, strict=True) if now != was
        ]

        assert len(values) > 6
        assert len(different) == len({value.entry_id for value in lost})
        assert all(damaged.placeholder.encode() in line for line in different)

    def test_a_turn_between_two_steps_defers_the_rest(self, world, monkeypatch):
        """Finished steps stay recorded, and the next scan extracts the rest."""
        monkeypatch.setattr(row_steps, "MOST_ROWS", 2)
        before = world.claw.texts(GATEWAY)
        monkeypatch.setattr(
            "brainsurgeon.rewrite.apply.time.sleep",
            lambda _: _touch(world, int(LATER * 1000)),
        )

        outcome, reason = world.outcome(GATEWAY)

        assert outcome == "changed"
        assert "the rest waits: changed 0 s ago" in reason
        assert 0 < len(world.placeholders()) <= 2
        monkeypatch.undo()
        world.later(60)
        world.scan()
        assert len(world.placeholders()) > 2
        world.restore_all(pristine=True)
        assert world.claw.texts(GATEWAY) == before


class TestRestoreAll:
    """Placeholders that `restore --all` cannot restore."""

    def test_restore_all_names_a_damaged_archive(self, world):
        """An archive that cannot be read may contain placeholders: the result is unfinished."""
        world.scan()
        world.claw.sql(_ARCHIVE, (COMPACTED, "zstd", b"\x28\xb5\x2f\xfd\0", 1))

        answers = world.restore_all()

        [answer] = [answer for answer in answers if answer.session == str(world.claw.path)]
        assert answer.unfinished
        assert "it may contain placeholders" in answer.reason

    def test_an_unconfirmed_step_leaves_values_extracted(self, world):
        """If a restore was killed and its rows are gone since, its values count as extracted."""
        world.scan()
        store = world.store
        record = next(row for row in store.sessions.all() if GATEWAY in row.path)
        ids = [value.id for value in store.extractions.of_session(record.id)]
        note = Confirmation(restored_ids=ids, rows=[(1, "aa", "bb")])
        with store.transaction():
            store.journal.begin(record.id, world.claw.session(GATEWAY), "", note)
        (rewrite,) = store.journal.open_rewrites()

        recover.settle(store, rewrite, {})

        states = {value.state for value in store.extractions.of_session(record.id)}
        assert states == {"standing"}
        assert store.journal.open_rewrites() == []


class TestRetention:
    """Values expire only when no row, file or archive has their placeholder."""

    def run(self, world, **keys):
        return retention(world.settings(**keys), world.store, clock=world.clock)

    def let_expire(self, world):
        """Advance the clock by 34 days, with scans and retention runs in between."""
        for _ in range(17):
            world.later(2 * DAY)
            world.scan()
            self.run(world)

    def test_values_with_placeholders_in_rows_are_kept(self, world):
        """They are kept with `databases = "off"`, too."""
        world.scan()
        values = _value_ids(world)

        for databases_ in ("auto", "off"):
            for _ in range(7):
                world.later(2 * DAY)
                self.run(world, databases=databases_)

        assert len(_value_ids(world)) == len(values) > 0

    def test_values_of_deleted_sessions_expire(self, world):
        """Sessions that were not archived lose their values, and what earlier programs kept."""
        world.scan()
        deleted = (GATEWAY, COMPACTED, FORK, REWOUND, WINDOW_AFTER_REWIND, LOCAL)
        expired = set().union(*(_value_ids(world, session) for session in deleted))
        sql(world, "INSERT INTO row_columns VALUES (1, 'entry', x'00', x'01', 1, NULL)")
        for session in deleted:
            _delete(world, session)

        self.let_expire(world)

        assert sql(world, "SELECT count(*) FROM row_columns") == [(0,)]
        assert expired
        assert expired.isdisjoint(_value_ids(world))

    @pytest.mark.parametrize("cut_off", [0, 20])
    def test_values_in_an_archive_file_are_kept(self, world, cut_off):
        """A deleted session that its agent archived counts, even if the archive is truncated."""
        world.scan()
        values = _value_ids(world, COMPACTED)
        text = b"".join(line + b"\n" for line in world.claw.texts(COMPACTED))
        _delete(world, COMPACTED)
        directory = world.claw.root / "main" / "sessions"
        directory.mkdir()
        whole = zstandard.ZstdCompressor().compress(text)
        packed = whole[: len(whole) - cut_off]
        archive = directory / f"{COMPACTED}.jsonl.deleted.1795275520000.abc.zst"
        archive.write_bytes(packed)
        os.utime(archive, (world.clock.now + 20 * DAY,) * 2)

        self.let_expire(world)

        assert values <= _value_ids(world)

    def test_values_in_an_archived_row_are_kept(self, world):
        """A session in the database's own archives counts."""
        world.scan()
        values = _value_ids(world, COMPACTED)
        text = b"".join(line + b"\n" for line in world.claw.texts(COMPACTED))
        _delete(world, COMPACTED)
        created_at = (world.clock.now + 20 * DAY) * 1000
        world.claw.sql(_ARCHIVE, (COMPACTED, "identity", text, created_at))

        self.let_expire(world)

        assert values <= _value_ids(world)

    def test_an_unreadable_event_prevents_expiry(self, world):
        """With one event that cannot be unpacked no value below the root expires."""
        world.scan()
        values = len(_value_ids(world))
        restore_all(world.settings(), world.store, clock=world.clock, session=f"main/{COMPACTED}")
        world.claw.sql("UPDATE transcript_events SET event_zstd = x'28b52ffd00'"
                       " WHERE session_id = ? AND event_zstd IS NOT NULL", (KILLED,))  # fmt: skip
        self.run(world)

        world.later(1.5 * DAY)
        report = self.run(world)

        assert len(_value_ids(world)) == values > 0
        assert "damaged" in next(iter(report.held_back.values()))


class TestImportedSessions:
    """Sessions that OpenClaw imported from files, with their placeholders, into its database."""

    @pytest.fixture
    def moved(self, world):
        """Prune a session in a file, import it into the database; return its lines before that."""
        directory = world.claw.root / "main" / "sessions"
        directory.mkdir()
        path = directory / f"{GATEWAY}.jsonl"
        texts = world.claw.texts(GATEWAY)
        header = json.loads(texts[0]) | {"version": 3}
        lines = [json.dumps(header, separators=(",", ":")).encode(), *texts[1:]]
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        hidden = world.claw.path.rename(world.claw.path.with_suffix(".away"))
        world.later(7 * DAY)
        world.scan()
        cut = path.read_bytes().splitlines()
        assert sum(b"[[extracted-" in line for line in cut) > 3
        hidden.rename(world.claw.path)
        for seq, line in enumerate(cut[1:], 1):
            world.claw.sql(_IMPORT, (line.decode(), len(line), GATEWAY, seq))
        archive = world.claw.root / "main" / "session-sqlite-import-archive"
        archive.mkdir()
        path.rename(archive / f"agent_main_x.{GATEWAY}.jsonl.imported-1795276186279")
        return texts

    def test_values_of_an_imported_session_do_not_expire(self, world, moved):
        """Their placeholders stand in rows, although the file is gone."""
        values = len(_value_ids(world))
        for _ in range(14):
            world.later(2 * DAY)
            world.scan()
            report = retention(world.settings(), world.store, clock=world.clock)

        assert (report.held_back, report.values_deleted) == ({}, 0)
        assert len(_value_ids(world)) >= values > 0

    def test_a_root_that_excludes_the_database_keeps_values(self, world, moved):
        """If the root is the old directory of files, nothing expires and the doctor advises."""
        assert moved
        alone = world.claw.root / "main" / "sessions"
        settings = world.settings(roots=[{"path": str(alone)}])
        with world.store.transaction():
            world.store._connection.execute("UPDATE sessions SET root = ?", (bytes(alone),))
        (alone / "s.jsonl").write_bytes(Conversation().bytes())
        for _ in range(34):
            world.later(2 * DAY)
            report = retention(settings, world.store, clock=world.clock)
        scan(settings, world.store, clock=world.clock)
        assert (report.values_deleted, report.values_held > 0) == (0, True)
        assert report.held_back == {str(world.claw.root / "main"): HIDDEN}
        findings = doctor(settings, world.store)
        assert any("the directory of OpenClaw's agents as a root" in row.advice for row in findings)

    def test_values_of_file_and_rows_are_restored_together(self, world, moved):
        """Values extracted before and after the import are undone in one `restore_all`."""
        world.scan(keep_recent=0)
        world.restore_all(pristine=True)

        assert world.claw.texts(GATEWAY)[1:] == moved[1:]


_ARCHIVE = (
    "INSERT INTO session_transcript_archives (session_id, generation, session_key, reason,"
    " encoding, archive_blob, archive_sha256, archive_name, created_at)"
    " VALUES (?, 'g', 'k', 'deleted', ?, ?, hex(zeroblob(32)), 'n', ?)"
)
_IMPORT = (
    "UPDATE transcript_events SET event_json = ?, event_utf8_bytes = ?, event_zstd = NULL,"
    " navigation_json = NULL WHERE session_id = ? AND seq = ?"
)


def _value_ids(world, session=""):
    """Return the ids of the extractions whose values exist, of all sessions or of one."""
    rows = (row for row in world.store.sessions.all() if row.path.endswith(session))
    values = (value for row in rows for value in world.store.extractions.of_session(row.id))
    return {value.id for value in values if value.blob_id is not None}


def status_text(world):
    return render.status(status(world.settings(), world.store, world.clock()), world.clock())


def _texts_by_id(world):
    return {json.loads(text)["id"]: text for text in world.claw.texts(GATEWAY)}


def _results(world, session=GATEWAY):
    entries = [json.loads(text) for text in world.claw.texts(session)]
    return [
        entry["id"] for entry in entries
        if entry.get("message", {}).get("role") == "toolResult" and len(json.dumps(entry)) > 3000
    ]  # fmt: skip


def _files_without_index(world):
    return {name: digest for name, digest in world.claw.contents().items() if name[-4:] != "-shm"}


def _indexed(world):
    """Return the texts of the events that OpenClaw indexes, and the rows of its index."""
    texts = []
    for text in world.claw.texts(GATEWAY):
        message = json.loads(text).get("message", {})
        if message.get("role") in ("user", "assistant"):
            content = message["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            texts.append([block["text"] for block in blocks if block["type"] == "text"])
    return texts, world.claw.sql("SELECT c0, c1, c2 FROM session_transcript_fts_content")


def _touch(world, moment):
    with claw_agent.transaction(world.claw.path) as agent:
        claw_agent.touch(agent, GATEWAY, moment)


def _delete(world, session):
    with claw_agent.transaction(world.claw.path) as agent:
        claw_agent.delete(agent, session, 0, archived=False)


def _change_while_read(world, monkeypatch):
    """Change the agent's database whenever events are read."""
    read = OpenClawDatabases.fetch

    def changing(*arguments):
        with closing(plain_connection(world.claw.path)) as agent:
            agent.execute("UPDATE schema_meta SET updated_at = updated_at + 1")
        return read(*arguments)

    monkeypatch.setattr(OpenClawDatabases, "fetch", staticmethod(changing))


def _fork(world):
    """Fork the gateway's session and return the id of the fork."""
    fork = "f0f0f0f0-0000-4000-8000-000000000000"
    with claw_agent.transaction(world.claw.path) as agent:
        claw_agent.fork(agent, GATEWAY, fork, int(world.clock.now * 1000))
    return fork
