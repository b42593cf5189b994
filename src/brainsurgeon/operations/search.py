"""Search the session files and the extracted values. Writes nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from brainsurgeon.errors import BrainsurgeonError, UsageError
from brainsurgeon.formats.base import parse
from brainsurgeon.lookup.entries import owned
from brainsurgeon.lookup.sessions import all_sessions, session_named
from brainsurgeon.lookup.values import decode
from brainsurgeon.model.entries import dotted, value_at
from brainsurgeon.model.sessions import NO_SURVEY
from brainsurgeon.sessions.opening import open_session
from brainsurgeon.sessions.reading import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from brainsurgeon.config import Settings
    from brainsurgeon.lookup.sessions import Session
    from brainsurgeon.model.entries import KeyPath
    from brainsurgeon.store import Store

MOST = 50  # hits returned
_READ = ("text", "thinking")  # keys of readable text in a block; signatures are not searched
AROUND = 120  # characters of text returned with a hit


@dataclass(frozen=True, slots=True)
class Hit:
    """A match: the value, the byte `offset` in it, and the text around the match.

    A `held` value is in the store; the file has a placeholder or a summary in its place.
    """

    session: str
    entry_id: str
    path: str
    offset: int
    text: str
    held: bool


def search(
    settings: Settings, store: Store | None, text: str, session: str | Session | None = None,
    *, regex: bool = False, among: Iterable[Session] | None = None,
) -> list[Hit]:  # fmt: skip
    """Return the first matches of a text, ignoring case, in one session, in `among`, or in all.

    With `regex` the text is a regular expression. Raises UsageError for an invalid expression,
    NotFoundError or AmbiguousError for a session.
    """
    try:
        wanted = re.compile(text if regex else re.escape(text), re.IGNORECASE)
    except re.error as error:
        raise UsageError(f"{text!r} is no regular expression: {error}") from error
    if not text:
        raise UsageError("search wants a text")
    if session:
        listed = [session_named(settings, store, session)]
    else:
        listed = all_sessions(settings, store) if among is None else list(among)
    hits = (hit for item in listed for hit in _in_session(store, item, wanted))
    return list(islice(hits, MOST))


def _in_session(store: Store | None, session: Session, wanted: re.Pattern[str]) -> Iterator[Hit]:
    yield from _in_file(session, wanted)
    if store is None or session.record is None:
        return
    held = store.extractions.held_in(session.record.id)
    for extraction in owned(store, session, held):
        if extraction.blob_id is None or extraction.links:
            continue
        try:
            value = decode(store.extractions.value(extraction.id))
        except BrainsurgeonError:
            continue  # a damaged value does not stop the search
        for path, text in _texts(extraction.path, value):
            yield from _hits(session, extraction.entry_id, dotted(path), text, wanted, held=True)


def _texts(path: KeyPath, value: Any) -> Iterator[tuple[KeyPath, str]]:
    """Yield the texts in a value, which may be a whole block of thinking or with an image."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        yield from (((*path, key), value[key]) for key in _READ if isinstance(value.get(key), str))


def _in_file(session: Session, wanted: re.Pattern[str]) -> Iterator[Hit]:
    if session.file is None:
        return
    try:
        with open_session(session.file) as opened:
            form = opened.format
            for line in opened.lines:
                entry = parse(line.raw) if line.raw else None
                if entry is None or line.raw is None:
                    continue
                ident = form.identity(entry, line.raw, line.number)
                for part in form.parts(entry, NO_SURVEY, None) if ident else ():
                    value = value_at(entry, part.path)
                    if isinstance(value, str) and not part.dead:
                        path = dotted(part.path)
                        yield from _hits(session, ident or "", path, value, wanted, held=False)
    except (OSError, RefusedError):
        return


def _hits(
    session: Session, entry_id: str, path: str, value: str, wanted: re.Pattern[str], *, held: bool
) -> Iterator[Hit]:
    """Yield the first match in a value, and no other: `show` prints the rest."""
    match = wanted.search(value)
    if match is None:
        return
    start = max(0, match.start() - (AROUND - (match.end() - match.start())) // 2)
    offset = len(value[: match.start()].encode("utf-8", "surrogatepass"))
    text = value[min(start, match.start()) :][:AROUND]
    yield Hit(session.title, entry_id, path, offset, text, held)
