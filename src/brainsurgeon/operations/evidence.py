"""Show the results of a session's tool calls within a budget. Writes nothing."""

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, partial

from msgspec.structs import replace

from brainsurgeon.config import Settings
from brainsurgeon.errors import NotFoundError
from brainsurgeon.formats.base import ParsedLine, parsed_lines
from brainsurgeon.formats.splice import UntouchableError, locate, splice
from brainsurgeon.hosts import claude_code
from brainsurgeon.lookup.entries import as_the_model_had_them, json_text, owned
from brainsurgeon.lookup.scope import Scope, sessions_in
from brainsurgeon.lookup.sessions import Session, file_of, session_named
from brainsurgeon.model.entries import KeyPath, id_named, parse
from brainsurgeon.model.records import Extraction, Records
from brainsurgeon.model.reports import BUDGET, EvidenceReport
from brainsurgeon.planning import evidence as planned
from brainsurgeon.planning.matching import Matcher
from brainsurgeon.rewrite.inspect import examine_to_show
from brainsurgeon.sessions.discovery import AnyOpen
from brainsurgeon.store import Store

LAST = "last"


def evidence(
    settings: Settings, store: Store, session: str | Session, now: float, *,
    budget: int = BUDGET, turn: str | None = None,
) -> EvidenceReport:  # fmt: skip
    """Return the results of a session's tool calls, extracted or not, in at most `budget` bytes.

    `turn` limits them to the turn with this entry, or to the LAST one. Raises NotFoundError if
    there is no such entry.
    """
    chosen = session_named(settings, store, session)
    file = file_of(chosen)
    with examine_to_show(settings, store, file, chosen.record, now) as examined:
        records, opened = examined.records, examined.session
        visible = tuple(owned(store, chosen, records.extractions))
        records = replace(records, extractions=visible)
        reader = _EntryReader(store, opened, records)
        between = reader.turn(None if turn == LAST else turn) if turn else None
        calls = planned.gather(opened.format, reader.entries(between))
        text = planned.evidence_text(calls, budget, reader.text)
    return EvidenceReport(
        chosen.title, budget, tuple(planned.index_lines(calls, budget)), text.decode()
    )


def mount(
    settings: Settings, store: Store, data: bytes, scope: Scope, budget: int = BUDGET
) -> bytes:
    """Return a request (JSON) or lines of a session with the placeholders of `scope` filled.

    The values get at most `budget` bytes together. All other bytes stay. Raises NotFoundError if no
    session is in scope.
    """
    listed = sessions_in(settings, store, scope)
    if not listed:
        raise NotFoundError("no session is known in this scope; name another agent or session")
    session_ids = {session.record.id for session in listed if session.record}
    of_text = cache(lambda text: _texts_of(store, listed[0], session_ids, text))
    documents, mounted = [data], list[tuple[int, planned.Occurrence, bytes, bytes]]()
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        documents = data.splitlines(keepends=True)
    messages: dict[tuple[int, KeyPath], int] = {}
    for number, raw in enumerate(documents):
        with suppress(ValueError, RecursionError):
            for place in planned.placeholders(json.loads(raw)):
                if values := of_text(place.text):
                    token = json_text(store, value := planned.nearest(place.path, values))
                    text = planned.notice(value) if token is None else json.loads(token.decode())
                    mounted.append((number, place, token or b"", planned.as_bytes(text)))
                    messages.setdefault((number, place.path[:2]), len(messages))
    mounted.sort(
        key=lambda one: (one[1].failed, messages[one[0], one[1].path[:2]], len(one[3])),
        reverse=True,
    )
    given = planned.shares([len(text) for *_, text in mounted], budget)
    cuts: dict[int, list[tuple[int, int, bytes]]] = defaultdict(list)
    for (number, place, token, text), room in zip(mounted, given, strict=True):
        with suppress(UntouchableError):  # a duplicate key
            span = locate(documents[number], [place.path])[place.path]
            cut = json.dumps(planned.shortened(text, room).decode(), ensure_ascii=False).encode()
            if room:
                whole = token and room == len(text)
                cuts[number].append((*span, token if whole else cut))
    return b"".join(splice(raw, cuts[number]) for number, raw in enumerate(documents))


def _texts_of(store: Store, session: Session, session_ids: set[int], text: str) -> list[Extraction]:
    values = owned(store, session, store.extractions.of_entry(text))
    return [
        value for value in as_the_model_had_them(values)
        if not value.block and value.replacement is None
        and ({value.session_id, *store.placements.sessions_of(value.id)} & session_ids)
    ]  # fmt: skip


class _EntryReader:
    def __init__(self, store: Store, session: AnyOpen, records: Records) -> None:
        self._store, self._session, self._records = store, session, records
        self._form = session.format
        where = claude_code.location(session.file.path)
        self._is_subagent = where is not None and where.subagent is not None
        survey = self._form.survey(session.lines, 0)
        self._matcher = Matcher(self._form, survey, records)
        # The length of each line and the id of its entry, by its offset.
        self._places: dict[int, tuple[int, str | None]] = {}

    def _lines(self) -> Iterator[ParsedLine]:
        for parsed in parsed_lines(self._session.lines, self._form):
            # In a sub-agent's own file, every line is marked as a side chain.
            entry = {**parsed.entry, "isSidechain": False} if self._is_subagent else parsed.entry
            yield replace(parsed, entry=entry)

    def turn(self, entry_id: str | None) -> range:
        """Return the offsets of the turn with an entry, or of the last turn if it is None."""
        wanted = None if entry_id is None else id_named(entry_id)
        places: dict[str, int] = {}
        starts = []
        for parsed in self._lines():
            step = self._form.turn_step(parsed.entry)
            if step and step.role == "prompt":
                starts.append(parsed.offset)
            if parsed.ident is not None:
                places[parsed.ident] = parsed.offset
        at = max(places.values(), default=0) if wanted is None else places.get(wanted)
        if at is None:
            raise NotFoundError(
                f"no entry of this session has the id {wanted!r}; name one of its entries"
            )
        start = max((one for one in starts if one <= at), default=0)
        end = min((one for one in starts if one > at), default=self._session.fingerprint.size)
        standing = {
            value.archive_id for value in self._records.extractions if value.state == "standing"
        }
        for archive in self._records.archives:  # an archive may contain earlier turns
            if archive.id in standing and start <= places.get(archive.entry_id, -1) < end:
                start = min(start, places.get(archive.prompt_id, start))
        return range(start, end)

    def entries(self, between: range | None) -> Iterator[tuple[int, planned.Filled]]:
        for parsed in self._lines():
            if between is None or parsed.offset in between:
                self._places[parsed.offset] = len(parsed.raw), parsed.ident
                yield parsed.offset, self._filled(parsed)

    def text(self, call: planned.Evidence) -> bytes:
        """Return the text of a result. It is read again: all of them may not fit in memory."""
        start = call.offset or 0
        size, ident = self._places[start]
        raw = self._session.read(start, start + size)
        parsed = ParsedLine(start, raw, parse(raw) or {}, ident, True)
        return self._filled(parsed).answer(self._form, call.call_id)[0]

    def _filled(self, parsed: ParsedLine) -> planned.Filled:
        token = partial(json_text, self._store)
        return planned.filled(parsed.entry, self._matcher.standing(parsed), token)
