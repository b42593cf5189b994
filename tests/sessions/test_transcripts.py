"""Kept transcripts: a session that grew is read from where it ended; stale ones are not used."""

import json
import os
import random
from contextlib import contextmanager

import pytest

from brainsurgeon.errors import BusyError
from brainsurgeon.files import reading
from brainsurgeon.files.reading import LineChangedError
from brainsurgeon.formats.transcript import Transcript
from brainsurgeon.model.session_files import Root, SessionFile
from brainsurgeon.sessions.discovery import discover, open_session, open_to_show
from brainsurgeon.sessions.transcripts import Transcripts
from building.claw import LOCAL, Claw
from building.world import SAMPLES

PI = SAMPLES / "pi" / "pi-1.5.2-compacted.jsonl"
LONG = SAMPLES / "pi" / "large-session.derived-v3.jsonl"
CLAUDE = SAMPLES / "claude-code" / "entire-cc_90f6622c5b_0.jsonl"
GENERIC = SAMPLES / "generic" / "spec-mix.jsonl"


def said(transcript):
    """Return everything that a transcript says."""
    entries, chain = transcript.entries, transcript.chain
    return (
        entries, list(transcript.starts), transcript.end, chain.dead, chain.open_turn, chain.quiet,
        [transcript.position(index) for index in range(len(entries))], chain.last_user,
        dict(chain.tools), dict(chain.beside), chain.replaced,
    )  # fmt: skip


class Kept:
    """A file and the transcripts that a process keeps. It counts the bytes that are read."""

    def __init__(self, world):
        self.root, self.path, self.read = world.root, world.root / "one.jsonl", 0
        self.transcripts = Transcripts()

    def write(self, data):
        self.path.write_bytes(data)

    def append(self, data):
        with open(self.path, "ab") as file:
            file.write(data)

    def change(self, before, after):
        """Write in place of the first `before`."""
        with open(self.path, "r+b") as file:
            at = file.read().index(before)
            file.seek(at)
            file.write(after)

    @contextmanager
    def opened(self, hint="auto"):
        files = discover([Root(str(self.root), format=hint)])
        file = next(file for file in files if isinstance(file, SessionFile))
        with open_session(file) as opened:
            yield opened

    def look(self, hint="auto"):
        """Return what was kept; it says the same as a new transcript."""
        with self.opened(hint) as opened:
            kept = self.transcripts.read(opened)
            fresh = Transcript.read(opened.form, opened.lines_from(0, 1))
        assert said(kept.transcript) == said(fresh)
        return kept


@pytest.fixture
def kept(world):
    return Kept(world)


def test_growth_in_any_pieces_is_read_as_if_once(kept):
    """Lines, parts of lines and many lines at once: the transcript is that of one reading."""
    for path in (PI, CLAUDE, GENERIC):
        chance, data, at = random.Random(path.name), path.read_bytes(), 4000
        kept.write(data[:at])
        kept.look()
        while at < len(data):
            more = data[at : at + chance.choice([1, 200, 5000, 60_000])]
            kept.append(more)
            at += len(more)
            kept.look()


def test_only_new_bytes_are_read(kept, monkeypatch):
    """After an append, a few blocks of the file are read; of an unchanged file, nothing."""
    lines = LONG.read_bytes().splitlines(keepends=True)
    kept.write(b"".join(lines[:-1]))
    first = kept.look()
    read, pread = [], os.pread
    monkeypatch.setattr(os, "pread", lambda *where: read.append(where[1:]) or pread(*where))
    monkeypatch.setattr(reading, "CHUNK", 64 << 10)
    with kept.opened() as opened:
        read.clear()
        assert kept.transcripts.read(opened) is first
        assert read == []

    kept.append(lines[-1])
    with kept.opened() as opened:
        read.clear()
        assert kept.transcripts.read(opened) is first
    assert sum(length for length, _ in read) < len(b"".join(lines)) / 4
    kept.look()


def test_session_written_anew_while_it_was_read_is_read_again(kept):
    """Lines from before and after a change in place never stand together for a session."""
    data = LONG.read_bytes()
    after = data[:9000] + data[9000:-9000].replace(b'"text":"', b'"tixt":"') + data[-9000:]
    kept.write(data)
    with kept.opened() as opened:
        _ = opened.form
        opened.check_stop = lambda: kept.write(after)  # called once the first bytes are read
        kept.transcripts.read(opened)
    kept.append(after.splitlines(keepends=True)[-1])
    kept.look()


def rename_copy(kept, data):
    other = kept.path.with_name("other")
    other.write_bytes(data)
    times = os.stat(kept.path)
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    os.replace(other, kept.path)


def test_another_file_in_its_place_is_read_anew(kept):
    """A backup of equal length and time that is moved in is another session."""
    data = PI.read_bytes()
    other = data.replace(b'"text":"', b'"text":"[', 3).replace(b"]", b"", 3)
    other = other[: len(data)].ljust(len(data), b"\n")
    kept.write(data)
    first = kept.look()
    rename_copy(kept, other)
    assert kept.look() is not first


def test_an_inode_that_is_used_again_is_read_anew(kept):
    """A longer session in the same inode is not the growth of the old one."""
    kept.write(PI.read_bytes()[:20_000])
    first = kept.look()
    kept.write(CLAUDE.read_bytes())
    assert kept.look() is not first


def test_a_file_that_was_cut_off_is_read_anew(kept):
    """Also if it has grown to more than its old size since."""
    lines = PI.read_bytes().splitlines(keepends=True)
    kept.write(b"".join(lines))
    first = kept.look()
    kept.write(b"".join(lines[:10]))
    second = kept.look()
    assert second is not first
    kept.write(b"".join(lines[:5]) + b"".join(lines[20:]))
    assert kept.look() is not second


def test_a_front_of_equal_size_and_time_is_noticed(kept):
    """A change in the first or last block is seen, whatever the times say."""
    kept.write(PI.read_bytes())
    first = kept.look()
    times = os.stat(kept.path)
    kept.change(b'"cwd":"/', b'"cwd":"X')
    os.utime(kept.path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert kept.look() is not first


def test_another_version_or_setting_of_the_format_is_read_anew(kept, monkeypatch):
    """What was read by another program or under another setting is not used."""
    kept.write(GENERIC.read_bytes())
    first = kept.look()
    assert kept.look("generic") is not first
    second = kept.look()
    monkeypatch.setattr(second.transcript.form, "version", 99)
    assert kept.look() is not second


def test_an_error_while_reading_leaves_nothing_kept(kept, monkeypatch):
    """A transcript that took in a part of the new lines is not used again."""
    lines = CLAUDE.read_bytes().splitlines(keepends=True)
    kept.write(b"".join(lines[:-20]))
    first = kept.look()
    kept.append(b"".join(lines[-20:]))

    def stop():
        if len(first.transcript.entries) == len(lines) - 5:
            raise InterruptedError

    with kept.opened() as opened:
        opened.check_stop = stop
        monkeypatch.setattr(reading, "CHUNK", 64)
        with pytest.raises(InterruptedError):
            kept.transcripts.read(opened)
    monkeypatch.undo()
    assert kept.look() is not first


def test_line_that_changed_since_it_was_read_cannot_be_edited(kept):
    """An agent that writes while a session is planned makes it wait: its lines are not mixed."""
    kept.write(PI.read_bytes())
    with kept.opened() as opened:
        assert opened.parsed(3).entry
        opened.check_lines()
        kept.change(b'"type":"message"', b'"type":"massage"')
        with pytest.raises(LineChangedError, match="changed while it was read"):
            list(map(opened.parsed, range(len(opened.transcript.entries))))
        with pytest.raises(LineChangedError):
            opened.check_lines()


def show_while_it_changes(kept, file):
    with open_to_show(file) as opened:
        assert opened.transcript.entries
        kept.change(b'"type":"message"', b'"type":"massage"')
        opened.check_lines()


def test_session_that_changes_while_it_is_shown_is_busy(kept):
    """A command that only reads names the session and asks to try again."""
    kept.write(PI.read_bytes())
    [file] = discover([Root(str(kept.root))])
    with pytest.raises(BusyError, match="changed while it was read; try again"):
        show_while_it_changes(kept, file)


def test_the_memory_of_kept_transcripts_is_limited(world):
    """The least recently used is dropped first; one with too many entries is not kept."""
    for name in "abc":
        world.put(f"{name}.jsonl", GENERIC.read_bytes())
    files = [file for file in discover([Root(str(world.root))]) if isinstance(file, SessionFile)]

    def reads(transcripts, file):
        with open_session(file) as opened:
            return transcripts.read(opened)

    one = Transcripts()
    weight = reads(one, files[0]).weight
    assert one.weight == weight
    two = Transcripts(most_bytes=2 * weight + 10)
    a, b, _ = (reads(two, file) for file in (files[0], files[1], files[0]))
    reads(two, files[2])
    assert reads(two, files[0]) is a
    assert reads(two, files[1]) is not b
    assert two.weight <= 2 * weight + 10
    few = Transcripts(most_entries=10)
    assert reads(few, files[0]) is not reads(few, files[0])


def look_at_rows(claw, transcripts):
    with open_session(claw.session(LOCAL)) as opened:
        kept = transcripts.read(opened)
        fresh = Transcript.read(opened.form, opened.lines)
    assert said(kept.transcript) == said(fresh)
    return kept


def test_rows_that_were_added_are_read_alone(tmp_path):
    """New events of a database session extend its transcript; events written again do not."""
    claw, transcripts = Claw(tmp_path), Transcripts()
    first = look_at_rows(claw, transcripts)
    (seq, text), *_ = reversed(claw.events(LOCAL))
    entry = json.loads(text)
    more = json.dumps(entry | {"id": "0a0b0c0d", "parentId": entry["id"]})
    claw.sql(
        "INSERT INTO transcript_events (session_id, seq, event_json, created_at)"
        " VALUES (?, ?, ?, 0)", (LOCAL, seq + 1, more),
    )  # fmt: skip
    assert look_at_rows(claw, transcripts) is first

    claw.sql(
        "UPDATE transcript_events SET event_json = ? WHERE session_id = ? AND seq = ?",
        (more.replace("0a0b0c0d", "0a0b0c0d1"), LOCAL, seq + 1),
    )
    second = look_at_rows(claw, transcripts)
    assert second is not first

    claw.sql(
        "INSERT INTO transcript_rewrite_watermarks (session_id, generation, updated_at)"
        " VALUES (?, 'abc', 0) ON CONFLICT DO UPDATE SET generation = 'abc'", (LOCAL,),
    )  # fmt: skip
    claw.sql(
        "UPDATE transcript_events SET event_json = ? WHERE session_id = ? AND seq = ?",
        (more.replace("0a0b0c0d", "0f0b0c0d1"), LOCAL, seq + 1),
    )
    assert look_at_rows(claw, transcripts) is not second
