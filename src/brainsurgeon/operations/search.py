"""Look through what is held and what stands in the files; nothing is touched."""

from __future__ import annotations

import re
from dataclasses import dataclass
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

MOST = 50
"""Hits that are told."""
_READ = ("text", "thinking")
"""Keys of a block below which something stands that somebody wrote; signatures are nobody's."""
AROUND = 120
"""Characters of a hit's surroundings that are told."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One place where a text was found: in which value, at which byte of it, and what is there.

    A `held` value stands in the store, and a stub, or a summary, in its place.
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
    """Find a text, whatever its case, in one session or in all; give the first hits.

    With `regex` it is an expression. `among` narrows to some sessions. Raise UsageError for an
    expression that is none, NotFoundError or AmbiguousError for a session.
    """
    try:
        wanted = re.compile(text if regex else re.escape(text), re.IGNORECASE)
    except re.error as error:
        raise UsageError(f"{text!r} is no regular expression: {error}") from error
    if not text:
        raise UsageError("search wants a text")
    if session:
        named = session_named(settings, store, session) if isinstance(session, str) else session
        listed = [named]
    else:
        listed = all_sessions(settings, store) if among is None else list(among)
    found: list[Hit] = []
    for one in listed:
        for hit in _in_session(store, one, wanted):
            found.append(hit)
            if len(found) == MOST:
                return found
    return found


def _in_session(store: Store | None, session: Session, wanted: re.Pattern[str]) -> Iterator[Hit]:
    yield from _in_file(session, wanted)
    if store is None or session.record is None:
        return
    held = store.extractions.held_in(session.record.id)
    for one in owned(store, session, held):
        if one.blob_id is None or one.links:
            continue
        try:
            value = decode(store.extractions.value(one.id))
        except BrainsurgeonError:
            continue  # one damaged value hides no other
        for path, text in _texts(one.path, value):
            yield from _hits(session, one.entry_id, dotted(path), text, wanted, held=True)


def _texts(path: KeyPath, value: Any) -> Iterator[tuple[KeyPath, str]]:
    """Yield what can be read in a value: it may be a whole block, of thinking or with a picture."""
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
    """Yield the first place in a value, and no other: the rest is read with `show`."""
    match = wanted.search(value)
    if match is None:
        return
    start = max(0, match.start() - (AROUND - (match.end() - match.start())) // 2)
    offset = len(value[: match.start()].encode("utf-8", "surrogatepass"))
    text = value[min(start, match.start()) :][:AROUND]
    yield Hit(session.title, entry_id, path, offset, text, held)
