"""Return stored values, archived turns and whole sessions, and search them. Writes nothing."""

import re
from collections.abc import Iterable, Iterator

from brainsurgeon.config import Settings
from brainsurgeon.errors import BusyError, UsageError
from brainsurgeon.files.reading import RefusedError
from brainsurgeon.formats.chain import Around
from brainsurgeon.lookup import entries
from brainsurgeon.lookup.opening import check_store
from brainsurgeon.lookup.sessions import Session, all_sessions, file_of, session_named
from brainsurgeon.model.entries import KeyPath, dotted, parse, value_at
from brainsurgeon.model.plans import bytes_after
from brainsurgeon.model.reports import ArchivedTurn, Found, Hit, NotSearched, ShownValues
from brainsurgeon.sessions.discovery import open_session, open_to_show
from brainsurgeon.store import Store

MOST_HITS = 50
AROUND = 120  # characters of text returned with a hit


def show_turn(
    settings: Settings, store: Store, entry: str, session: str | Session | None, now: float
) -> ArchivedTurn | None:
    """Return None if the entry is no archive.

    Raises NotFoundError or AmbiguousError; FailedError or BusyError if the file cannot be read.
    """
    named = entries.entry_named(settings, store, entry, session, to_show=True)
    if entries.archive_in(named) is None:
        return None
    from brainsurgeon.rewrite.archived_turns import archived_turn  # noqa: PLC0415  rarely needed

    return archived_turn(settings, store, named, now)


def show(
    settings: Settings, store: Store, entry: str,
    session: str | Session | None = None, keys: Iterable[str] = (),
) -> ShownValues:  # fmt: skip
    """Return the values of an entry. Raises NotFoundError, AmbiguousError or ExpiredError."""
    named = entries.entry_named(settings, store, entry, session, to_show=True)
    wanted = list(keys)
    values = entries.choose(named, wanted)
    sent = entries.without_screen(values, wanted)
    shown, same_as = entries.contents(sent, entries.json_texts(store, sent))
    missed = entries.unknown_keys(named.values, wanted) + tuple(
        f"{dotted(value.path)}: expired" for value in entries.with_keys(named.values, wanted)
        if value.blob_id is None
    )  # fmt: skip
    return ShownValues(named.entry_id, named.session.title, same_as, missed, shown)


def cat(settings: Settings, store: Store, name: str | Session, now: float) -> Iterator[bytes]:
    """Yield a session with its values restored, or as it is if its format is not pruned.

    Its files follow each other, the oldest first.
    """
    for part in reversed(session_named(settings, store, name).parts):
        yield from _cat(settings, store, part, now)


def _cat(settings: Settings, store: Store, chosen: Session, now: float) -> Iterator[bytes]:
    from brainsurgeon.rewrite import inspect  # noqa: PLC0415  not needed to show an entry

    file = file_of(chosen)
    with open_to_show(file) as session:
        position = 0
        try:
            is_known = session.form is not None
        except RefusedError:
            is_known = False
        if is_known:
            examined = inspect.examine_open(settings, store, session, now, chosen.record)
            for edit in inspect.plan_of_everything(examined).restorations:
                yield from session.stream(position, edit.start)
                yield bytes_after(edit, store.extractions.value)
                position = edit.end
        yield from session.stream(position, session.fingerprint.size)


def search(
    settings: Settings, store: Store, text: str, session: str | Session | None = None,
    *, regex: bool = False,
) -> Found:  # fmt: skip
    """Search one session or all. Return the first match in each value, at most MOST_HITS.

    Ignores case. Raises UsageError for an empty text or an invalid expression, and
    StoreUnusableError if the store is missing: extracted values are searched, too.
    """
    try:
        wanted = re.compile(text if regex else re.escape(text), re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:  # `a{9999999999}` is an overflow
        raise UsageError(
            f"{text!r} is not a regular expression ({error}); without --regex it is plain text"
        ) from error
    if not text:
        raise UsageError("TEXT is empty; name a text to search for")
    check_store(settings)
    named = session_named(settings, store, session).parts if session else ()
    listed = named or all_sessions(settings, store)
    hits, unread = list[Hit](), list[NotSearched]()
    for item in listed:
        found = _texts(store, item, wanted, unread, named=bool(session))
        for entry_id, path, value, stored in found:
            match = wanted.search(value)
            if match is None:
                continue
            if len(hits) == MOST_HITS:
                return Found(hits, more=True, not_searched=unread)
            start = max(0, match.start() - (AROUND - (match.end() - match.start())) // 2)
            offset = len(value[: match.start()].encode("utf-8", "surrogatepass"))
            around = value[min(start, match.start()) :][:AROUND]
            hits.append(Hit(item.title, entry_id, dotted(path), offset, around, stored))
    return Found(hits, more=False, not_searched=unread)


def _texts(
    store: Store, session: Session, wanted: re.Pattern[str], unread: list[NotSearched],
    *, named: bool,
) -> Iterator[tuple[str, KeyPath, str, bool]]:  # fmt: skip
    why = session.unseen
    try:
        yield from _in_file(session, wanted, named=named)
    except (OSError, BusyError, RefusedError) as error:
        if named and isinstance(error, BusyError):
            raise  # a busy session is an error only if the caller named it
        why = (error.strerror if isinstance(error, OSError) else str(error)) or "unreadable"
    if why:
        unread.append(NotSearched(session.title, why))
    if session.record is None:
        return
    contained = store.extractions.contained_in(session.record.id)
    extracted = entries.attributable(store, session, contained)
    for extraction in entries.owned(store, session, extracted):
        stored = None if extraction.is_link else entries.json_text(store, extraction)
        if stored is None:
            continue
        value = entries.decode(stored)
        texts = {extraction.path: value}
        if isinstance(value, dict):  # a whole block, such as thinking
            texts = {(*extraction.path, key): value.get(key) for key in ("text", "thinking")}
        for path, text in texts.items():
            if isinstance(text, str):
                yield extraction.entry_id, path, text, True


def _in_file(
    session: Session, wanted: re.Pattern[str], *, named: bool
) -> Iterator[tuple[str, KeyPath, str, bool]]:
    if session.file is None:
        return
    with open_session(session.file) as opened:
        try:
            form = opened.form
        except RefusedError:
            if named or session.file.in_database:
                raise
            return  # files of other formats are not searched
        for line in opened.lines:
            whole = parse(line.raw or b"") or {}
            for entry in form.entries(line, 0) if whole else ():
                for part in form.resolved(entry.values, Around()):
                    text = value_at(whole, (*entry.at, *part.path))
                    if entry.ident is None or part.dead or not isinstance(text, str):
                        continue
                    if wanted.search(text):
                        yield entry.ident, part.path, text, False
