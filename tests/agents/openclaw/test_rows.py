"""Sessions in OpenClaw databases: reading their rows as lines, and changing rows."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
import zstandard
from msgspec.structs import replace

from brainsurgeon.agents.openclaw.database import Payload, plain
from brainsurgeon.agents.openclaw.rows import OpenClawDatabases
from brainsurgeon.agents.rows import RowEdit
from brainsurgeon.errors import BusyError
from brainsurgeon.files import sqlite, transactions
from brainsurgeon.files.reading import RefusedError
from brainsurgeon.model.plans import Removal, Restoration
from brainsurgeon.planning.row_steps import MOST_ROWS, RowIndex, RowPlan, RowSpan, by_row, chunks
from brainsurgeon.sessions.discovery import current_state, open_session
from building import claw_agent
from building.claw import GATEWAY, LATER, LOCAL, WRITTEN, plain_connection
from building.edits import ByteEdit, no_record
from building.world import NOBODY

PLACEHOLDER = b'"[[extracted-x]]"'


def edits_of(session):
    """Return edits that replace the text of every large tool result."""
    edits = []
    for line in session.lines:
        message = json.loads(line.raw).get("message", {})
        if message.get("role") != "toolResult":
            continue
        token = json.dumps(message["content"][0]["text"], ensure_ascii=False).encode()
        at = line.raw.find(token)
        if len(token) > 1000 and at >= 0:
            edits.append(ByteEdit(line.offset + at, line.offset + at + len(token), PLACEHOLDER))
    return edits


def fence_of(session):
    return session.fence(30.0, lambda: LATER)


def write(session, edits, fence=None, durable=False, clock=lambda: LATER):
    """Change rows with the real writer; return the time that the change gave the session."""
    with session.writing():
        session.change(edits, fence or fence_of(session), clock, durable=durable)
    return session.own_ms


def open_and_plan(claw):
    """Open a session and plan edits of its large results; return the closed session and edits."""
    with open_session(claw.session(GATEWAY)) as opened:
        return opened, [
            opened.edit_of(row, opened.lines.row(row.span), no_record)
            for row in by_row(opened.lines.index, edits_of(opened))
        ]


def read_calls():
    """Return how many read calls this process has made."""
    with open("/proc/self/io") as statistics:
        return int(next(line for line in statistics if line.startswith("syscr")).split()[1])


def all_tables(claw):
    """Return the rows of every table of the database."""
    with closing(plain_connection(claw.path)) as connection:
        tables = [
            name for (name,) in connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
                " AND sql NOT LIKE 'CREATE VIRTUAL%' ORDER BY name")
        ]  # fmt: skip
        return {name: connection.execute(f'SELECT * FROM "{name}"').fetchall() for name in tables}


class TestLines:
    """Rows of a session, read as lines."""

    @pytest.mark.parametrize("session", [GATEWAY, LOCAL])
    def test_events_are_lines_with_offsets(self, every_claw, session):
        """Each event is one line, in order, at the offset that it would have in a file."""
        texts = every_claw.texts(session)
        whole = b"".join(text + b"\n" for text in texts)

        with open_session(every_claw.session(session)) as opened:
            lines = list(opened.lines)

        assert [line.raw for line in lines] == texts
        assert [whole[line.offset : line.offset + len(line.raw)] for line in lines] == texts
        assert [line.number for line in lines] == list(range(1, len(texts) + 1))
        assert all(line.terminated for line in lines)
        assert opened.fingerprint.size == len(whole)

    def test_range_of_bytes_is_read_across_lines(self, claw):
        """A range is read as from a file, across lines and beyond the end."""
        whole = b"".join(text + b"\n" for text in claw.texts(GATEWAY))
        chance = random.Random(7)
        with open_session(claw.session(GATEWAY)) as opened:
            for _ in range(200):
                start = chance.randrange(len(whole) + 10)
                end = start + chance.randrange(9000)
                assert opened.read(start, end) == whole[start:end]

    @pytest.mark.parametrize("chunk", [50, 5000])
    def test_stream_fetches_a_long_event_twice_at_most(self, claw, monkeypatch, chunk):
        """A stream has the bytes of a range, however much longer than a piece an event is."""
        whole = b"".join(text + b"\n" for text in claw.texts(GATEWAY))
        fetched = []
        fetch = OpenClawDatabases.fetch

        def fetching(*arguments):
            rows = fetch(*arguments)
            fetched.extend(seq for seq, _ in rows)
            return rows

        monkeypatch.setattr("brainsurgeon.files.reading.CHUNK", chunk)
        monkeypatch.setattr("brainsurgeon.agents.rows.CHUNK", chunk)
        monkeypatch.setattr(OpenClawDatabases, "fetch", staticmethod(fetching))
        with open_session(claw.session(GATEWAY)) as opened:
            assert b"".join(opened.stream(0, len(whole))) == whole
            assert max(map(fetched.count, fetched)) <= 2
            assert b"".join(opened.stream(100, len(whole) - 100)) == whole[100:-100]
            assert list(opened.stream(5, 5)) == []

    def test_write_ahead_log_is_read_and_left_as_it_is(self, claw):
        """Rows that are only in the write-ahead log are read, and the log stays."""
        writer = plain_connection(claw.path)
        writer.execute("UPDATE session_windows SET model = 'seen' WHERE session_id = ?", (GATEWAY,))
        log = Path(f"{claw.path}-wal").read_bytes()
        texts = claw.texts(GATEWAY)
        with open_session(claw.session(GATEWAY)) as opened:
            assert [line.raw for line in opened.lines] == texts

        assert Path(f"{claw.path}-wal").read_bytes() == log
        writer.close()

    def test_database_opened_by_its_agent_while_read_is_busy(self, claw):
        """A database read without locks raises BusyError if its agent opens it meanwhile."""

        def read_while_the_agent_opens():
            with open_session(claw.session(GATEWAY)) as opened:
                list(opened.lines)
                with closing(plain_connection(claw.path)) as agent:
                    agent.execute("UPDATE session_windows SET model = 'x'")

        with pytest.raises(BusyError, match="began to use it"):
            read_while_the_agent_opens()

    def test_session_in_a_busy_database_is_not_gone(self, claw, monkeypatch):
        """If the agent opens its database meanwhile, `current_state` raises that as the reason."""
        file, windows = claw.session(GATEWAY), OpenClawDatabases.sessions

        def read_while_the_agent_opens(database):
            with closing(plain_connection(claw.path)) as agent:
                agent.execute("UPDATE session_windows SET model = 'x'")
            return windows(database)

        opening = staticmethod(read_while_the_agent_opens)
        monkeypatch.setattr(OpenClawDatabases, "sessions", opening)

        with pytest.raises(OSError, match="began to use it"):
            current_state(file)

    def test_event_that_changes_while_read_is_refused(self, claw):
        """An event whose length differs from the index raises RefusedError."""
        agent = plain_connection(claw.path)
        agent.execute("UPDATE session_windows SET model = 'open'")
        with closing(agent), open_session(claw.session(GATEWAY)) as opened:
            agent.execute("UPDATE transcript_events SET event_json = '{}', event_zstd = NULL,"
                          " navigation_json = NULL, event_utf8_bytes = 2"
                          " WHERE session_id = ? AND seq = 20", (GATEWAY,))  # fmt: skip
            with pytest.raises(RefusedError, match="changed while it was read"):
                list(opened.lines)

    def test_a_damaged_event_is_refused(self, claw):
        """A compressed row that does not unpack raises RefusedError."""
        claw.sql("UPDATE transcript_events SET event_zstd = x'28b52ffd00' WHERE seq = 6")
        with (
            open_session(claw.session(GATEWAY)) as opened,
            pytest.raises(RefusedError, match="damaged"),
        ):
            list(opened.lines)

    def test_a_missing_session_is_refused(self, claw):
        """A session that is not in the database raises RefusedError."""
        missing = replace(claw.session(GATEWAY), name="nobody")
        with pytest.raises(RefusedError, match="no such session"), open_session(missing):
            pass


class TestPlanning:
    """Edits by offset, sorted by row."""

    INDEX = RowIndex([(0, 10), (1, 0), (5, 20)])

    def test_index_returns_the_place_of_each_event(self):
        """Offsets count the bytes of each event and one newline."""
        assert [self.INDEX[n] for n in range(3)] == [
            RowSpan(0, 0, 10), RowSpan(1, 11, 0), RowSpan(5, 12, 20),
        ]  # fmt: skip
        assert self.INDEX.size == 33
        assert [self.INDEX.at(offset) for offset in (0, 10, 11, 12, 32)] == [0, 0, 1, 2, 2]
        with pytest.raises(ValueError, match="no line"):
            self.INDEX.at(33)

    def test_edits_are_assigned_to_the_row_of_their_line(self):
        """Each edit belongs to the row of its line, in the order of the rows."""
        edits = [ByteEdit(14, 16, b"x"), ByteEdit(2, 4, b"y"), ByteEdit(20, 20, b"z")]

        rows = by_row(self.INDEX, edits)

        assert [(row.span.key, row.edits) for row in rows] == [
            (0, (edits[1],)), (5, (edits[0], edits[2])),
        ]  # fmt: skip
        assert rows[0].text_after(b"0123456789", no_record) == b"01y456789"
        assert rows[1].text_after(b"abcdefghijklmnopqrst", no_record) == b"abxefghzijklmnopqrst"

    def test_edit_across_lines_is_an_error(self):
        """An edit across the end of a line, or with a newline, raises ValueError."""
        with pytest.raises(ValueError, match="crosses"):
            by_row(self.INDEX, [ByteEdit(8, 13, b"")])
        (row,) = by_row(self.INDEX, [ByteEdit(2, 4, b"a\nb")])
        with pytest.raises(ValueError, match="one line"):
            row.text_after(b"0123456789", no_record)

    def test_overlapping_edits_are_an_error(self):
        """Edits of a row that overlap raise ValueError."""
        row = RowPlan(RowSpan(0, 0, 10), (ByteEdit(1, 5, b"a"), ByteEdit(3, 6, b"b")))
        with pytest.raises(ValueError, match="out of order"):
            row.text_after(b"0123456789", no_record)

    def test_text_is_stored_plain_with_its_length(self, claw):
        """The columns of a compressed copy and of navigation data are empty."""
        row = RowPlan(RowSpan(3, 100, 4), (ByteEdit(101, 103, b"bc"),))
        before = Payload(None, zstandard.compress(b"a__d"), 4, b"{}")

        with open_session(claw.session(GATEWAY)) as opened:
            edit = opened.edit_of(row, before, no_record)

        assert edit == RowEdit(3, before, Payload(b"abcd", None, 4, None))

    def test_chunks_are_bounded_and_go_from_newest_to_oldest(self):
        """No chunk has more rows or bytes than one transaction takes; a huge row has its own."""
        index = RowIndex([(seq, 3_000_000 if seq in (5, 6) else 100) for seq in range(200)])
        places = [index[number] for number in range(200)]
        planned = by_row(
            index, [ByteEdit(place.offset, place.offset + 9, b"x") for place in places]
        )

        seqs = [[row.span.key for row in chunk] for chunk in chunks(planned)]

        assert [seq for chunk in seqs for seq in chunk] == list(range(199, -1, -1))
        assert [len(chunk) for chunk in seqs] == [64, 64, 64, 1, 1, 1, 5]
        assert max(map(len, seqs)) == MOST_ROWS

    def test_rows_with_restorations_come_last_from_the_oldest(self):
        """A signature is removed before text in front of it changes, and restored after that."""
        index = RowIndex([(seq, 100) for seq in range(10)])
        edits = []
        for seq in range(10):
            at = index[seq].offset
            removal = Removal(
                "e", "", (), "thinking", None, 9, block=False, call=None, parent=None, rest=None,
                tokens=0, start=at, end=at + 9, new=b"x", forced=False, reason="",
            )  # fmt: skip
            restoration = Restoration(at + 20, at + 29, 1, "e", (), 9)
            edits += [[removal], [restoration], [removal, restoration]][seq % 3]

        (chunk,) = chunks(by_row(index, edits))

        assert [row.span.key for row in chunk] == [9, 8, 6, 5, 3, 2, 0, 1, 4, 7]


class TestChanging:
    """Changing rows in one transaction, all or none."""

    def test_extraction_changes_rows_generation_and_time_only(self, every_claw):
        """Of all tables only the rows, the generation and the transcript's time change."""
        before = all_tables(every_claw)
        texts = every_claw.texts(GATEWAY)
        session, edits = open_and_plan(every_claw)

        at = write(session, edits)

        after = all_tables(every_claw)
        changed = {
            name: [(a, b) for a, b in zip(before[name], after[name], strict=True) if a != b]
            for name in before if before[name] != after[name]
        }  # fmt: skip
        assert set(changed) == {
            "transcript_events",
            "transcript_rewrite_watermarks",
            "session_windows",
        }
        assert len(changed["transcript_events"]) == len(edits) > 3
        assert len(changed["transcript_rewrite_watermarks"]) == 1
        (windows,) = changed["session_windows"]
        assert [new for old, new in zip(*windows, strict=True) if old != new] == [at]
        new_texts = every_claw.texts(GATEWAY)
        assert len(new_texts) == len(texts)
        assert b"".join(new_texts).count(PLACEHOLDER) == len(edits)
        assert every_claw.sound() == []

    def test_changed_row_is_stored_as_plain_text(self, claw):
        """A changed row has text and length, but no compressed copy and no navigation digest."""
        session, edits = open_and_plan(claw)
        write(session, edits)

        columns = {row[0]: row[1:] for row in claw.columns(GATEWAY)}
        for edit in edits:
            text, packed, size, navigation = columns[edit.key]
            assert (packed, navigation, size) == (None, None, len(text.encode()))

    def test_transcript_time_moves_forward_if_our_clock_is_behind(self, claw):
        """The new transcript time is later than the old one, also if that is in the future."""
        session, edits = open_and_plan(claw)
        window = session.recorded

        at = write(session, edits, clock=lambda: window.times.observed / 1000 - 60)

        assert at == max(window.times.transcript, window.times.observed) + 1

    def test_closing_leaves_no_write_ahead_log(self, claw):
        """The database has no files beside it after the only process that used it."""
        session, edits = open_and_plan(claw)
        write(session, edits)

        assert list(claw.contents()) == ["openclaw-agent.sqlite"]

    def test_row_that_differs_refuses_the_whole_change(self, every_claw):
        """If one row is not, column for column, as it was read, no row changes."""
        session, edits = open_and_plan(every_claw)
        other = RowEdit(edits[0].key, plain(b'{"other":1}', compressing=False), edits[0].after)
        before = every_claw.columns(GATEWAY)

        with pytest.raises(RefusedError, match="a row changed"):
            write(session, [*edits[1:], other])

        assert every_claw.columns(GATEWAY) == before

    def test_changed_navigation_digest_refuses_the_change(self, claw):
        """The column that OpenClaw derives is compared as well."""
        session, edits = open_and_plan(claw)
        edit = next(edit for edit in edits if edit.before.navigation)
        claw.sql("UPDATE transcript_events SET navigation_json = navigation_json || ' '"
                 " WHERE session_id = ? AND seq = ?", (GATEWAY, edit.key))  # fmt: skip

        with pytest.raises(RefusedError, match="a row changed"):
            write(session, edits)

    @pytest.mark.parametrize(
        ("statement", "expected"),
        [
            ("UPDATE session_windows SET status = 'running'", "marked as running"),
            ("UPDATE session_windows SET updated_at = updated_at + 1", "changed meanwhile"),
            ("UPDATE transcript_rewrite_watermarks SET generation = 'x'", "changed meanwhile"),
            ("UPDATE session_windows SET session_key = 'agent:main:cron:x'", "no longer refers"),
            (("INSERT INTO transcript_events (session_id, seq, event_json, created_at,"
             " event_utf8_bytes) SELECT session_id, 999, '{}', 1, 2 FROM session_windows"),
             "changed meanwhile"),
            ("DELETE FROM session_windows", "deleted meanwhile"),
            ("CREATE TABLE novelty (x)", "layout of the database changed"),
            ("PRAGMA user_version = 24", "layout of the database changed"),
        ],
    )  # fmt: skip
    def test_change_since_reading_is_seen_under_the_lock(self, claw, statement, expected):
        """A session or layout that changed after reading refuses the change; nothing is written."""
        claw.lease()
        claw.sql(
            "UPDATE session_nodes SET entry_json = json_set(entry_json, '$.lastRunId',"
            " json_extract(entry_json, '$.activeWriterRunId'))"
        )
        session, edits = open_and_plan(claw)
        claw.sql(statement)
        before = claw.contents()

        with pytest.raises(RefusedError, match=expected):
            write(session, edits)

        assert claw.contents() == before

    def test_lock_held_by_the_agent_is_busy_after_a_wait(self, claw, monkeypatch):
        """If the agent holds the write lock for longer than the timeout, BusyError is raised."""
        monkeypatch.setattr(transactions, "AGENT_LOCK_SECONDS", 0.2)
        session, edits = open_and_plan(claw)
        fence = fence_of(session)
        agent = plain_connection(claw.path)
        agent.execute("BEGIN IMMEDIATE")
        started = time.monotonic()

        with pytest.raises(BusyError, match="its agent is writing"):
            write(session, edits, fence)

        assert time.monotonic() - started < 5
        agent.execute("ROLLBACK")
        agent.close()

    def test_agent_waits_for_the_transaction_and_goes_on(self, claw):
        """An agent's update that meets the transaction waits for it, and both changes are kept."""
        session, edits = open_and_plan(claw)
        fence = fence_of(session)
        waits = []

        def update():
            started = time.monotonic()
            with closing(plain_connection(claw.path)) as agent:
                agent.execute("UPDATE session_windows SET model = 'new' WHERE session_id = ?",
                              (LOCAL,))  # fmt: skip
            waits.append(time.monotonic() - started)

        thread = threading.Thread(target=update)

        def slow_fence(connection):
            thread.start()
            time.sleep(0.2)
            return fence(connection)

        write(session, edits, slow_fence)
        thread.join()

        assert waits[0] > 0.1
        assert claw.sql("SELECT model FROM session_windows WHERE session_id = ?", (LOCAL,)) == [
            ("new",)
        ]
        assert b"".join(claw.texts(GATEWAY)).count(PLACEHOLDER) == len(edits)

    def test_error_under_the_lock_rolls_back(self, claw):
        """An exception under the lock, KeyboardInterrupt too, leaves every file as it was."""
        session, edits = open_and_plan(claw)
        before = claw.contents()

        def interrupted(_):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            write(session, edits, interrupted)

        assert claw.contents() == before

    # Other users can change only their own databases, and own the files that SQLite creates there.
    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
    def test_files_made_by_root_belong_to_the_owner(self, claw):
        """If root changes rows, the log and its index belong to the owner of the database."""
        for path in (claw.path, claw.path.parent):
            os.chown(path, NOBODY, NOBODY)
        session, edits = open_and_plan(claw)
        owners = {}

        def fence(_):
            owners.update((file.name, file.stat().st_uid) for file in claw.path.parent.iterdir())

        write(session, edits, fence)

        names = ("openclaw-agent.sqlite", "openclaw-agent.sqlite-shm", "openclaw-agent.sqlite-wal")
        assert owners == dict.fromkeys(names, NOBODY)
        assert claw.path.stat().st_uid == NOBODY

    @pytest.mark.parametrize(("durable", "level"), [(False, 1), (True, 2)])
    def test_only_a_durable_change_syncs_under_the_lock(self, synced, claw, durable, level):
        """An extraction commits with synchronous=NORMAL, a restoration with FULL."""
        session, edits = open_and_plan(claw)
        levels = []

        def fence(connection):
            levels.append(connection.execute("PRAGMA synchronous").fetchone()[0])

        write(session, edits, fence, durable=durable)

        assert levels == [level]

    def test_large_row_is_not_read_again_under_the_lock(self, claw):
        """Comparing a row reads less than a quarter of its pages while the lock is held."""
        text = json.dumps({"type": "message", "id": "large", "message": {
            "role": "toolResult", "content": [{"type": "text", "text": "so it says " * 800_000}],
        }}).encode()  # fmt: skip
        with claw_agent.transaction(claw.path) as agent:
            seq = claw_agent.append(agent, GATEWAY, text, int(WRITTEN * 1000))
        keeper = plain_connection(claw.path)  # as a gateway has the database open throughout
        keeper.execute("SELECT * FROM schema_meta").fetchall()
        with open_session(claw.session(GATEWAY)) as opened:
            place = opened.lines.index[len(opened.lines.index) - 1]
        edit = RowEdit(seq, plain(text, compressing=True), plain(PLACEHOLDER, compressing=True))
        calls = []

        with opened.writing():
            before = opened.lines.row(place)
            opened.change(
                [edit], lambda _: calls.append(read_calls()), lambda: LATER, durable=False
            )
            calls.append(read_calls())

        pages = len(text) // keeper.execute("PRAGMA page_size").fetchone()[0]
        keeper.close()
        assert before == edit.before
        assert calls[1] - calls[0] < pages / 4

    def test_process_frozen_under_the_lock_gives_up(self, claw):
        """A process that was stopped under the lock rolls back when it continues."""
        worker = subprocess.Popen(
            [sys.executable, str(Path(__file__).parents[2] / "workers" / "lock_holder.py"),
             str(claw.path), GATEWAY],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert worker.stdout.readline() == "holding\n"
        os.kill(worker.pid, signal.SIGSTOP)
        agent = sqlite3.connect(claw.path, isolation_level=None, timeout=0.1)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            agent.execute("BEGIN IMMEDIATE")
        time.sleep(1.2)
        os.kill(worker.pid, signal.SIGCONT)

        assert "was stopped while it held the lock" in worker.communicate()[0]
        assert agent.execute("BEGIN IMMEDIATE")
        agent.close()
        assert b"".join(claw.texts(GATEWAY)).count(PLACEHOLDER) == 0

    @pytest.mark.parametrize("at", [0, 1, 2])
    def test_link_in_the_path_of_a_database_is_refused(self, claw, at):
        """If the database or a directory above it became a link, nothing is written."""
        session, edits = open_and_plan(claw)
        place = [claw.path, *claw.path.parents][at]
        target = place.rename(claw.base / "elsewhere")
        before = {path: path.read_bytes() for path in claw.base.rglob("*") if path.is_file()}
        place.symlink_to(target)

        with pytest.raises(RefusedError, match="a link was put into its path"):
            write(session, edits)

        assert before == {
            path: path.read_bytes() for path in claw.base.rglob("*")
            if path.is_file() and not path.is_symlink()
        }  # fmt: skip


def test_database_is_open_in_one_thread_at_a_time(claw, monkeypatch):
    """A second thread gets BusyError, since closing a file would release the first one's locks."""
    monkeypatch.setattr(sqlite, "_THREAD_LOCK_SECONDS", 0.1)
    path = str(claw.path)
    with sqlite.reading(path, in_use=False), pytest.raises(BusyError, match="open already"):
        sqlite.held_open(path)

    assert not sqlite.held_open(path)


def test_state_of_a_database_changes_with_a_commit(claw):
    """The state of a database stays equal without a commit, and differs after one."""
    before = sqlite.state_of(str(claw.path))
    assert sqlite.state_of(str(claw.path)) == before

    agent = plain_connection(claw.path)
    agent.execute("UPDATE session_windows SET model = 'x'")

    assert sqlite.state_of(str(claw.path)) != before
    assert sqlite.state_of(str(claw.path)).log.size > 0
    agent.close()
