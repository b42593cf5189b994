"""Every verb on sessions that lie in OpenClaw's own databases."""

import json
import os
import sqlite3
from contextlib import closing

import pytest
import zstandard

from brainsurgeon.errors import NotFoundError
from brainsurgeon.hosts import processes as clocks
from brainsurgeon.hosts import sqlite
from brainsurgeon.lookup.sessions import session_named
from brainsurgeon.model.records import Confirmation
from brainsurgeon.operations.cat import cat
from brainsurgeon.operations.doctor import doctor
from brainsurgeon.operations.restore import restore_all, rollback
from brainsurgeon.operations.retention import HIDDEN, retention
from brainsurgeon.operations.scan import scan
from brainsurgeon.operations.sessions import context, sessions
from brainsurgeon.operations.set_extractable import set_extractable
from brainsurgeon.operations.show import show
from brainsurgeon.operations.status import status
from brainsurgeon.render import runs as render
from brainsurgeon.render import runs as standing
from brainsurgeon.rewrite import recover
from brainsurgeon.sessions import row_writing
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
    WINDOW_AFTER_REWIND,
    WRITTEN,
    Claw,
    ClawWorld,
    plain_connection,
)
from building.world import Conversation, dump

WORLD = ClawWorld

DAY = 86_400


@pytest.fixture(params=VERSIONS)
def every_world(request, tmp_path):
    one = ClawWorld(tmp_path, request.param)
    yield one
    one.close()


class TestScanning:
    """A run over databases."""

    def test_a_run_cuts_and_a_second_one_writes_nothing(self, every_world):
        """Values leave an idle session, and a second run finds nothing to do."""
        before = every_world.claw.texts(GATEWAY)

        first = every_world.scan()

        assert not first.failed
        assert GATEWAY in {one.session.removeprefix("main/") for one in first.sessions}
        assert every_world.placeholders()
        after = every_world.claw.contents()
        assert len(every_world.claw.texts(GATEWAY)) == len(before)
        second = every_world.scan()
        assert second.sessions_changed == 0
        assert every_world.claw.contents() == after
        assert list(after) == ["openclaw-agent.sqlite"]
        assert every_world.claw.sound() == []

    def test_everything_is_undone_to_the_column(self, every_world):
        """Restored as it was, no row of any session can be told from what its agent wrote."""
        listed = (GATEWAY, LOCAL, COMPACTED, FORK, REWOUND)
        before = {session: every_world.claw.columns(session) for session in listed}
        every_world.scan()

        answers = every_world.restore_all(pristine=True)

        assert {one.state for one in answers} == {"restored"}
        assert {session: every_world.claw.columns(session) for session in listed} == before
        assert every_world.claw.sound() == []

    def test_a_run_over_databases_is_taken_back_to_the_column(self, world):
        """What one run cut in rows goes back, and what another cut stays; each is told once."""
        before = world.claw.columns(GATEWAY)
        world.scan()
        cut = world.store.runs.named(1).facts
        done = rollback(world.settings(), world.store, 1, clock=world.clock)

        assert {one.state for one in done.sessions} == {"rolled back"}
        assert sum(one.values for one in done.sessions) == cut["extracted"]
        assert len(done.sessions) == cut["sessions"]
        assert world.claw.columns(GATEWAY) == before
        assert world.claw.sound() == []
        told = world.store.events.after(0)
        assert sum(one.facts["values"] for one in told) == 2 * cut["extracted"]
        assert {one.kind for one in told} == {"extraction", "rollback"}

    def test_cuts_need_not_be_durable_and_put_backs_are(self, world, monkeypatch):
        """A cut whose commit is lost brings the old row back; a value restored must not vanish."""
        asked, change = [], row_writing.RowWriter.change

        def noting(*arguments, durable, **keywords):
            asked.append(durable)
            return change(*arguments, durable=durable, **keywords)

        monkeypatch.setattr(row_writing.RowWriter, "change", noting)
        world.scan()
        cuts = len(asked)
        world.restore_all()

        assert cuts > 0
        assert asked == [False] * cuts + [True] * (len(asked) - cuts)
        assert len(asked) > cuts

    def test_user_and_assistant_text_stays(self, world):
        """What OpenClaw's search holds is never cut, even when it is asked for by kind."""
        before = _indexed(world)
        world.scan(trigger_types=["user", "assistant", "tool_result"], min_value_length=1,
                   keep_recent=0)  # fmt: skip

        assert _indexed(world) == before
        assert world.placeholders()
        told = context(world.settings(trigger_types=["user"], keep_recent=0, min_value_length=1),
                       world.store, f"main/{GATEWAY}", LATER)  # fmt: skip
        assert any("index of its agent's database" in part.reason for part in told.plan.kept)

    def test_an_open_turn_is_left_alone_for_ever(self, world):
        """A session that its gateway left in the middle of a turn is not abandoned by silence."""
        world.later(365 * DAY)

        assert world.outcome(KILLED) == ("deferred", "the last turn is open: a tool result")
        assert not world.placeholders(KILLED)

    def test_a_killed_run_blocks_its_session_no_longer(self, world):
        """An open turn that OpenClaw marked as killed is pruned and restored like a closed one."""
        rules = {"keep_recent": 0, "min_value_length": 100}
        assert world.outcome(KILLED, **rules)[0] == "deferred"
        before = world.claw.columns(KILLED)
        world.claw.sql("UPDATE session_windows SET status = 'killed' WHERE session_id = ?",
                       (KILLED,))  # fmt: skip

        assert world.outcome(KILLED, **rules)[0] == "changed"
        assert {one.state for one in world.restore_all(pristine=True)} == {"restored"}
        assert world.claw.columns(KILLED) == before

    def test_a_dry_run_leaves_no_trace_and_says_what_is_meant(self, every_world):
        """A dry run names the database, its version and what stays there, and touches nothing."""
        before = every_world.claw.contents()

        done = every_world.scan(dry_run=True)

        assert every_world.claw.contents() == before
        told = "\n".join(render.report(done))
        assert f"database of main {every_world.claw.path} (OpenClaw 2026." in told
        assert "its sessions are pruned" in told
        assert "saves context, not disk, and hides nothing" in told
        assert render.report_json(done)["databases"][0]["left_alone"] is None

    def test_an_idle_database_is_not_opened(self, world, monkeypatch):
        """When nothing happened, a run looks at two states of files and opens nothing."""
        world.scan()
        world.scan()  # what our own writing changed
        opened = []
        real = sqlite.opened
        monkeypatch.setattr(
            sqlite, "opened", lambda path, *more: opened.append(path) or real(path, *more)
        )

        done = world.scan()

        assert opened == []
        assert (done.files_seen, done.files_unchanged) == (8, 8)

    def test_a_change_in_the_database_is_seen(self, world):
        """After its agent wrote, the session in question is looked at again, and only that."""
        world.scan()
        world.scan()
        with closing(plain_connection(world.claw.path)) as agent:
            agent.execute(
                "UPDATE session_windows SET updated_at = ? WHERE session_id = ?",
                (int(LATER * 1000) + 1000, GATEWAY),
            )
        world.later(10)
        assert world.outcome(GATEWAY) == (
            "deferred",
            "changed 9 s ago; it must be unchanged for 30 s",
        )

        world.later(60)
        assert world.scan().files_unchanged == 7

    def test_a_session_that_waits_is_looked_at_when_its_database_changes(self, world):
        """A no that only its agent can end is asked about again once the database changed."""
        world.claw.sql(
            "INSERT INTO context_engine_turn_outbox (advancement_key, engine_id, session_id,"
            " payload_json, created_at) VALUES ('a', 'e', ?, '{}', 1)", (GATEWAY,),
        )  # fmt: skip
        assert "a turn waits for its context engine, stuck" in world.outcome(GATEWAY)[1]
        world.scan()
        assert world.scan().files_unchanged == 8

        world.claw.sql("DELETE FROM context_engine_turn_outbox")

        assert world.outcome(GATEWAY)[0] == "changed"

    def test_one_database_or_session_can_be_meant(self, world):
        """A run may be limited to a database, or to one session in it."""
        assert world.scan(only=[f"{world.claw.path}/{LOCAL}"]).files_seen == 1
        assert world.scan(only=[str(world.claw.path)]).files_seen == 8

    def test_jsonl_files_beside_a_database_are_never_written(self, world):
        """Files that stand beside the database are left as they are, with the reason."""
        path = world.claw.root / "main" / "sessions" / f"{LOCAL}.jsonl"
        path.parent.mkdir()
        talk = Conversation(LOCAL)
        talk.turn("x" * 3000)
        path.write_bytes(talk.bytes())
        before = path.read_bytes()

        done = world.scan(keep_recent=0)

        reasons = {one.path: one.reason for one in done.sessions}
        assert "SQLite" in reasons[str(path)]
        assert path.read_bytes() == before
        assert session_named(world.settings(), world.store, LOCAL).file.in_database


REFUSALS = {
    "an unknown layout": "PRAGMA user_version = 24",
    "an unknown trigger":
        "CREATE TRIGGER novel AFTER UPDATE ON session_windows BEGIN SELECT 1; END",
    "an added column": "ALTER TABLE session_windows ADD COLUMN novelty TEXT",
}  # fmt: skip

WINDOW = f"UPDATE session_windows SET {{}} WHERE session_id = '{GATEWAY}'"
NODE = f"UPDATE session_nodes SET {{}} WHERE current_session_id = '{GATEWAY}'"
# What is changed in an idle session, and what is said then.
SIGNS = {
    "an open turn": (
        (f"DELETE FROM session_transcript_active_events WHERE session_id = '{GATEWAY}' AND"
         " message_position = (SELECT max(message_position) FROM session_transcript_active_events"
         f" WHERE session_id = '{GATEWAY}')"), "the last turn is open: a tool result"),
    "a run": (WINDOW.format("status = 'running'"), "marked as running by its agent"),
    "a stuck claim": (
        NODE.format("entry_json = json_set(entry_json, '$.activeWriterRunId', 'abcdefghij'),"
                    f" updated_at = {DAY_BEFORE}"),
        "claimed by the run abcdefgh; stuck for 24 h, until OpenClaw restarts"),
    "a queued input": (
        ("INSERT INTO session_pending_inputs (input_id, session_key, session_id, idempotency_key,"
         " run_id, request_hash, message_json, lifecycle_generation, state, accepted_at)"
         " SELECT 'i', session_key, session_id, 'k', 'r', 'h', '{}', 'g', 'queued', ended_at + 1"
         f" FROM session_windows WHERE session_id = '{GATEWAY}'"),
        "a message waits to be answered"),
    "a stuck outbox row": (
        ("INSERT INTO context_engine_turn_outbox (advancement_key, engine_id, session_id,"
         f" payload_json, created_at) VALUES ('a', 'e', '{GATEWAY}', '{{}}', {DAY_BEFORE})"),
        "a turn waits for its context engine, stuck for 24 h; only OpenClaw can settle it"),
    "a foreign runtime": (
        WINDOW.format("agent_harness_id = 'codex'"), "the runtime codex keeps its history itself"),
    "a doctor at work": (
        ("INSERT INTO state_leases (scope, lease_key, owner, expires_at, created_at, updated_at)"
         f" VALUES ('core:agent-database-maintenance', 'x', 'y', {2 * DAY_BEFORE}, 1, 1)"),
        "OpenClaw's doctor is at work on the database"),
}  # fmt: skip


class TestLeavingAlone:
    """Whatever says no, not one byte of the database changes, and the reason is shown."""

    @pytest.mark.parametrize("sign", SIGNS)
    def test_a_sign_of_its_agent_keeps_every_byte(self, world, sign):
        """Scans, restores and pins leave the session as it is; all who are asked say why."""
        statement, expected = SIGNS[sign]
        world.claw.lease()
        world.claw.sql(statement, state="state_leases" in statement)
        with closing(plain_connection(world.claw.path)) as gateway:
            gateway.execute("SELECT * FROM schema_meta").fetchall()
            before = _all_but_the_index(world)

            report = world.scan(only=(f"{world.claw.path}/{GATEWAY}",))
            assert [(one.outcome, one.reason) for one in report.sessions] == [
                ("deferred", expected)
            ]
            listed = sessions(world.settings(), world.store, world.clock())
            assert [one.reason for one in listed if one.session == f"main/{GATEWAY}"] == [expected]
            told = standing.status(
                status(world.settings(), world.store, world.clock()), world.clock()
            )
            assert f"x {expected}" in told
            assert set_extractable(
                world.settings(), world.store, _results(world)[0], False, clock=world.clock,
                session=GATEWAY,
            ).pending  # fmt: skip
            assert _all_but_the_index(world) == before

    @pytest.mark.parametrize("what", REFUSALS)
    def test_a_layout_that_is_not_known_is_only_read(self, world, what):
        """Every session is skipped, status names the version, and values can still be shown."""
        world.scan()
        ident = world.placeholders()[0]
        world.claw.sql(REFUSALS[what])
        before = world.claw.contents()

        world.later(60)
        assert {one.outcome for one in world.scan().sessions} == {"skipped"}
        told = standing.status(status(world.settings(), world.store, LATER), LATER)
        assert "left alone, its layout, version 2" in told
        assert {one.state for one in sessions(world.settings(), world.store, LATER)} == {"skipped"}
        assert show(world.settings(), world.store, ident, session=GATEWAY)
        assert b"[[extracted-" not in b"".join(cat(world.settings(), world.store, GATEWAY, LATER))
        assert any("only read" in one.advice for one in doctor(world.settings(), world.store))
        assert world.claw.contents() == before

    @pytest.mark.parametrize(
        ("configured", "mode", "written"),
        [
            ("{plugins: {slots: {contextEngine: 'lossless'}}}", "auto", False),
            ("{plugins: {slots: {contextEngine: 'lossless'}}}", "engines", True),
            ("{plugins: {slots: {contextEngine: 'legacy'}}}", "auto", True),
            (
                "{about: 'it\\'s a \"claw\" \\\n of two lines', /* own */ agents: [1, 2,],}",
                "auto",
                True,
            ),
            ("{plugins: {$include: './plugins.json'}}", "auto", False),
            ("{plugins: {$include: './plugins.json'}}", "engines", True),
            ("not json at all {", "auto", False),
            ("{}", "off", False),
        ],
    )
    def test_another_context_engine_decides(self, world, configured, mode, written):
        """With another engine nothing is written unless that is allowed; `off` looks at none."""
        world.claw.configure(configured)
        before = world.claw.contents()

        done = world.scan(databases=mode)

        assert bool(world.placeholders()) is written
        assert (world.claw.contents() == before) is not written
        if mode == "off":
            assert done.files_seen == 0

    def test_agents_without_their_programs_state_may_have_any_engine(self, world):
        """Where only the agents can be seen, nobody knows what is configured: none is written."""
        world.claw.state.unlink()
        before = world.claw.path.read_bytes()

        assert {one.outcome for one in world.scan().sessions} == {"skipped"}

        assert world.claw.path.read_bytes() == before
        told = standing.status(status(world.settings(), world.store, LATER), LATER)
        assert 'its configuration cannot be found; databases = "engines" skips this check' in told

    def test_a_database_elsewhere_is_refused_with_the_reason(self, world):
        """With `session.store`, the database in the standard place is neither read nor written."""
        world.claw.configure("{session: {store: '/data/sessions.sqlite'}}")
        before = world.claw.contents()

        done = world.scan()

        assert [(one.path, one.failed) for one in done.problems] == [(str(world.claw.path), False)]
        assert "session.store" in done.problems[0].why
        assert done.files_seen == 0
        assert world.claw.contents() == before

    @pytest.mark.parametrize("odd", [
        NODE.format("entry_json = json_set(entry_json, '$.agentHarnessId', 5)"),
        NODE.format("entry_json = json_set(entry_json, '$.activeWriterRunId', 7)"),
        WINDOW.format("updated_at = 9000000000000000"),
    ])  # fmt: skip
    def test_an_odd_description_closes_its_session_alone(self, world, odd):
        """A number where a name belongs, or a time beyond all clocks, stops nobody else."""
        world.claw.lease()
        world.claw.sql(odd)
        before = world.claw.texts(GATEWAY)

        done = world.scan()

        assert not done.failed
        assert done.sessions_changed > 0
        assert world.claw.texts(GATEWAY) == before

    def test_a_logs_index_that_cannot_be_opened_stops_nobody(self, world):
        """A link in the place of the log's index is followed by nobody, and stops nobody."""
        (world.claw.path.parent / (world.claw.path.name + "-shm")).symlink_to("/elsewhere")

        done = world.scan()

        assert [one.path for one in done.problems] == [str(world.claw.path)]
        assert done.files_seen == 0

    def test_an_odd_database_stops_no_other(self, world):
        """A database that says what nobody understands is named, and the next one is pruned."""
        odd = Claw(world.claw.base, agent="another")
        for statement in (
            "CREATE TABLE odd AS SELECT * FROM transcript_rewrite_watermarks",
            "DROP TABLE transcript_rewrite_watermarks",
            "CREATE TABLE transcript_rewrite_watermarks (session_id, generation, updated_at)",
            "INSERT INTO transcript_rewrite_watermarks SELECT session_id, 5, updated_at FROM odd",
        ):
            odd.sql(statement)
        before = odd.contents()

        done = world.scan()

        assert [one.path for one in done.problems] == [str(odd.path)]
        assert "version 23 (OpenClaw 2026.9.6), differs" in done.problems[0].why
        assert done.sessions_changed > 0
        assert odd.contents() == before
        listed = sessions(world.settings(), world.store, world.clock())
        assert {one.session.partition("/")[0] for one in listed} >= {"main"}

    def test_a_lease_that_nobody_understands_stops_no_run(self, world):
        """Beside such a lease a session that says running is left alone, and the rest is pruned."""
        for statement in (
            "DROP TABLE agent_database_leases",
            "CREATE TABLE agent_database_leases (path, owner_pid, owner_start_time, opened_at)",
            f"INSERT INTO agent_database_leases VALUES ('{world.claw.path}', 'x', 'y', NULL)",
        ):
            world.claw.sql(statement, state=True)
        world.claw.sql(WINDOW.format("status = 'running'"))

        done = world.scan()

        reasons = {one.session: one.reason for one in done.sessions}
        assert reasons[f"main/{GATEWAY}"] == "marked as running by its agent"
        assert done.sessions_changed > 0
        assert not done.failed

    def test_a_session_that_vanishes_is_a_deferral(self, world):
        """A session that is deleted between the listing and its look costs nothing."""
        found = world.claw.session(GATEWAY)
        assert found.in_database
        world.claw.sql("PRAGMA foreign_keys = ON")
        with closing(plain_connection(world.claw.path)) as agent:
            agent.execute("DELETE FROM session_windows WHERE session_id = ?", (GATEWAY,))

        with pytest.raises(NotFoundError):
            session_named(world.settings(), world.store, GATEWAY)
        assert not world.scan().failed


class TestAsking:
    """Restore, show, pins and context of sessions in a database."""

    def test_one_entry_is_put_back_and_protected(self, world):
        """A restored value stands in its row, with the mark, and the next run leaves it."""
        before = dict(zip(_ids(world), world.claw.texts(GATEWAY), strict=True))
        world.scan()
        ident = world.placeholders()[0]

        answer = world.restore(ident)

        assert not answer.pending
        assert ident not in world.placeholders()
        text = dict(zip(_ids(world), world.claw.texts(GATEWAY), strict=True))[ident]
        entry = json.loads(text)
        assert entry.pop("_restored")
        assert entry == json.loads(before[ident])
        world.later(60)
        world.scan()
        assert ident not in world.placeholders()
        world.later(3600)
        world.scan()
        assert ident in world.placeholders()

    def test_an_open_turn_gets_the_value_and_its_row_later(self, world):
        """While its agent is at work the value comes at once, and the row when it is idle."""
        world.scan()
        ident = world.placeholders()[0]
        world.later(1)
        world.claw.lease()
        world.claw.sql("UPDATE session_windows SET status = 'running' WHERE session_id = ?",
                       (GATEWAY,))  # fmt: skip

        answer = world.restore(ident)

        assert answer.pending
        assert answer.content
        assert ident in world.placeholders()
        world.claw.sql("UPDATE session_windows SET status = 'done' WHERE session_id = ?",
                       (GATEWAY,))  # fmt: skip
        world.later(30)
        world.scan()
        assert ident not in world.placeholders()

    def test_a_restore_right_after_a_run_is_done_at_once(self, world):
        """What we wrote ourselves a moment ago does not count as activity of the agent."""
        world.scan()

        assert not world.restore(world.placeholders()[0]).pending

    def test_a_pin_is_set_and_undone(self, world):
        """A field of ours stands at the top level of the event, and goes without a trace."""
        before = world.claw.columns(GATEWAY)
        ident = _results(world)[0]

        answer = set_extractable(
            world.settings(), world.store, ident, False, clock=world.clock, session=GATEWAY
        )

        assert not answer.pending
        entry = json.loads(dict(zip(_ids(world), world.claw.texts(GATEWAY), strict=True))[ident])
        assert entry["_extractable"] is False
        world.scan()
        assert ident not in world.placeholders()
        world.restore_all(pristine=True)
        assert world.claw.columns(GATEWAY) == before

    def test_cat_fills_every_placeholder(self, world):
        """The whole session comes out as its agent wrote it, and nothing is touched."""
        whole = b"".join(text + b"\n" for text in world.claw.texts(GATEWAY))
        world.scan()
        before = world.claw.contents()

        assert b"".join(cat(world.settings(), world.store, GATEWAY, LATER)) == whole
        assert world.claw.contents() == before

    def test_a_session_is_found_by_its_key(self, world):
        """A session can be named as its agent calls it, by its id, and by its path."""
        for name in (f"agent:main:explicit:{GATEWAY}", GATEWAY, f"main/{GATEWAY}",
                     f"{world.claw.path}/{GATEWAY}"):  # fmt: skip
            found = session_named(world.settings(), world.store, name)
            assert (found.name, found.agent) == (GATEWAY, "main")

    def test_a_fork_made_after_the_cut_is_restored_too(self, world):
        """Rows that its agent copied with their placeholders get their values back as well."""
        before = world.claw.texts(GATEWAY)
        world.scan()
        _fork(world, GATEWAY, "f0f0f0f0-0000-4000-8000-000000000000")
        fork = "f0f0f0f0-0000-4000-8000-000000000000"
        assert world.placeholders(fork) == world.placeholders(GATEWAY)

        world.later(60)
        world.scan()
        world.restore_all(pristine=True)

        assert world.claw.texts(fork) == before
        assert world.claw.columns(fork) == world.claw.columns(GATEWAY)

    def test_what_is_appended_anew_is_restored_in_both_places(self, world):
        """Its agent wrote the end of a branch anew, with other ids; the first ones stay, too.

        What no tool call anchors, thinking here, is known by all that its entry says.
        """
        thought = {"type": "thinking", "thinking": "a long thought " * 300}
        call = {"type": "toolCall", "id": "c9", "name": "exec", "arguments": {}}
        messages = (
            {"role": "assistant", "content": [thought, call], "stopReason": "toolUse"},
            {"role": "toolResult", "toolCallId": "c9", "toolName": "exec", "isError": False,
             "content": [{"type": "text", "text": "what it printed " * 300}]},
            {"role": "assistant", "content": [{"type": "text", "text": "done"}],
             "stopReason": "stop"},
        )  # fmt: skip
        said = [
            {"type": "message", "id": f"first-{number}", "timestamp": 1, "message": message}
            for number, message in enumerate(messages)
        ]
        now, other = int(WRITTEN * 1000), (b'"id":"first-', b'"id":"second-')
        with claw_agent.transaction(world.claw.path) as agent:
            for entry in said:
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

        texts = [dump(entry).rstrip() for entry in said]
        anew = [text.replace(*other) for text in texts]
        assert world.claw.texts(GATEWAY)[-6:] == texts + anew

    def test_many_rows_go_in_several_steps(self, world, monkeypatch):
        """With few rows a step, all of them are done, newest first, and all are undone."""
        monkeypatch.setattr(row_writing, "MOST_ROWS", 2)
        before = world.claw.columns(GATEWAY)
        world.scan()
        assert len(world.placeholders()) > 6

        world.restore_all(pristine=True)

        assert world.claw.columns(GATEWAY) == before

    def test_a_turn_between_two_steps_ends_the_work_there(self, world, monkeypatch):
        """What was done stays recorded, the rest waits for the next run, and nothing is lost."""
        monkeypatch.setattr(row_writing, "MOST_ROWS", 2)
        before = world.claw.texts(GATEWAY)
        monkeypatch.setattr(
            "brainsurgeon.rewrite.apply.time.sleep",
            lambda _: _touch(world, GATEWAY, int(LATER * 1000)),
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


class TestUndoingEverything:
    """Who undoes everything hears of every placeholder that stays."""

    def test_archives_that_cannot_be_read_are_named(self, world):
        """An archive that is damaged is no archive without placeholders."""
        world.scan()
        world.claw.sql(
            "INSERT INTO session_transcript_archives (session_id, generation, session_key, reason,"
            " encoding, archive_blob, archive_sha256, archive_name, created_at)"
            " VALUES (?, 'g', 'k', 'deleted', 'zstd', x'28b52ffd00', hex(zeroblob(32)), 'n', 1)",
            (COMPACTED,),
        )

        answers = world.restore_all()

        (told,) = [one for one in answers if one.session == str(world.claw.path)]
        assert told.unfinished
        assert "it may contain placeholders" in told.reason

    def test_a_step_that_nobody_can_tell_of_fulfils_no_request(self, world):
        """Killed before a put-back, with its rows gone since: it stays to be restored."""
        world.scan()
        store = world.store
        record = next(one for one in store.sessions.all() if GATEWAY in one.path)
        held = store.extractions.of_session(record.id)
        note = Confirmation(restored_ids=[one.id for one in held], rows=[(1, "aa", "bb")])
        with store.transaction():
            store.journal.begin(record.id, world.claw.session(GATEWAY), "", note)
        (rewrite,) = store.journal.open_rewrites()

        recover.settle(store, rewrite, {})

        states = {one.id: one.state for one in store.extractions.of_session(record.id)}
        assert set(states.values()) == {"standing"}
        assert store.journal.open_rewrites() == []


class TestRetention:
    """A placeholder counts wherever it stands."""

    @pytest.fixture(autouse=True)
    def one_clock(self, world, monkeypatch):
        monkeypatch.setattr("brainsurgeon.hosts.processes.boot_clock", world.clock)
        monkeypatch.setattr("brainsurgeon.operations.retention.clocks.boot_clock", world.clock)

    def run(self, world, **keys):
        return retention(world.settings(**keys), world.store, clock=world.clock)

    def let_expire(self, world, **keys):
        """Let a month pass, and some days, with runs and retention runs in between."""
        for _ in range(17):
            world.later(2 * DAY)
            world.scan(**keys)
            done = self.run(world, **keys)
        return done

    def test_values_whose_placeholders_stand_are_kept(self, world):
        """Placeholders in rows keep their values, also when databases are not to be looked at."""
        world.scan()
        held = _held(world)

        for databases_ in ("auto", "off"):
            for _ in range(7):
                world.later(2 * DAY)
                self.run(world, databases=databases_)

        assert len(_held(world)) == len(held) > 0

    def test_values_of_deleted_sessions_go(self, world):
        """Where a session was deleted and archived nowhere, its values expire."""
        world.scan()
        gone = _held(world, COMPACTED)
        _delete(world, COMPACTED)

        self.let_expire(world)

        assert gone
        assert gone.isdisjoint(_held(world))

    @pytest.mark.parametrize("cut_off", [0, 20])
    def test_an_archive_of_its_agent_keeps_the_values(self, world, cut_off):
        """A deleted session that its agent archived still counts, also where that was cut off."""
        world.scan()
        kept = _held(world, COMPACTED)
        text = b"".join(one + b"\n" for one in world.claw.texts(COMPACTED))
        _delete(world, COMPACTED)
        directory = world.claw.root / "main" / "sessions"
        directory.mkdir()
        whole = zstandard.ZstdCompressor().compress(text)
        packed = whole[: len(whole) - cut_off]
        archive = directory / f"{COMPACTED}.jsonl.deleted.1795275520000.abc.zst"
        archive.write_bytes(packed)
        os.utime(archive, (world.clock.now + 20 * DAY,) * 2)

        self.let_expire(world)

        assert kept <= _held(world)

    def test_an_archive_in_the_database_keeps_the_values(self, world):
        """A session that lies in the database's own archives still counts."""
        world.scan()
        kept = _held(world, COMPACTED)
        text = b"".join(one + b"\n" for one in world.claw.texts(COMPACTED))
        _delete(world, COMPACTED)
        world.claw.sql(
            "INSERT INTO session_transcript_archives (session_id, generation, session_key, reason,"
            " encoding, archive_blob, archive_sha256, archive_name, created_at)"
            " VALUES (?, 'g', 'k', 'deleted', 'identity', ?, hex(zeroblob(32)), 'n', ?)",
            (COMPACTED, text, (world.clock.now + 20 * DAY) * 1000),
        )

        self.let_expire(world)

        assert kept <= _held(world)

    def test_what_cannot_be_read_counts_as_standing(self, world):
        """With one event that cannot be unpacked, nothing is deleted below that root."""
        world.scan()
        held = len(_held(world))
        restore_all(world.settings(), world.store, clock=world.clock, session=f"main/{COMPACTED}")
        self.run(world)
        world.claw.sql("UPDATE transcript_events SET event_zstd = x'28b52ffd00'"
                       " WHERE session_id = ? AND event_zstd IS NOT NULL", (KILLED,))  # fmt: skip

        world.later(1.5 * DAY)
        done = self.run(world)

        assert len(_held(world)) == held > 0
        assert "damaged" in next(iter(done.held_back.values()))

    def test_columns_go_with_the_last_value_of_their_entry(self, world):
        """What we kept of a row's own columns is release with the row's values."""
        world.scan()
        with closing(sqlite3.connect(world.base / "state" / "store.db")) as store:
            before = store.execute("SELECT count(*) FROM row_columns").fetchone()[0]
        for session in (GATEWAY, COMPACTED, FORK, REWOUND, WINDOW_AFTER_REWIND, LOCAL):
            _delete(world, session)

        self.let_expire(world)

        with closing(sqlite3.connect(world.base / "state" / "store.db")) as store:
            after = store.execute("SELECT count(*) FROM row_columns").fetchone()[0]
        assert before > after


class TestMovingIn:
    """An agent that moved from files to a database keeps its values."""

    @pytest.fixture
    def moved(self, world):
        """Prune a session while it lies in a file, then let its agent take it over."""
        directory = world.claw.root / "main" / "sessions"
        directory.mkdir()
        path = directory / f"{GATEWAY}.jsonl"
        texts = world.claw.texts(GATEWAY)
        header = json.loads(texts[0]) | {"version": 3}
        lines = [json.dumps(header, separators=(",", ":")).encode(), *texts[1:]]
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        away = world.claw.path.rename(world.claw.path.with_suffix(".away"))
        world.later(7 * DAY)
        world.scan()
        cut = path.read_bytes().splitlines()
        assert sum(b"[[extracted-" in line for line in cut) > 3
        away.rename(world.claw.path)
        for seq, line in enumerate(cut[1:], 1):
            world.claw.sql(_TAKE_OVER, (line.decode(), len(line), GATEWAY, seq))
        archive = world.claw.root / "main" / "session-sqlite-import-archive"
        archive.mkdir()
        path.rename(archive / f"agent_main_x.{GATEWAY}.jsonl.imported-1795276186279")
        return texts

    def test_its_placeholders_are_put_back(self, world, moved):
        """What was extracted from the file goes back into rows that no run has seen yet."""
        ident = world.placeholders()[0]

        assert not world.restore(ident).pending
        assert ident not in world.placeholders()
        world.restore_all(pristine=True)
        assert world.claw.texts(GATEWAY)[1:] == moved[1:]

    def test_its_values_do_not_expire(self, world, moved):
        """The placeholders in its rows stand, although the file is gone."""
        held = len(_held(world))
        for _ in range(14):
            world.later(2 * DAY)
            world.scan()
            retention(world.settings(), world.store, clock=world.clock)

        assert len(_held(world)) >= held > 0

    def test_a_root_without_the_database_keeps_the_values(self, world, moved, monkeypatch):
        """Values stay where the root is the old directory of files and no row is seen."""
        assert moved
        monkeypatch.setattr(clocks, "boot_clock", lambda: world.clock.now)
        alone = world.claw.root / "main" / "sessions"
        settings = world.settings(roots=[{"path": str(alone)}])
        with world.store.transaction():
            world.store._connection.execute("UPDATE sessions SET root = ?", (bytes(alone),))
        (alone / "s.jsonl").write_bytes(Conversation().bytes())
        for _ in range(34):
            world.later(2 * DAY)
            done = retention(settings, world.store, clock=world.clock)
        scan(settings, world.store, clock=world.clock)
        assert (done.values_deleted, done.values_held > 0) == (0, True)
        assert done.held_back == {str(world.claw.root / "main"): HIDDEN}
        advice = {one.advice for one in doctor(settings, world.store)}
        assert any("the directory of OpenClaw's agents as a root" in one for one in advice)

    def test_what_is_cut_later_joins_what_was_cut_before(self, world, moved):
        """After a run over the rows, everything of both times is undone together."""
        world.scan(keep_recent=0)
        world.restore_all(pristine=True)

        assert world.claw.texts(GATEWAY)[1:] == moved[1:]


_TAKE_OVER = (
    "UPDATE transcript_events SET event_json = ?, event_utf8_bytes = ?, event_zstd = NULL,"
    " navigation_json = NULL WHERE session_id = ? AND seq = ?"
)


def _held(world, session=""):
    """Give the ids of the extractions whose values are held, of all sessions or of one."""
    of = (one for one in world.store.sessions.all() if one.path.endswith(session))
    taken = (value for one in of for value in world.store.extractions.of_session(one.id))
    return {value.id for value in taken if value.blob_id is not None}


def _ids(world, session=GATEWAY):
    return [json.loads(text)["id"] for text in world.claw.texts(session)]


def _results(world, session=GATEWAY):
    entries = [json.loads(text) for text in world.claw.texts(session)]
    return [
        one["id"] for one in entries
        if one.get("message", {}).get("role") == "toolResult" and len(json.dumps(one)) > 3000
    ]  # fmt: skip


def _all_but_the_index(world):
    return {name: told for name, told in world.claw.contents().items() if not name.endswith("-shm")}


def _indexed(world):
    """Read what OpenClaw's search would find in its events, and what its index holds."""
    texts = []
    for text in world.claw.texts(GATEWAY):
        message = json.loads(text).get("message", {})
        if message.get("role") in ("user", "assistant"):
            content = message["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            texts.append([block["text"] for block in blocks if block["type"] == "text"])
    row_writing = world.claw.sql("SELECT c0, c1, c2 FROM session_transcript_fts_content")
    return texts, row_writing


def _touch(world, session, moment):
    with closing(plain_connection(world.claw.path)) as agent:
        agent.execute("UPDATE session_windows SET updated_at = ? WHERE session_id = ?",
                      (moment, session))  # fmt: skip


def _delete(world, session):
    with closing(plain_connection(world.claw.path)) as agent:
        agent.execute("PRAGMA foreign_keys = ON")
        for table in ("session_transcript_active_events", "transcript_events", "session_windows"):
            agent.execute(f"DELETE FROM {table} WHERE session_id = ?", (session,))


def _fork(world, session, fork):
    key = f"agent:main:dashboard:{fork}"
    tables = {
        "session_nodes": ("session_key LIKE '%' || ?", {
            "session_key": key, "current_session_id": fork, "fork_source_session_id": session}),
        "session_windows": ("session_id = ?", {"session_id": fork, "session_key": key}),
        "transcript_events": ("session_id = ?", {"session_id": fork}),
        "session_transcript_active_events": ("session_id = ?", {"session_id": fork}),
        "session_transcript_index_state": ("session_id = ?", {"session_id": fork}),
        "transcript_rewrite_watermarks": ("session_id = ?", {"session_id": fork}),
    }  # fmt: skip
    with closing(plain_connection(world.claw.path)) as agent:
        for table, (where, other) in tables.items():
            columns = [row[1] for row in agent.execute(f"PRAGMA table_info({table})")]
            chosen = ", ".join("?" if name in other else name for name in columns)
            values = [other[name] for name in columns if name in other]
            agent.execute(
                f"INSERT INTO {table} ({', '.join(columns)}) SELECT {chosen} FROM {table}"
                f" WHERE {where}", (*values, session),
            )  # fmt: skip
