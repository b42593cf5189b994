"""The gate of a session in OpenClaw's database: signs that forbid a write."""

import os
import subprocess
import sys

import pytest

from brainsurgeon.agents.openclaw import database as openclaw_database
from brainsurgeon.agents.openclaw.gate import windows
from brainsurgeon.files import sqlite, transactions
from brainsurgeon.files.reading import RefusedError
from brainsurgeon.model.session_files import NotIdleError, Root
from brainsurgeon.sessions.discovery import open_session
from brainsurgeon.sessions.row_listing import list_rows_at
from building.claw import (
    COMPACTED,
    DAY_BEFORE,
    FORK,
    GATEWAY,
    KILLED,
    LATER,
    LOCAL,
    NEWEST,
    RESET,
    REWOUND,
    WINDOW_AFTER_REWIND,
    WRITTEN,
    Claw,
)  # fmt: skip

QUIET = 30.0


def refusal(claw, session=GATEWAY, now=LATER, own=None, quiet=QUIET):
    """Return the error with which the gate refuses a write, or None."""
    path = f"{claw.path}/{session}"
    (file,) = list_rows_at([Root(str(claw.root))], path, {path: own})
    with open_session(file) as opened:
        if opened.obstacle:
            return RefusedError(opened.obstacle)
        try:
            opened.check_turn(None, quiet, now)
        except NotIdleError as error:
            return error


def reason(claw, *arguments, **keys):
    error = refusal(claw, *arguments, **keys)
    return str(error) if error else None


def test_idle_session_may_be_written_in_every_version(every_claw):
    """A session is idle if its last turn is closed and quiet."""
    assert reason(every_claw, GATEWAY) is None
    assert reason(every_claw, LOCAL) is None


@pytest.mark.parametrize(
    ("session", "expected"),
    [
        (COMPACTED, None),
        (RESET, None),
        (FORK, None),
        (REWOUND, None),
        (WINDOW_AFTER_REWIND, None),
        (KILLED, "the last turn is open: a tool result"),
    ],
)
def test_sessions_with_a_history_are_judged_by_their_end(claw, session, expected):
    """Compaction, reset, fork and rewind leave an idle session, a killed gateway an open turn."""
    assert reason(claw, session) == expected


NODE = "UPDATE session_nodes SET {} WHERE session_key LIKE '%000000000001'"
WINDOW = "UPDATE session_windows SET {} WHERE session_id LIKE '%000000000001'"
QUEUED = (
    "INSERT INTO session_pending_inputs (input_id, session_key, session_id, idempotency_key,"
    " run_id, request_hash, message_json, lifecycle_generation, state, accepted_at)"
    " SELECT 'i', session_key, session_id, 'k', 'r', 'h', '{{}}', 'g', 'queued', {}"
    " FROM session_windows WHERE session_id LIKE '%000000000001'"
)
# A change of an idle session's database, and the reason of the gate.
SIGNS = {
    "the window says running": (
        WINDOW.format("status = 'running'"), "marked as running by its agent"),
    "the node says running": (NODE.format("status = 'running'"), "marked as running by its agent"),
    "the entry says running": (
        NODE.format("entry_json = json_set(entry_json, '$.status', 'running')"),
        "marked as running by its agent"),
    "the entry says something unknown": (
        NODE.format("entry_json = json_set(entry_json, '$.status', 'dreaming')"),
        "marked as dreaming by its agent"),
    "a run has claimed it": (
        NODE.format("entry_json = json_set(entry_json, '$.activeWriterRunId', 'abcdefghij')"),
        "claimed by the run abcdefgh"),
    "a run has begun": (
        NODE.format("entry_json = json_remove(entry_json, '$.lastRunId')"), "claimed by the run"),
    "the entry cannot be read": (
        NODE.format("entry_json = '{'"), "OpenClaw's record of its session key cannot be read"),
    "a message is queued": (
        QUEUED.format("ended_at + 1"),
        "a message waits to be answered"),
    "a turn waits for its engine": (
        ("INSERT INTO context_engine_turn_outbox (advancement_key, engine_id, session_id,"
        f" payload_json, created_at) SELECT 'a', 'e', session_id, '{{}}', {DAY_BEFORE}"
        " FROM session_windows WHERE session_id LIKE '%000000000001'"),
        "a turn waits for its context engine, stuck for 24 h; only OpenClaw can settle it"),
    "its events were archived": (
        ("INSERT INTO session_transcript_cold_archives SELECT session_id, 'g', 'n',"
        " hex(zeroblob(32)), 1, 1, 1, 1, 1, 'file', NULL"
        " FROM session_windows WHERE session_id LIKE '%000000000001'"),
        "its events were moved to an archive"),
    "its index is to be rebuilt": (
        "UPDATE session_transcript_index_state SET needs_rebuild = 1",
        "OpenClaw has yet to index it again"),
    "it has no generation": (
        "DELETE FROM transcript_rewrite_watermarks", "it has no events yet"),
    "another runtime": (
        WINDOW.format("agent_harness_id = 'codex'"), "the runtime codex keeps its history itself"),
    "another runtime in the entry": (
        NODE.format("entry_json = json_set(entry_json, '$.agentHarnessId', 'claude-cli')"),
        "the runtime claude-cli keeps its history itself"),
    "an ACP session": (
        WINDOW.format("acp_owned = 1"), "the runtime acp keeps its history itself"),
    "its transcript changed": (
        WINDOW.format(f"transcript_updated_at = {LATER * 1000:.0f} - 5000"),
        "changed 5 s ago; it must be unchanged for 30 s"),
    "its transcript was observed": (
        WINDOW.format(f"transcript_observed_at = {LATER * 1000:.0f} - 5000"),
        "changed 5 s ago; it must be unchanged for 30 s"),
    "its window changed": (
        WINDOW.format(f"updated_at = {LATER * 1000:.0f} - 5000"),
        "changed 5 s ago; it must be unchanged for 30 s"),
    "its node changed": (
        NODE.format(f"updated_at = {LATER * 1000:.0f} - 5000"),
        "changed 5 s ago; it must be unchanged for 30 s"),
    "a clock runs ahead": (
        WINDOW.format(f"updated_at = {LATER * 1000:.0f} + 60000"), "its times lie in the future"),
    "an open turn": (
        ("DELETE FROM session_transcript_active_events WHERE session_id LIKE '%000000000001' AND"
        " message_position = (SELECT max(message_position) FROM session_transcript_active_events"
        " WHERE session_id LIKE '%000000000001')"),
        "the last turn is open: a tool result"),
    "no message": (
        "DELETE FROM session_transcript_active_events WHERE session_id LIKE '%000000000001'",
        "it has no message yet"),
    "versions that disagree": (
        "UPDATE schema_meta SET schema_version = 21",
        "version 23 (OpenClaw 2026.9.6), is recorded as version 21, too"),
    "not an agent's database": (
        "UPDATE schema_meta SET role = 'global'", "not the database of an OpenClaw agent"),
    "an added column": (
        "ALTER TABLE transcript_events ADD COLUMN novelty TEXT",
        "differs from the known ones in table transcript_events"),
    "a column that is asked": (
        "ALTER TABLE session_pending_inputs ADD COLUMN novelty TEXT",
        "differs from the known ones in table session_pending_inputs"),
    "an unknown trigger": (
        "CREATE TRIGGER novel AFTER UPDATE ON transcript_events BEGIN SELECT 1; END",
        "differs from the known ones in trigger novel"),
    "a trigger that spells the table differently": (
        "CREATE TRIGGER novel AFTER UPDATE ON Session_Windows BEGIN SELECT 1; END",
        "differs from the known ones in trigger novel"),
    "an unknown index": (
        "CREATE INDEX novel ON transcript_events (created_at)",
        "differs from the known ones in index novel"),
    "a missing index": (
        "DROP INDEX idx_agent_session_windows_updated_at",
        "differs from the known ones in index idx_agent_session_windows_updated_at"),
    "a changed table of archives": (
        "ALTER TABLE session_transcript_cold_archives ADD COLUMN novelty TEXT",
        "differs from the known ones in table session_transcript_cold_archives"),
}  # fmt: skip


@pytest.mark.parametrize("sign", SIGNS)
def test_each_sign_alone_closes_the_gate(claw, sign):
    """In an otherwise idle database, each sign refuses a write with its own reason."""
    statement, expected = SIGNS[sign]
    claw.lease()
    claw.sql(statement)

    assert expected in (reason(claw) or "")


def test_known_trigger_with_another_body_closes_the_gate(claw):
    """A trigger counts as known by its text, not by its name."""
    name = "session_windows_canonical_pending_after_delete"
    claw.sql(f"DROP TRIGGER {name}")
    assert reason(claw) is None
    claw.sql(f"CREATE TRIGGER {name} AFTER DELETE ON session_windows BEGIN SELECT 1; END")

    assert f"differs from the known ones in trigger {name};" in reason(claw)


def test_known_layout_with_another_number_may_be_written(every_claw):
    """A layout is known by its tables, indexes and triggers, not by its number."""
    every_claw.sql("PRAGMA user_version = 24")
    every_claw.sql("UPDATE schema_meta SET schema_version = 24")

    assert reason(every_claw) is None


def test_recent_change_gives_the_time_of_its_end(claw):
    """The refusal says until when it holds, and holds no longer."""
    claw.sql(WINDOW.format(f"updated_at = {LATER * 1000:.0f} - 5000"))

    assert refusal(claw).until == pytest.approx(LATER + 25)
    assert refusal(claw, now=LATER + 25) is None


def test_own_last_write_is_no_activity(claw):
    """The recorded time of brainsurgeon's last write does not count as a change."""
    own = int(LATER * 1000) - 5000  # milliseconds
    claw.sql(WINDOW.format(f"transcript_updated_at = {own}, transcript_observed_at = {own}"))

    assert reason(claw) == "changed 5 s ago; it must be unchanged for 30 s"
    assert reason(claw, own=own) is None


class TestDeadClaims:
    """Claims and statuses without a living process."""

    def test_claim_is_dead_if_no_process_has_the_database_open(self, claw):
        """A claim and a running status are dead if no process has the database open."""
        claw.sql(NODE.format("status = 'running'"))
        claw.sql(NODE.format("entry_json = json_set(entry_json, '$.activeWriterRunId', 'x')"))

        assert reason(claw) is None

    def test_lease_of_an_ended_or_reused_pid_is_ignored(self, claw):
        """The lease of an ended process, or of a reused pid, does not keep a status alive."""
        ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"],
                              capture_output=True, check=True)  # fmt: skip
        claw.lease(pid=int(ended.stdout), started=1)
        claw.lease(pid=os.getpid(), started=1)
        claw.sql(NODE.format("status = 'running'"))

        assert reason(claw) is None

    def test_running_status_counts_while_an_owner_lives(self, claw):
        """A running status counts while a process has the database open, however old it is."""
        claw.lease(since=LATER - 3600)
        claw.sql(NODE.format("status = 'running'"))

        assert reason(claw) == "marked as running by its agent"

    def test_claim_older_than_every_owner_is_dead(self, claw):
        """The claim of a finished local run is dead once a later process has the database open."""
        claw.lease(since=LATER - 3600)

        assert reason(claw, LOCAL) is None

    def test_claim_counts_just_after_an_owner_opened(self, claw):
        """A process that has just opened the database may be about to begin a run."""
        claw.lease(since=LATER - 10)

        assert "claimed by the run" in reason(claw, LOCAL)
        assert reason(claw, LOCAL, now=LATER + 30) is None

    def test_claim_younger_than_an_owner_counts(self, claw):
        """A claim that one of the owners may have made counts."""
        claw.lease(since=LATER - 3600)
        claw.lease(since=WRITTEN - 3600)

        assert "a restart of OpenClaw ends the claim" in reason(claw, LOCAL)

    def test_queued_message_older_than_a_finished_run_is_dead(self, claw):
        """A gateway that was killed before it stored a message does not block the session."""
        claw.sql(QUEUED.format("ended_at - 1"))
        assert reason(claw) is None

        claw.lease(since=LATER - 10)
        assert reason(claw) == "a message waits to be answered"
        assert reason(claw, now=LATER + 30) is None

    @pytest.mark.parametrize(("accepted", "since"), [
        ("ended_at + 1", LATER - 3600),  # no run has finished since
        ("ended_at - 1", WRITTEN - 3600),  # its gateway lives
    ], ids=["no run finished since", "its gateway lives"])  # fmt: skip
    def test_queued_message_that_may_be_answered_counts(self, claw, accepted, since):
        """The newest message and one of a living gateway are not dead."""
        claw.lease(since=since)
        claw.sql(QUEUED.format(accepted))

        assert reason(claw) == "a message waits to be answered"

    def test_killed_run_counts_only_while_its_process_lives(self, claw):
        """OpenClaw marks the run as killed before its process has ended."""
        ended = int(LATER * 1000) - 60_000
        claw.sql("UPDATE session_windows SET status = 'killed', ended_at = ?, updated_at = ?"
                 " WHERE session_id = ?", (ended, ended, KILLED))  # fmt: skip
        claw.lease(since=LATER - 3600)
        assert reason(claw, KILLED) == "marked as running by its agent"

        claw.sql("UPDATE session_nodes SET status = 'killed', updated_at = ?, entry_json ="
                 " json_set(entry_json, '$.status', 'killed') WHERE current_session_id = ?",
                 (ended, KILLED))  # fmt: skip
        assert reason(claw, KILLED) is None

        claw.lease(since=WRITTEN - 3600)
        assert "claimed by the run" in reason(claw, KILLED)

    def test_claim_counts_while_a_process_without_lease_is_open(self, claw):
        """A process in another container has no lease here, but holds SQLite's lock."""
        claw.sql(NODE.format("status = 'running'"))
        assert reason(claw) is None
        holder = subprocess.Popen(
            [sys.executable, "-c",
             ("import sqlite3, sys\n"
             "c = sqlite3.connect(sys.argv[1]); c.execute('SELECT * FROM schema_meta').fetchall()\n"
             "print('open', flush=True); sys.stdin.read()"), str(claw.path)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        with holder:
            holder.stdout.readline()
            reason_while_open = reason(claw)
            holder.stdin.close()

        assert reason_while_open == "marked as running by its agent"

    def test_claim_counts_without_a_state_database(self, claw):
        """Without the state database the owners are unknown, so every claim counts."""
        claw.state.unlink()

        assert "claimed by the run" in reason(claw, LOCAL)
        assert reason(claw, GATEWAY) is None

    def test_maintenance_refuses_every_write_until_it_ends(self, claw):
        """A live maintenance lease is OpenClaw's doctor at work."""
        claw.sql(
            "INSERT INTO state_leases (scope, lease_key, owner, expires_at, created_at, updated_at)"
            " VALUES ('core:agent-database-maintenance', 'main', 'doctor', ?, 1, 1)",
            (int(LATER * 1000) + 60_000,), state=True,
        )  # fmt: skip

        assert reason(claw) == "OpenClaw's doctor is at work on the database"
        assert reason(claw, now=LATER + 120) is None

    def test_session_placed_on_a_worker_is_refused(self, claw):
        """A session that a worker on another machine runs is refused."""
        claw.sql(
            "UPDATE worker_session_placements SET state = 'requested' WHERE session_id = ?",
            (GATEWAY,), state=True,
        )  # fmt: skip

        assert reason(claw) == "a worker on another machine is running it"


class TestFinding:
    """Databases below a root, and refused places."""

    def test_databases_finds_the_standard_layout(self, claw):
        """Each agent's database is listed with its agent's name."""
        Claw(claw.base, NEWEST, agent="other")

        databases = list(openclaw_database.databases(str(claw.root)))

        assert [(database.agent, database.path) for database in databases] == [
            ("main", str(claw.path)),
            ("other", str(claw.root / "other" / "agent" / "openclaw-agent.sqlite")),
        ]
        assert openclaw_database.misplaced(databases[0].path) is None

    def test_databases_skips_side_databases_and_links(self, claw):
        """A link to a database file is listed with a reason, not followed."""
        directory = claw.path.parent
        for name in (
            "openclaw-agent.sqlite.reindex-lock.sqlite",
            "incognito-openclaw-agent.sqlite",
        ):
            (directory / name).write_bytes(b"")
        (claw.root / "empty").mkdir()
        (claw.root / "linked").symlink_to(claw.root / "main")
        (claw.root / "inner").mkdir()
        (claw.root / "inner" / "agent").symlink_to(directory)
        other = claw.root / "pointing" / "agent"
        other.mkdir(parents=True)
        (other / "openclaw-agent.sqlite").symlink_to(claw.path)

        databases = list(openclaw_database.databases(str(claw.root)))

        assert [database.path for database in databases] == [
            str(claw.path), str(other / "openclaw-agent.sqlite"),
        ]  # fmt: skip
        assert databases[1].reason == "not a plain file"

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
    def test_database_of_another_user_is_unwritable(self, claw):
        """The agent could not open a log of another user; root and the owner may write."""
        path = str(claw.path)
        assert transactions.unwritable(path) is None
        os.chown(path, 65534, 65534)
        claw.path.parent.chmod(0o755)
        assert transactions.unwritable(path) is None
        result = os.open(claw.base, os.O_TMPFILE | os.O_RDWR)
        if (child := os.fork()) == 0:
            try:
                os.chdir(claw.path.parent)  # the other user could not reach it by its path
                os.setuid(65533)
                why = transactions.unwritable(claw.path.name)
                os.write(result, (why or "nothing").encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)

        assert os.pread(result, 100, 0) == b"the database belongs to another user"
        os.close(result)

    def test_root_without_databases_lists_none(self, tmp_path):
        """A root that is missing or has no agents lists no database."""
        assert list(openclaw_database.databases(str(tmp_path / "nowhere"))) == []
        assert list(openclaw_database.databases(str(tmp_path))) == []

    @pytest.mark.parametrize(
        ("store", "refused"),
        [
            ("~/sessions/{agentId}.json", True),
            ("/data/store.sqlite", True),
            ("~/.openclaw/agents/{agentId}/sessions/sessions.json", False),
            ("", False),
        ],
    )
    def test_configured_session_store_elsewhere_is_refused(self, claw, store, refused):
        """A configured `session.store` is refused by name unless it is the standard place."""
        claw.configure(f"// mine\n{{session: {{store: '{store}',}},}}")
        (database,) = openclaw_database.databases(str(claw.root))

        assert ("session.store" in (openclaw_database.misplaced(database.path) or "")) is refused

    def test_database_registered_elsewhere_is_refused(self, claw):
        """The state database names another place for the agent."""
        (database,) = openclaw_database.databases(str(claw.root))
        claw.sql("INSERT INTO agent_databases VALUES ('main', '/data/x.sqlite', 23, 1, 1)",
                 state=True)  # fmt: skip

        assert "elsewhere" in openclaw_database.misplaced(database.path)

    def test_database_shared_by_agents_is_refused(self, claw):
        """A database with the sessions of several agents is refused."""
        (database,) = openclaw_database.databases(str(claw.root))
        claw.sql("INSERT INTO agent_databases VALUES ('work',"
                 " 'agents/main/agent/openclaw-agent.sqlite', 23, 1, 1)", state=True)  # fmt: skip

        assert "several agents" in openclaw_database.misplaced(database.path)

    def test_registered_paths_are_compared_without_links(self, claw, tmp_path):
        """A path through a link names the database itself, also if several agents share it."""
        (database,) = openclaw_database.databases(str(claw.root))
        (tmp_path / "link").symlink_to(claw.base)
        linked = str(tmp_path / "link" / claw.path.relative_to(claw.base))
        claw.sql("UPDATE agent_databases SET path = ?", (linked,), state=True)
        assert openclaw_database.misplaced(database.path) is None

        claw.sql("INSERT INTO agent_databases VALUES ('work', ?, 23, 1, 1)", (linked,), state=True)
        assert "several agents" in openclaw_database.misplaced(database.path)

    def test_windows_lists_every_session_with_its_key(self, claw):
        """Each session is listed with its key and, if it was replaced, its successor."""
        with sqlite.reading(str(claw.path), in_use=False) as connection:
            listed = {window.session: window for window in windows(connection)}

        assert listed[GATEWAY].key == f"agent:main:explicit:{GATEWAY}"
        assert listed[FORK].key.startswith("agent:main:dashboard:")
        assert listed[REWOUND].current == WINDOW_AFTER_REWIND
        assert len(listed) == 8
