"""Return the results of a session's tool calls. Fill placeholders in JSON. Writes nothing."""

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import cache, partial

from msgspec.structs import replace

from brainsurgeon.agents import agent_at
from brainsurgeon.config import Settings
from brainsurgeon.errors import AmbiguousError, BrainsurgeonError, NotFoundError, UsageError
from brainsurgeon.formats.splice import locate_sure, splice
from brainsurgeon.lookup.entries import json_text, own_copies_last, owned
from brainsurgeon.lookup.scope import Scope, sessions_in, started_by
from brainsurgeon.lookup.sessions import Session, all_sessions, file_of, session_named
from brainsurgeon.model.entries import JsonObject, KeyPath, id_named
from brainsurgeon.model.records import Extraction, Records
from brainsurgeon.model.reports import BUDGET, EvidenceReport
from brainsurgeon.model.text import readable
from brainsurgeon.planning import evidence as planned
from brainsurgeon.planning.matching import find
from brainsurgeon.rewrite.inspect import examine_to_show
from brainsurgeon.sessions.discovery import AnyOpen
from brainsurgeon.store import Store

LAST = "last"


def evidence(
    settings: Settings, store: Store, session: str | Session, now: float, *,
    budget: int = BUDGET, turn: str | None = None, subagents: bool = False,
) -> EvidenceReport:  # fmt: skip
    """Return the results of tool calls, extracted or not, in at most `budget` bytes.

    `turn` limits them to the turn with this entry id, or to the LAST turn. With `subagents`, the
    sub-agents that the session started share the budget. Raises NotFoundError if no entry has the
    id, and UsageError for a turn with sub-agents.
    """
    if turn and subagents:
        raise UsageError("evidence takes a turn or --subagents, not both; name only one of them")
    chosen = session_named(settings, store, session)
    started = _started(settings, store, chosen) if subagents else []
    calls: list[planned.Evidence] = []
    unread: list[str] = []
    readers: dict[int, _EntryReader] = {}
    with ExitStack() as held:
        for source, item in enumerate([chosen, *started]):
            try:
                shown = examine_to_show(settings, store, file_of(item), item.record, now)
                examined = held.enter_context(shown)
            except BrainsurgeonError as why:
                if not source:
                    raise
                unread.append(f"{readable(item.title)} [not read: {readable(why.reason)}]")
                continue
            visible = tuple(owned(store, item, examined.records.extractions))
            records = replace(examined.records, extractions=visible)
            reader = readers[source] = _EntryReader(store, examined.session, records)
            indexes = reader.turn(None if turn == LAST else turn) if turn else None
            gathered = planned.gather(examined.form, reader.entries(indexes))
            name = item.title if source else ""
            # In the index, the newest calls of the session itself stay the longest.
            calls = [replace(one, source=source, session=name) for one in gathered] + calls
        text = planned.evidence_text(calls, budget, lambda call: readers[call.source].text(call))
    index = (*unread, *planned.index_lines(calls, budget))
    mark = planned.mark_for("\n".join(index).encode() + text)
    return EvidenceReport(
        chosen.title, budget, index, planned.marked(text, mark).decode(), mark.decode()
    )


def _started(settings: Settings, store: Store, chosen: Session) -> list[Session]:
    others = (
        replace(one, only_owned=chosen.only_owned) for one in all_sessions(settings, store)
        if one.agent_directory == chosen.agent_directory
    )  # fmt: skip
    return started_by(chosen, list(others))


def mount(
    settings: Settings, store: Store, data: bytes, scope: Scope, budget: int = BUDGET
) -> bytes:
    """Replace placeholders in `data` by values of `scope`, shortened to `budget` bytes in total.

    Placeholders stay if the budget has no room. `data` is a JSON document or lines of JSON. Notices
    replace expired and damaged values. Raises NotFoundError if `scope` has no session, and
    AmbiguousError if it names sessions of several agents.
    """
    listed = sessions_in(settings, store, scope)
    if not listed:
        raise NotFoundError("this scope has no session; name another agent or session")
    if scope.session and len({session.agent_directory for session in listed}) > 1:
        titles = [session.title for session in listed]
        raise AmbiguousError(f"session {scope.session!r}", titles, "name its agent, too")
    session_ids = {record.id for session in listed for record in session.records}
    values_for = cache(lambda text: _values(store, listed[0], session_ids, text))
    documents, filled = [data], list[tuple[int, planned.Occurrence, bytes, bytes]]()
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        documents = data.splitlines(keepends=True)
    messages: dict[tuple[int, KeyPath], int] = {}
    for number, raw in enumerate(documents):
        with suppress(ValueError, RecursionError):
            for place in planned.placeholders(json.loads(raw)):
                if values := values_for(place.text):
                    token = json_text(store, value := planned.nearest(place.path, values))
                    text = planned.notice(value) if token is None else json.loads(token.decode())
                    filled.append((number, place, token or b"", planned.as_bytes(text)))
                    messages.setdefault((number, place.path[:2]), len(messages))
    failed = sum(place.failed for _, place, _, _ in filled)
    filled.sort(  # failed results first, then the newest messages, then the longest texts
        key=lambda item: (item[1].failed, messages[item[0], item[1].path[:2]], len(item[3])),
        reverse=True,
    )
    ours = planned.mark_for(b"".join([data, *(text for *_, text in filled)])) + b" "
    filled = [
        (number, place, token, text if token else ours + text)
        for number, place, token, text in filled
    ]
    shares = planned.shares([len(text) for *_, text in filled], budget, failed=failed)
    paths: dict[int, list[KeyPath]] = defaultdict(list)
    for number, place, _, _ in filled:
        paths[number].append(place.path)
    spans = {number: locate_sure(documents[number], each)[0] for number, each in paths.items()}
    edits: dict[int, list[tuple[int, int, bytes]]] = defaultdict(list)
    for (number, place, token, text), share in zip(filled, shares, strict=True):
        if share and place.path in spans[number]:  # no duplicate key leads there
            short = planned.shortened(text, share, ours).decode()
            is_whole = token and share == len(text)
            new = token if is_whole else json.dumps(short, ensure_ascii=False).encode()
            edits[number].append((*spans[number][place.path], new))
    return b"".join(splice(raw, edits[number]) for number, raw in enumerate(documents))


def _values(store: Store, session: Session, session_ids: set[int], text: str) -> list[Extraction]:
    values = owned(store, session, store.extractions.of_entry(text))
    placed = store.placements.sessions_of(value.id for value in values)
    return [
        value for value in own_copies_last(values)
        if not value.block and value.replacement is None
        and ({value.session_id, *placed[value.id]} & session_ids)
    ]  # fmt: skip


class _EntryReader:
    def __init__(self, store: Store, session: AnyOpen, records: Records) -> None:
        self._store, self._session, self._records = store, session, records
        self._form, self._transcript = session.form, session.transcript
        owner = agent_at(session.file.path).home.owner(session.file.path)
        self._is_subagent = owner is not None and owner.started_by is not None
        self._standing = find(self._transcript, records, session.parsed).standing

    def _entry(self, index: int) -> JsonObject:
        as_main = self._form.as_main if self._is_subagent else {}
        return {**self._session.parsed(index).entry, **as_main}

    def turn(self, entry_id: str | None) -> range:
        """Return the indexes of an entry's turn; None means the last turn."""
        wanted = None if entry_id is None else id_named(entry_id)
        indexes: dict[str, int] = {}
        starts = []
        for index, entry in enumerate(self._transcript.entries):
            again = self._form.read(self._entry(index)).step if self._is_subagent else entry
            if again.role == "prompt":
                starts.append(index)
            if entry.ident is not None:
                indexes[entry.ident] = index
        at = max(indexes.values(), default=0) if wanted is None else indexes.get(wanted)
        if at is None:
            raise NotFoundError(
                f"no entry of this session has the id {wanted!r}; name one of its entries"
            )
        start = max((one for one in starts if one <= at), default=0)
        end = min((one for one in starts if one > at), default=len(self._transcript.entries))
        in_place = {
            value.archive_id for value in self._records.extractions if value.state == "standing"
        }
        for archive in self._records.archives:  # one archive may cover several turns
            if archive.id in in_place and start <= indexes.get(archive.entry_id, -1) < end:
                start = min(start, indexes.get(archive.prompt_id, start))
        return range(start, end)

    def entries(self, indexes: range | None) -> Iterator[tuple[int, planned.Filled]]:
        for index, entry in enumerate(self._transcript.entries):
            tells = self._is_subagent or entry.calls or entry.results
            if tells and (indexes is None or index in indexes):
                yield index, self._filled(index)

    def text(self, call: planned.Evidence) -> bytes:
        """Read the entry of a result again: the texts of all results may not fit in memory."""
        return self._filled(call.index or 0).answer(self._form, call.call_id)[0]

    def _filled(self, index: int) -> planned.Filled:
        token = partial(json_text, self._store)
        return planned.filled(self._entry(index), self._standing.get(index, ()), token)
