"""Pending requests, and the journal of unfinished rewrites.

A rewrite is open from the commit that stores the originals until its old file is removed or its new
rows are confirmed. Its writer holds the lock of the session until then, unless it dies or gives up.
"""

import json
import os
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from brainsurgeon.errors import BusyError
from brainsurgeon.model.records import Confirmation, OpenRewrite, Request
from brainsurgeon.model.reports import EventKind
from brainsurgeon.model.session_files import SessionFile
from brainsurgeon.store.database import Table
from brainsurgeon.store.extractions import Archives, Blobs, Fields, Placements
from brainsurgeon.store.runs import Events, Runs

LEAST_WAIT = 600.0  # shortest time (seconds) for which a restore request waits
_AS_JSON = ("paths", "value", "answer")  # columns of a request


class Requests(Table):
    def add(self, request: Request) -> None:
        """Record a request. Unless it redacts, it replaces an earlier one for the same change."""
        row = msgspec.to_builtins(request)
        row |= {name: json.dumps(row[name]) for name in _AS_JSON}
        if request.action != "redact":
            self._execute(
                "DELETE FROM requests WHERE session_id = :session_id AND entry_id IS :entry_id AND"
                " action = :action AND paths IS :paths AND pristine = :pristine"
                " AND rolls_back IS :rolls_back", row,
            )  # fmt: skip
        self._insert("requests", row)

    def of_session(self, session_id: int) -> list[Request]:
        names = Request.__struct_fields__
        listed = f"SELECT {', '.join(names)} FROM requests WHERE session_id = ? ORDER BY id"  # noqa: S608
        rows = self._execute(listed, (session_id,))
        return [_request(dict(zip(names, row, strict=True))) for row in rows]

    def sessions_waiting(self) -> dict[str, float]:
        """Return the time of the newest request of each session, by the session's path."""
        rows = self._execute(
            "SELECT s.path, max(w.asked_at) FROM requests w JOIN sessions s ON s.id = w.session_id"
            " WHERE s.path IS NOT NULL GROUP BY s.path"
        )
        return {os.fsdecode(path): at for path, at in rows}

    def end(self, ids: Iterable[int]) -> None:
        self._executemany("DELETE FROM requests WHERE id = ?", ((ident,) for ident in ids))

    def cancel(self, ids: Iterable[int], why: str, now: float, run_id: int | None) -> None:
        rows = self._execute(
            "DELETE FROM requests WHERE id IN (SELECT value FROM json_each(?))"
            " RETURNING session_id, entry_id, action", (json.dumps([*ids]),)
        ).fetchall()  # fmt: skip
        for session, entry, action in rows:
            facts = {"action": action, "entry_id": entry, "reason": why}
            Events(self._connection).add(now, "lapse", session, facts, run_id)

    def late(self, now: float) -> list[tuple[int, int, bool]]:
        """Return id and session of the requests that lapse now unless their session is blocked.

        The last item is true for requests that wait as long as their session is blocked.
        """
        rows = self._execute(
            "SELECT id, session_id, lapses_at IS NULL FROM requests WHERE lapses_at <= ?"
            " OR (lapses_at IS NULL AND rolls_back IS NULL AND action IN ('restore', 'relieve'))",
            (now,),
        )
        return [(ident, session, bool(waits)) for ident, session, waits in rows]

    def wait(self, ids: Iterable[int], lapses_at: float | None) -> None:
        """Set when requests lapse. None: not while their session is blocked."""
        self._executemany(
            "UPDATE requests SET lapses_at = ? WHERE id = ?"
            " AND (? IS NOT NULL OR action IN ('restore', 'relieve'))",
            ((lapses_at, ident, lapses_at) for ident in ids),
        )

    def lapse(self, ids: Iterable[int], now: float, run_id: int | None = None) -> None:
        """End requests that came too late.

        With a restore, the redactions of its answers end: they are the only copies of the values
        that the agent has.
        """
        ids = [*ids]
        answers = self._column(
            "SELECT r.id FROM requests r JOIN requests w USING (session_id, entry_id)"
            " WHERE r.action = 'redact' AND w.action = 'restore'"
            " AND w.id IN (SELECT value FROM json_each(?))",
            json.dumps(ids),
        )
        why = "its session was not idle in time, or is excluded or gone"
        self.cancel([*ids, *answers], why, now, run_id)

    def lapse_missed(self, expired: Iterable[int], now: float, run_id: int | None) -> None:
        """End requests of missing sessions: restores, which hold their values, if they `expired`.

        Without its session, no other request has an effect.
        """
        ids = "SELECT w.id FROM requests w JOIN sessions s ON s.id = w.session_id WHERE w.action"
        late = self._column(
            f"{ids} = 'restore' AND s.id IN (SELECT value FROM json_each(?))",  # noqa: S608
            json.dumps([*expired]),
        )
        why = "its session has been missing for so long that its values expire"
        self.cancel(late, why, now, run_id)
        others = self._column(f"{ids} != 'restore' AND s.missed_at IS NOT NULL")
        self.cancel(others, "its session is gone", now, run_id)

    def newest(self, session_id: int) -> int:
        return self._first("SELECT max(id) FROM requests WHERE session_id = ?", session_id) or 0

    def count_open(self) -> int:
        return int(self._first("SELECT count(*) FROM requests WHERE action != 'redact'"))


def _request(row: dict[str, Any]) -> Request:
    read = {name: json.loads(row[name] or "null") for name in _AS_JSON}
    return msgspec.convert(row | read | {"pristine": bool(row["pristine"])}, Request)


# Shortened restore calls, and archives. `_facts` excludes archives.
_REDACTED = "(replacement IS NOT NULL AND kind != 'thinking')"


def _as_json(rewrite: OpenRewrite) -> str:
    # Paths may contain surrogates, which msgspec's own encoder refuses.
    return json.dumps(msgspec.to_builtins(rewrite))


def _rewrite(journal_id: int, text: str) -> OpenRewrite:
    return replace(msgspec.convert(json.loads(text), OpenRewrite), id=journal_id)


class Journal(Table):
    def begin(
        self, session_id: int, file: SessionFile, temporary: str, confirmation: Confirmation
    ) -> int:
        rewrite = OpenRewrite(
            file.root, file.directory, file.name, temporary, file.fingerprint.inode,
            id=0, session_id=session_id, confirmation=confirmation,
        )  # fmt: skip
        return self._insert("journal", {"session_id": session_id, "rewrite": _as_json(rewrite)})

    def update(self, journal_id: int, **changes: Any) -> None:
        changed = _as_json(replace(self.rewrite(journal_id), **changes))
        self._execute("UPDATE journal SET rewrite = ? WHERE id = ?", (changed, journal_id))

    def open_rewrites(self, session_id: int | None = None) -> list[OpenRewrite]:
        listed = "SELECT id, rewrite FROM journal WHERE ?1 IS NULL OR session_id = ?1 ORDER BY id"
        return [_rewrite(*row) for row in self._execute(listed, (session_id,))]

    def rewrite(self, journal_id: int) -> OpenRewrite:
        """Return a rewrite; raise BusyError if another process has closed it."""
        text = self._first("SELECT rewrite FROM journal WHERE id = ?", journal_id)
        if text is None:
            raise BusyError("another process has closed the unfinished rewrite; try again")
        return _rewrite(journal_id, text)

    def confirm(self, journal_id: int, session_id: int, confirmation: Confirmation) -> None:
        """Make the records of a completed rewrite valid, and record its events and run totals.

        Recovery calls this, too: the rewrite stays open until `close`.
        """
        self._record_events(journal_id, session_id, confirmation)
        self._confirm_extractions(journal_id, session_id, confirmation.at)
        self._confirm_restores(session_id, confirmation)
        self._confirm_fields(journal_id, session_id, confirmation)
        Requests(self._connection).end(confirmation.requests)
        self.update(journal_id, confirmed=True)

    def _record_events(self, journal_id: int, session_id: int, note: Confirmation) -> None:
        runs, archives = Runs(self._connection), Archives(self._connection)
        run = runs.by_id(note.run_id)
        run_id = run.id if run else None  # the run may be lost with a damaged store
        requests = self._execute(
            "SELECT action, rolls_back FROM requests WHERE id IN (SELECT value FROM json_each(?))",
            (json.dumps(note.requests),),
        ).fetchall()
        relieves = "relieve" in [run and run.command, *(action for action, _ in requests)]
        rolled_back = run and run.facts.get("rolls_back")
        rolled_back = rolled_back or max((of for _, of in requests if of), default=None)
        removed = self._facts("journal_id = ?", journal_id)
        extracted = self._facts(f"journal_id = ? AND NOT {_REDACTED}", journal_id)
        redacted = self._facts(f"journal_id = ? AND {_REDACTED}", journal_id)
        listed = json.dumps(note.restored_ids)
        restored = self._facts("id IN (SELECT value FROM json_each(?))", listed)
        archived = self._archive_facts(archives.of_rewrite(journal_id))
        unarchived = self._archive_facts(archives.undone_by(note.restored_ids))
        fields = self._first(
            "SELECT count(*) FROM fields WHERE session_id = ? AND journal_id = ?",
            session_id, journal_id,
        )  # fmt: skip
        counted = self._first(
            "SELECT 1 FROM events WHERE run_id = ? AND session_id = ? LIMIT 1", run_id, session_id
        )
        tokens = self._first(  # without the tokens of earlier extractions that an archive replaces
            "SELECT coalesce(sum(n.tokens - coalesce("
            "(SELECT sum(o.tokens) FROM extractions o JOIN placements p ON p.extraction_id = o.id"
            " AND p.session_id = n.session_id WHERE o.name = n.name AND o.path = n.path"
            " AND o.digest = n.digest AND o.id < n.id AND n.archive_id IS NOT NULL), 0)), 0)"
            " FROM extractions n WHERE n.journal_id = ?", journal_id,
        )  # fmt: skip
        runs.add(
            run_id, sessions=not counted, tokens=tokens,
            extracted=extracted["values"], chars=extracted["chars"],
            redacted=redacted["values"], restored=restored["values"],
            fields=fields + len(note.fields_gone),
            archived=archived.get("archives", 0),
            archived_turns=archived.get("turns_held", 0),
            unarchived=unarchived.get("archives", 0),
            unarchived_turns=unarchived.get("turns_held", 0),
        )  # fmt: skip

        def add(kind: EventKind, facts: dict[str, Any]) -> None:
            Events(self._connection).add(note.at, kind, session_id, facts, run_id)

        if extracted["values"]:
            add("extraction", extracted)
        if archived:
            add("archive", archived)
        if (removed["values"] or archived) and relieves:
            add("relief", removed)
        if redacted["values"]:
            add("redaction", redacted)
        if rolled_back is not None and (note.restored_ids or note.fields_gone):
            more = {"rolls_back": rolled_back, "fields_changed": len(note.fields_gone)}
            add("rollback", restored | more)
        elif restored["values"]:
            add("restoration", restored)
        if unarchived:
            add("unarchive", unarchived)

    def _facts(self, where: str, value: object) -> dict[str, Any]:
        rows = self._execute(
            "SELECT kind, tool, count(*), sum(chars), sum(size) FROM extractions"  # noqa: S608
            f" WHERE archive_id IS NULL AND {where} GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2",
            (value,),
        ).fetchall()
        return {
            "values": sum(row[2] for row in rows), "chars": sum(row[3] for row in rows),
            "size_bytes": sum(row[4] for row in rows),
            "by": [
                {"kind": kind, "tool": tool, "values": values, "chars": chars}
                for kind, tool, values, chars, _ in rows
            ],
        }  # fmt: skip

    def _archive_facts(self, ids: Sequence[int]) -> dict[str, int]:
        if not ids:
            return {}
        names = ("archives", "entries", "tokens_before", "tokens_after", "turns_held")
        row = self._execute(
            "SELECT count(*), total(entries), total(tokens_before), total(tokens_after),"
            " total(turns) FROM archives WHERE id IN (SELECT value FROM json_each(?))",
            (json.dumps(ids),),
        ).fetchone()
        return {name: int(number) for name, number in zip(names, row, strict=True)}

    def _confirm_extractions(self, journal_id: int, session_id: int, now: float) -> None:
        """Confirm new extractions, which replace earlier ones of the same value and replacement.

        Other extractions at the same paths are kept for forks, but have left this session.
        """
        earlier = self._execute(
            "SELECT o.id, n.id, o.digest = n.digest AND o.replacement IS n.replacement"
            " FROM extractions n CROSS JOIN extractions o INDEXED BY extractions_name"
            " ON o.name = n.name AND o.path = n.path AND o.session_id = n.session_id"
            " AND o.journal_id IS NULL WHERE n.journal_id = ?",
            (journal_id,),
        ).fetchall()
        for old, new, same in earlier:
            if same:
                moved = "UPDATE OR REPLACE placements SET extraction_id = ? WHERE extraction_id = ?"
                self._execute(moved, (new, old))
                self._execute("DELETE FROM extractions WHERE id = ?", (old,))
            else:
                Placements(self._connection).remove(session_id, [old], now)
        self._execute(
            "INSERT OR REPLACE INTO placements (session_id, extraction_id)"
            " SELECT session_id, id FROM extractions WHERE journal_id = ?",
            (journal_id,),
        )
        self._execute(
            "UPDATE extractions SET journal_id = NULL WHERE journal_id = ?", (journal_id,)
        )

    def _confirm_restores(self, session_id: int, confirmation: Confirmation) -> None:
        self._executemany(
            "UPDATE extractions SET restored_at = ? WHERE id = ?",
            ((confirmation.at, row) for row in confirmation.restored_ids),
        )
        Placements(self._connection).remove(session_id, confirmation.restored_ids, confirmation.at)
        self._executemany(
            "INSERT INTO restores (session_id, entry_id, restored_at) VALUES (?, ?, ?)"
            " ON CONFLICT DO UPDATE SET restored_at = max(restored_at, excluded.restored_at)",
            ((session_id, entry, confirmation.at) for entry in confirmation.restored),
        )

    def _confirm_fields(self, journal_id: int, session_id: int, confirmation: Confirmation) -> None:
        self._execute(
            "DELETE FROM fields WHERE state != 'pending' AND session_id = ?1"
            " AND (entry_id, name) IN"
            " (SELECT entry_id, name FROM fields WHERE session_id = ?1 AND journal_id = ?2)",
            (session_id, journal_id),
        )
        self._execute(
            "UPDATE fields SET state = 'standing', journal_id = NULL"
            " WHERE session_id = ? AND journal_id = ?",
            (session_id, journal_id),
        )
        Fields(self._connection).undo(session_id, confirmation.fields_gone)

    def close(self, journal_id: int) -> None:
        self._execute("DELETE FROM journal WHERE id = ?", (journal_id,))

    def close_ended(self, before: float) -> None:
        """Close rewrites that were given up before a time (counted): they keep values."""
        ended = "DELETE FROM journal WHERE json_extract(rewrite, '$.ended_at') < ?"
        self._execute(ended, (before,))

    def keep(self, journal_id: int) -> None:
        """Keep the extractions of an undone rewrite, as if they had been restored.

        An agent may have read the new content, and may write its placeholders again.
        """
        self._execute(
            "UPDATE extractions SET journal_id = NULL, unplaced_at = -extracted_at"
            " WHERE journal_id = ?",
            (journal_id,),
        )
        self._execute("DELETE FROM fields WHERE journal_id = ?", (journal_id,))

    def forget(self, journal_id: int) -> None:
        """Delete the records and values of a rewrite whose new content no process can have read."""
        archives = Archives(self._connection).of_rewrite(journal_id)
        values = self._column("SELECT blob_id FROM extractions WHERE journal_id = ?", journal_id)
        self._execute("DELETE FROM extractions WHERE journal_id = ?", (journal_id,))
        Blobs(self._connection).release(sorted(set(values)))
        self._executemany("DELETE FROM archives WHERE id = ?", ((ident,) for ident in archives))
        self._execute("DELETE FROM fields WHERE journal_id = ?", (journal_id,))
        Runs(self._connection).drop_empty(journal_id)

    def abandon(self, journal_id: int) -> None:
        self.forget(journal_id)
        self.close(journal_id)
