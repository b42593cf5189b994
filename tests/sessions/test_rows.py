"""The hand that reads and changes rows, on databases that OpenClaw wrote."""

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
from msgspec.structs import replace

from brainsurgeon.errors import BusyError
from brainsurgeon.hosts import sqlite
from brainsurgeon.hosts.openclaw_database import Payload, plain
from brainsurgeon.hosts.openclaw_gate import Gate, fence
from brainsurgeon.model.plans import Removal, Restoration
from brainsurgeon.sessions import row_writing
from brainsurgeon.sessions.reading import RefusedError
from brainsurgeon.sessions.row_listing import RowIndex, RowPlace, open_rows
from brainsurgeon.sessions.row_writing import RowEdit, RowPlan, by_row, chunks, rewritten
from building import claw_agent
from building.claw import GATEWAY, LATER, LOCAL, WRITTEN, plain_connection
from building.edits import Swap, know_nothing

PLACEHOLDER = b'"[[extracted-x]]"'
NOBODY = 65534


def cuts(session, largest=1000):
    """Plan to cut the text of every large tool result: edits by offset."""
    edits = []
    for line in session.lines:
        message = json.loads(line.raw).get("message", {})
        if message.get("role") != "toolResult":
            continue
        token = json.dumps(message["content"][0]["text"], ensure_ascii=False).encode()
        at = line.raw.find(token)
        if len(token) > largest and at >= 0:
            edits.append(Swap(line.offset + at, line.offset + at + len(token), PLACEHOLDER))
    return edits


def prepared(session, edits, originals=()):
    """Prepare the new columns of all rows that edits fall on."""
    wide = session.schema.compressing
    return [
        rewritten(
            session.lines.row(row.place), row, know_nothing, dict(originals).get, compressing=wide
        )
        for row in by_row(session.lines.index, edits)
    ]


def allowed(session, now=LATER):
    gate = Gate(30.0, session.presence, session.file.own_ms)
    return fence(gate, session.window, session.schema, lambda: now)


def write(claw, session, edits, gate=None, durable=False, clock=lambda: LATER):
    """Change rows as the product does; give what was written."""
    with row_writing.writing(str(claw.path)) as writer:
        return writer.change(
            session.window.session, edits, gate or allowed(session), durable=durable,
            compressing=session.schema.compressing, clock=clock,
        )  # fmt: skip


def look(claw, session=GATEWAY):
    """Open a session, cut everything large in thought, and release the database."""
    with open_rows(claw.session(session)) as opened:
        return opened, prepared(opened, cuts(opened))


def reads():
    """Count the calls by which this process has read from files."""
    with open("/proc/self/io") as told:
        return int(next(line for line in told if line.startswith("syscr")).split()[1])


def everything(claw):
    """Dump every table of the database but for what a change of rows may change."""
    with closing(plain_connection(claw.path)) as connection:
        tables = [
            name for (name,) in connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
                " AND sql NOT LIKE 'CREATE VIRTUAL%' ORDER BY name")
        ]  # fmt: skip
        return {name: connection.execute(f'SELECT * FROM "{name}"').fetchall() for name in tables}


class TestLines:
    """A session in rows is read like a file of its events."""

    @pytest.mark.parametrize("session", [GATEWAY, LOCAL])
    def test_events_are_lines_with_offsets(self, every_claw, session):
        """Each event is one line, in order, at the offset that a file would give it."""
        texts = every_claw.texts(session)
        whole = b"".join(text + b"\n" for text in texts)

        with open_rows(every_claw.session(session)) as opened:
            lines = list(opened.lines)

        assert [line.raw for line in lines] == texts
        assert [whole[line.offset : line.offset + len(line.raw)] for line in lines] == texts
        assert [line.number for line in lines] == list(range(1, len(texts) + 1))
        assert all(line.terminated for line in lines)
        assert opened.fingerprint.size == len(whole)

    def test_backward_is_the_same_from_the_other_end(self, every_claw, monkeypatch):
        """Read from the end, the same lines come in the opposite order, however few at a time."""
        monkeypatch.setattr("brainsurgeon.sessions.row_listing.CHUNK", 5000)
        with open_rows(every_claw.session(GATEWAY)) as opened:
            forward = [(line.offset, line.raw) for line in opened.lines]
            backward = [(line.offset, line.raw) for line in opened.lines.backward()]

        assert backward == forward[::-1]

    def test_any_range_of_bytes_can_be_read(self, claw):
        """A range is read as from a file, across lines and beyond the end."""
        whole = b"".join(text + b"\n" for text in claw.texts(GATEWAY))
        chance = random.Random(7)
        with open_rows(claw.session(GATEWAY)) as opened:
            for _ in range(200):
                start = chance.randrange(len(whole) + 10)
                end = start + chance.randrange(9000)
                assert opened.read(start, end) == whole[start:end]

    def test_a_log_is_read_with_its_database(self, claw):
        """What stands only in the write-ahead log is seen, and the log stays."""
        writer = plain_connection(claw.path)
        writer.execute("UPDATE session_windows SET model = 'seen' WHERE session_id = ?", (GATEWAY,))
        keep = Path(f"{claw.path}-wal").read_bytes()
        texts = claw.texts(GATEWAY)
        with open_rows(claw.session(GATEWAY)) as opened:
            assert [line.raw for line in opened.lines] == texts

        assert Path(f"{claw.path}-wal").read_bytes() == keep
        writer.close()

    def test_a_database_that_comes_alive_while_it_is_read_is_busy(self, claw):
        """Read without locks, a database that its agent opens meanwhile is not believed."""
        with pytest.raises(BusyError, match="began to use it"):
            self._read_while_it_is_written(claw)

    def _read_while_it_is_written(self, claw):
        with open_rows(claw.session(GATEWAY)) as opened:
            list(opened.lines)
            with closing(plain_connection(claw.path)) as agent:
                agent.execute("UPDATE session_windows SET model = 'x'")

    def test_rows_that_change_while_they_are_read_are_refused(self, claw):
        """An event that is not as long as the index said is no line of the same session."""
        agent = plain_connection(claw.path)
        agent.execute("UPDATE session_windows SET model = 'open'")
        with closing(agent), open_rows(claw.session(GATEWAY)) as opened:
            agent.execute("UPDATE transcript_events SET event_json = '{}', event_zstd = NULL,"
                          " navigation_json = NULL, event_utf8_bytes = 2"
                          " WHERE session_id = ? AND seq = 20", (GATEWAY,))  # fmt: skip
            with pytest.raises(RefusedError, match="changed while it was read"):
                list(opened.lines)

    def test_a_damaged_event_is_refused(self, claw):
        """A compressed row that does not unpack to what it promises is left alone."""
        claw.sql("UPDATE transcript_events SET event_zstd = x'28b52ffd00' WHERE seq = 6")
        with (
            open_rows(claw.session(GATEWAY)) as opened,
            pytest.raises(RefusedError, match="damaged"),
        ):
            list(opened.lines)

    def test_a_missing_session_is_refused(self, claw):
        """A session that the database does not have any more is said to be missing."""
        found = replace(claw.session(GATEWAY), name="nobody")
        with pytest.raises(RefusedError, match="no such session"), open_rows(found):
            pass


class TestPlanning:
    """Splices by offset become rows; nothing here touches a disk."""

    INDEX = RowIndex([(0, 10), (1, 0), (5, 20)])

    def test_an_index_knows_where_each_event_stands(self):
        """Offsets count each event's bytes and one newline."""
        assert [self.INDEX[n] for n in range(3)] == [
            RowPlace(0, 0, 10), RowPlace(1, 11, 0), RowPlace(5, 12, 20),
        ]  # fmt: skip
        assert self.INDEX.size == 33
        assert [self.INDEX.at(offset) for offset in (0, 10, 11, 12, 32)] == [0, 0, 1, 2, 2]
        with pytest.raises(ValueError, match="no line"):
            self.INDEX.at(33)

    def test_edits_are_sorted_by_row(self):
        """Each edit falls on the row whose line it stands in."""
        swaps = [Swap(14, 16, b"x"), Swap(2, 4, b"y"), Swap(20, 20, b"z")]

        found = by_row(self.INDEX, swaps)

        assert [(row.place.seq, row.edits) for row in found] == [
            (0, (swaps[1],)), (5, (swaps[0], swaps[2])),
        ]  # fmt: skip
        assert found[0].text_after(b"0123456789", know_nothing) == b"01y456789"
        assert found[1].text_after(b"abcdefghijklmnopqrst", know_nothing) == b"abxefghzijklmnopqrst"

    def test_an_edit_stays_in_its_line(self):
        """An edit over the end of a line, or with a newline, is a mistake of ours."""
        with pytest.raises(ValueError, match="crosses"):
            by_row(self.INDEX, [Swap(8, 13, b"")])
        (row,) = by_row(self.INDEX, [Swap(2, 4, b"a\nb")])
        with pytest.raises(ValueError, match="beyond"):
            row.text_after(b"0123456789", know_nothing)

    def test_overlapping_edits_are_a_mistake(self):
        """Edits that overlap are never carried out."""
        row = RowPlan(RowPlace(0, 0, 10), (Swap(1, 5, b"a"), Swap(3, 6, b"b")))
        with pytest.raises(ValueError, match="out of order"):
            row.text_after(b"0123456789", know_nothing)

    def test_a_text_takes_its_own_columns_back(self):
        """A row whose text is what the agent once kept takes those columns, another is plain."""
        row = RowPlan(RowPlace(3, 100, 4), (Swap(101, 103, b"bc"),))
        known = Payload(b"abcd", None, None, None)
        other = Payload(b"abce", None, None, None)
        ours = plain(b"a__d", compressing=True)

        def edit(original):
            return rewritten(ours, row, know_nothing, lambda _: original, compressing=True)

        assert edit(known) == RowEdit(3, ours, known)
        assert edit(other).after == edit(None).after == Payload(b"abcd", None, 4, None)

    def test_chunks_go_from_the_newest_row_to_the_oldest(self):
        """No chunk has more rows or bytes than one transaction takes; a giant row goes alone."""
        index = RowIndex([(seq, 3_000_000 if seq in (5, 6) else 100) for seq in range(200)])
        places = [index[number] for number in range(200)]
        planned = by_row(index, [Swap(one.offset, one.offset + 9, b"x") for one in places])

        found = [[row.place.seq for row in chunk] for chunk in chunks(planned)]

        assert [seq for chunk in found for seq in chunk] == list(range(199, -1, -1))
        assert [len(chunk) for chunk in found] == [64, 64, 64, 1, 1, 1, 5]
        assert max(map(len, found)) == row_writing.MOST_ROWS

    def test_what_comes_back_comes_last_and_from_the_oldest(self):
        """A signature leaves before anything in front of it changes, and comes back after it."""
        index = RowIndex([(seq, 100) for seq in range(10)])
        edits = []
        for seq in range(10):
            at = index[seq].offset
            cut = Removal(at, at + 9, b"x", "e", "", (), "thinking", None, 9, False, False, "")
            restored = Restoration(at + 20, at + 29, 1, "e", (), 9)
            edits += [[cut], [restored], [cut, restored]][seq % 3]

        (chunk,) = chunks(by_row(index, edits))

        assert [row.place.seq for row in chunk] == [9, 8, 6, 5, 3, 2, 0, 1, 4, 7]


class TestChanging:
    """One transaction changes rows, all of them or none."""

    def test_a_cut_changes_the_rows_and_what_tells_the_agent(self, every_claw):
        """Only the rows, the generation and the transcript's time differ afterwards."""
        before = everything(every_claw)
        texts = every_claw.texts(GATEWAY)
        session, edits = look(every_claw)

        done = write(every_claw, session, edits)

        after = everything(every_claw)
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
        assert [b for a, b in zip(*windows, strict=True) if a != b] == [done.at]
        now = every_claw.texts(GATEWAY)
        assert len(now) == len(texts)
        assert b"".join(now).count(PLACEHOLDER) == len(edits)
        assert every_claw.sound() == []

    def test_a_row_of_ours_is_text_alone(self, claw):
        """A changed row is stored as its text, with its length and no digest for navigation."""
        session, edits = look(claw)
        write(claw, session, edits)

        ours = {row[0]: row[1:] for row in claw.columns(GATEWAY)}
        for edit in edits:
            text, packed, size, navigation = ours[edit.seq]
            assert (packed, navigation, size) == (None, None, len(text.encode()))

    def test_the_noted_time_is_later_than_any_before(self, claw):
        """The transcript's time moves forward even where its clock was ahead of ours."""
        session, edits = look(claw)
        noted = session.window

        done = write(claw, session, edits, clock=lambda: noted.observed_at / 1000 - 60)

        assert done.at == max(noted.transcript_at, noted.observed_at) + 1

    def test_closing_leaves_no_log_behind(self, claw):
        """After a change by the only one who has it open, the database stands alone again."""
        session, edits = look(claw)
        write(claw, session, edits)

        assert list(claw.contents()) == ["openclaw-agent.sqlite"]

    def test_one_row_that_differs_refuses_them_all(self, every_claw):
        """A row that is not, column for column, what was read stops the whole transaction."""
        session, edits = look(every_claw)
        other = RowEdit(edits[0].seq, plain(b'{"other":1}', compressing=False), edits[0].after)
        before = every_claw.columns(GATEWAY)

        with pytest.raises(RefusedError, match="a row changed"):
            write(every_claw, session, [*edits[1:], other])

        assert every_claw.columns(GATEWAY) == before

    def test_a_changed_digest_for_navigation_counts_as_a_change(self, claw):
        """All four columns are compared, also the one that OpenClaw derives."""
        session, edits = look(claw)
        edit = next(edit for edit in edits if edit.before.navigation)
        claw.sql("UPDATE transcript_events SET navigation_json = navigation_json || ' '"
                 " WHERE session_id = ? AND seq = ?", (GATEWAY, edit.seq))  # fmt: skip

        with pytest.raises(RefusedError, match="a row changed"):
            write(claw, session, edits)

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
    def test_whatever_happened_since_it_was_read_is_seen_under_the_lock(
        self, claw, statement, expected
    ):
        """A sign that came between reading and writing refuses the change; no byte is written."""
        claw.lease()
        claw.sql(
            "UPDATE session_nodes SET entry_json = json_set(entry_json, '$.lastRunId',"
            " json_extract(entry_json, '$.activeWriterRunId'))"
        )
        session, edits = look(claw)
        claw.sql(statement)
        before = claw.contents()

        with pytest.raises(RefusedError, match=expected):
            write(claw, session, edits)

        assert claw.contents() == before

    def test_an_agent_that_keeps_the_lock_is_not_waited_for_long(self, claw, monkeypatch):
        """While its agent holds the write lock for longer than we wait, the answer is busy."""
        monkeypatch.setattr(row_writing, "PATIENCE", 0.2)
        session, edits = look(claw)
        gate = allowed(session)
        agent = plain_connection(claw.path)
        agent.execute("BEGIN IMMEDIATE")
        begun = time.monotonic()

        with pytest.raises(BusyError, match="its agent is writing"):
            write(claw, session, edits, gate)

        assert time.monotonic() - begun < 5
        agent.execute("ROLLBACK")
        agent.close()

    def test_the_agent_waits_and_goes_on(self, claw):
        """An append that meets our transaction waits until it is over, and both are there."""
        session, edits = look(claw)
        gate = allowed(session)
        waited = []

        def append():
            begun = time.monotonic()
            with closing(plain_connection(claw.path)) as agent:
                agent.execute("UPDATE session_windows SET model = 'new' WHERE session_id = ?",
                              (LOCAL,))  # fmt: skip
            waited.append(time.monotonic() - begun)

        thread = threading.Thread(target=append)

        def slow(connection):
            thread.start()
            time.sleep(0.2)
            return gate(connection)

        write(claw, session, edits, slow)
        thread.join()

        assert waited[0] > 0.1
        assert claw.sql("SELECT model FROM session_windows WHERE session_id = ?", (LOCAL,)) == [
            ("new",)
        ]
        assert b"".join(claw.texts(GATEWAY)).count(PLACEHOLDER) == len(edits)

    def test_an_error_in_the_middle_leaves_everything_as_it_was(self, claw):
        """Whatever is raised under the lock, the transaction is rolled back."""
        session, edits = look(claw)
        before = claw.contents()

        def interrupted(_):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            write(claw, session, edits, interrupted)

        assert claw.contents() == before

    # Others write only what is theirs, and what appears beside it is theirs by itself.
    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
    def test_what_appears_beside_belongs_to_the_owner(self, claw):
        """Root changes rows for another user, whose files the log and its index are, too."""
        for path in (claw.path, claw.path.parent):
            os.chown(path, NOBODY, NOBODY)
        session, edits = look(claw)
        owners = {}

        def gate(_):
            owners.update((one.name, one.stat().st_uid) for one in claw.path.parent.iterdir())

        write(claw, session, edits, gate)

        names = ("openclaw-agent.sqlite", "openclaw-agent.sqlite-shm", "openclaw-agent.sqlite-wal")
        assert owners == dict.fromkeys(names, NOBODY)
        assert claw.path.stat().st_uid == NOBODY

    @pytest.mark.parametrize(("durable", "level"), [(False, 1), (True, 2)])
    def test_only_what_must_be_durable_waits_for_the_disk(self, claw, durable, level):
        """A cut commits without a sync under the lock (NORMAL), a put-back with one (FULL)."""
        session, edits = look(claw)
        said = []

        def gate(connection):
            said.append(connection.execute("PRAGMA synchronous").fetchone()[0])

        write(claw, session, edits, gate, durable=durable)

        assert said == [level]

    def test_a_large_row_that_was_just_read_is_not_read_again_under_the_lock(self, claw):
        """What is compared under the lock, however large, is in memory by then."""
        text = json.dumps({"type": "message", "id": "large", "message": {
            "role": "toolResult", "content": [{"type": "text", "text": "so it says " * 800_000}],
        }}).encode()  # fmt: skip
        with claw_agent.at_work(claw.path) as agent:
            seq = claw_agent.append(agent, GATEWAY, text, int(WRITTEN * 1000))
        keeper = plain_connection(claw.path)  # its gateway has the database open all the while
        keeper.execute("SELECT * FROM schema_meta").fetchall()
        with open_rows(claw.session(GATEWAY)) as opened:
            place = opened.lines.index[len(opened.lines.index) - 1]
        edit = RowEdit(seq, plain(text, compressing=True), plain(PLACEHOLDER, compressing=True))
        read = []

        with row_writing.writing(str(claw.path)) as writer:
            opened.lines.database = writer.database
            before = opened.lines.row(place)
            writer.change(
                GATEWAY, [edit], lambda _: read.append(reads()), compressing=True, durable=False
            )
            read.append(reads())

        pages = len(text) // keeper.execute("PRAGMA page_size").fetchone()[0]
        keeper.close()
        assert before == edit.before
        assert read[1] - read[0] < pages / 4

    def test_a_holder_that_was_frozen_gives_up_when_it_wakes(self, claw):
        """A process that stood still under the lock changes nothing any more."""
        worker = subprocess.Popen(
            [sys.executable, str(Path(__file__).parent.parent / "workers" / "holding.py"),
             str(claw.path), GATEWAY],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert worker.stdout.readline() == "holding\n"
        os.kill(worker.pid, signal.SIGSTOP)
        impatient = sqlite3.connect(claw.path, isolation_level=None, timeout=0.1)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            impatient.execute("BEGIN IMMEDIATE")
        time.sleep(1.2)
        os.kill(worker.pid, signal.SIGCONT)

        assert "stood still under the lock" in worker.communicate()[0]
        assert impatient.execute("BEGIN IMMEDIATE")
        impatient.close()
        assert b"".join(claw.texts(GATEWAY)).count(PLACEHOLDER) == 0

    @pytest.mark.parametrize("at", [0, 1, 2])
    def test_a_link_that_was_put_into_its_path_is_refused(self, claw, at):
        """The database, its directory or its agent's is a link by now: it is not followed."""
        session, edits = look(claw)
        place = [claw.path, *claw.path.parents][at]
        there = place.rename(claw.base / "elsewhere")
        before = {path: path.read_bytes() for path in claw.base.rglob("*") if path.is_file()}
        place.symlink_to(there)

        with pytest.raises(RefusedError, match="a link was put into its path"):
            write(claw, session, edits)

        assert before == {
            path: path.read_bytes() for path in claw.base.rglob("*")
            if path.is_file() and not path.is_symlink()
        }  # fmt: skip


def test_one_thread_at_a_time_has_a_database_open(claw, monkeypatch):
    """A second thread of this process waits, since closing a file releases the other's locks."""
    monkeypatch.setattr(sqlite, "_LOCK_TIMEOUT", 0.1)
    path = str(claw.path)
    with sqlite.reading(path, owned=False), pytest.raises(BusyError, match="open already"):
        sqlite.held_open(path)

    assert not sqlite.held_open(path)


def test_the_state_of_a_database_tells_an_idle_one(claw):
    """Two calls of stat tell whether anything was committed since."""
    before = sqlite.state_of(str(claw.path))
    assert sqlite.state_of(str(claw.path)) == before

    agent = plain_connection(claw.path)
    agent.execute("UPDATE session_windows SET model = 'x'")

    assert sqlite.state_of(str(claw.path)) != before
    assert sqlite.state_of(str(claw.path)).logged
    agent.close()
