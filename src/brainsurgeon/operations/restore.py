"""Restore values of an entry: now if the session is idle, else by a pending request."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from brainsurgeon.errors import ChangedError
from brainsurgeon.formats.base import parse
from brainsurgeon.lookup.entries import choose, entry_named
from brainsurgeon.lookup.sessions import file_of, noted
from brainsurgeon.lookup.values import as_sent, as_the_model_had_them, contents, decode, tokens_of
from brainsurgeon.model.entries import RESTORED, dotted, value_at
from brainsurgeon.model.records import Request
from brainsurgeon.model.reports import RestoreAnswer
from brainsurgeon.model.text import moment_said
from brainsurgeon.rewrite.change import carry_out
from brainsurgeon.rewrite.finish import UNFINISHED
from brainsurgeon.rewrite.inspect import NotIdleError, examine_quiet
from brainsurgeon.sessions.opening import as_it_is_now, open_session
from brainsurgeon.sessions.reading import RefusedError
from brainsurgeon.store.database import daemon_holder
from brainsurgeon.store.requests import LONGEST_WAIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from brainsurgeon.config import Settings
    from brainsurgeon.lookup.entries import EntryValues
    from brainsurgeon.lookup.sessions import Session
    from brainsurgeon.model.entries import KeyPath
    from brainsurgeon.model.plans import Plan
    from brainsurgeon.model.records import Extraction, SessionRecord
    from brainsurgeon.model.sessions import SessionFile
    from brainsurgeon.rewrite.change import AnyRewrite
    from brainsurgeon.rewrite.shelving import Values
    from brainsurgeon.store import Store

_TRY_AGAIN = 0.5  # seconds between two attempts of a restore that waits


def restore(
    settings: Settings,
    store: Store,
    entry: str | EntryValues,
    *,
    clock: Callable[[], float],
    session: str | Session | None = None,
    keys: Iterable[str] = (),
    pristine: bool = False,
    wait: bool = False,
    whole: bool = False,
    give: Callable[[dict[str, Any]], dict[str, Any]] = dict,
) -> RestoreAnswer:
    """Restore the values of an entry; with `wait`, wait until the session is idle.

    For an archived turn these are its last answer and its links; with `whole`, also the values
    that were extracted from the turn.

    `entry` is its id, a whole placeholder, or the result of an earlier lookup. `give` selects the
    content of the answer; if it raises an error, nothing is requested. Raises NotFoundError,
    AmbiguousError or ExpiredError if the lookup fails, ChangedError if the entry has neither
    placeholder nor value, GuardedError if the agent no longer keeps its sessions in files.
    """
    wanted = list(keys)
    named = entry_named(settings, store, entry, session) if isinstance(entry, str) else entry
    values = as_the_model_had_them(choose(named, wanted))
    paths = tuple(value.path for value in values) if wanted else None
    file = file_of(named.session)
    tokens = tokens_of(store, values)
    shown = contents(as_sent(values, wanted), tokens)
    content = give(shown.values)  # before the request: it may raise an error
    session = noted(store, named.session)
    record, now = recorded(session), clock()
    previous = store.extractions.restores(record.id).get(named.entry_id)
    answer = RestoreAnswer(
        named.entry_id, record.title, record.id, pending=False,
        keys=tuple(dotted(value.path) for value in values),
        sizes={dotted(value.path): value.size for value in values},
        at=now, previous=previous, content=content, same_as=shown.same_as,
        answer_id=secrets.token_hex(8), asked_at=now,
    )  # fmt: skip
    answer_if_there = replace(answer, already=True, at=now if previous is None else previous)
    places = {value.id: value.path for value in values}
    placed = store.placements.of_session(record.id)
    is_restored = not any(value.id in placed for value in values)
    more = entries_of_turn(settings, store, named, now) if whole else ()
    if is_restored and not (pristine or more) and _stand(file, named.entry_id, tokens, places):
        why_busy = _not_idle(settings, store, file, now)
        redacts = bool(why_busy) and not settings.keep_purge_control_calls
        return replace(answer_if_there, why_pending=why_busy, redacts=redacts)
    requests = (
        request_to_restore(record, named.entry_id, paths, pristine, now),
        *(request_to_restore(record, entry_id, None, pristine, now) for entry_id in more),
    )
    try:
        planned, rewrite = _carry_out_by(
            clock() + _patience(settings) if wait else clock(),
            settings, store, file, record, requests, clock, tokens,
        )  # fmt: skip
    except NotIdleError as why:
        for request in requests:
            note(settings, store, record, request.entry_id, request.paths, pristine, now)
        return replace(
            answer, pending=True, why_pending=str(why),
            put_back_by="daemon" if daemon_holder(settings.state_dir) else "scan --once",
            redacts=not settings.keep_purge_control_calls,
        )  # fmt: skip
    unfinished = rewrite is not None and not rewrite.finish()
    at = store.extractions.restores(record.id).get(named.entry_id, now)
    others = sum(edit.entry_id in more for edit in planned.putbacks)
    if not _done(planned, named.entry_id) and _stand(
        as_it_is_now(file), named.entry_id, tokens, places
    ):
        not_done = (*missed(planned), *([UNFINISHED] if unfinished else []))
        return replace(answer_if_there, others=others, missed=not_done if more else ())
    done = _answer_when_done(replace(answer, at=at, others=others), planned, values)
    return replace(done, missed=(*done.missed, UNFINISHED)) if unfinished else done


def entries_of_turn(
    settings: Settings, store: Store, named: EntryValues, now: float
) -> tuple[str, ...]:
    """Return the entries of an archived turn from which values were extracted.

    The turn may have been restored already, without these values.
    """
    from brainsurgeon.rewrite.turns import archived_turn  # noqa: PLC0415  few are turns

    turn = archived_turn(settings, store, named, now, undone=True)
    lines = turn.lines if turn else ()
    ids = {str(entry.get("id")) for line in lines if (entry := parse(line)) is not None}
    record = named.session.record
    held = store.extractions.held_in(record.id) if record else []
    entries = dict.fromkeys(value.entry_id for value in held if value.entry_id in ids)
    return tuple(entry for entry in entries if entry != named.entry_id)


def recorded(session: Session) -> SessionRecord:
    """Return the row of a session; raise ValueError if it has none."""
    if session.record is None:
        raise ValueError("a session without a row cannot be changed")
    return session.record


def _not_idle(settings: Settings, store: Store, file: SessionFile, now: float) -> str:
    """Return why a session is not idle, so that its agent may be the caller, or ""."""
    try:
        current = as_it_is_now(file)
        with examine_quiet(settings, current, store.files.at(file.path), now) as examined:
            examined.check_turn()
    except NotIdleError as why:
        return str(why)
    except (OSError, RefusedError):
        pass
    return ""


def _patience(settings: Settings) -> float:
    """Return the seconds after which a pending restore lapses and waiting ends."""
    return max(float(settings.keep_after_restore_seconds), LONGEST_WAIT)


def _carry_out_by(
    deadline: float, settings: Settings, store: Store, file: SessionFile, record: SessionRecord,
    requests: tuple[Request, ...], clock: Callable[[], float], tokens: Values,
) -> tuple[Plan, AnyRewrite | None]:  # fmt: skip
    """Carry out the requests, with retries until `deadline` while the session is not idle."""
    while True:
        try:
            with store.runs.run("restore", requests[0].asked_at):
                return carry_out(settings, store, file, record, requests, clock, tokens)
        except NotIdleError:
            if clock() >= deadline:
                raise
        time.sleep(_TRY_AGAIN)


def _done(planned: Plan, ident: str) -> bool:
    """Check whether a plan restores a value of an entry or removes one of our fields from it."""
    return any(edit.entry_id == ident for edit in planned.putbacks) or any(
        edit.undoes and edit.entry_id == ident for edit in planned.fields
    )


def _answer_when_done(
    answer: RestoreAnswer, planned: Plan, values: tuple[Extraction, ...]
) -> RestoreAnswer:
    ident = answer.entry_id
    back = {dotted(edit.path) for edit in planned.putbacks if edit.entry_id == ident}
    if not _done(planned, ident):
        reasons = [why for entry, why in planned.missed if entry == ident]
        reason = ", ".join(reasons) or "its placeholder no longer stands there"
        raise ChangedError(
            f"{answer.session} {ident}: {reason}; the entry was left as it is. "
            "`brainsurgeon show` still prints the value"
        )
    sizes = {dotted(value.path): value.size for value in values if dotted(value.path) in back}
    return replace(
        answer, keys=tuple(sizes), sizes=sizes,
        previous=_restored_before(planned, ident) or answer.previous,
        insertions_removed=removed(planned), missed=missed(planned),
    )  # fmt: skip


def _restored_before(planned: Plan, entry: str) -> float | None:
    """Return the time in the `_restored` field that the plan replaces, or None."""
    for edit in planned.fields:
        if (edit.entry_id, edit.name) == (entry, RESTORED) and edit.before and not edit.undoes:
            return moment_said(json.loads(edit.before))
    return None


def removed(planned: Plan) -> tuple[str, ...]:
    """Return the fields of brainsurgeon that a plan removes, as text."""
    return tuple(
        f"{edit.name} of {edit.entry_id}" for edit in planned.fields if edit.undoes is not None
    )


def missed(planned: Plan) -> tuple[str, ...]:
    """Return the requests that a plan cannot carry out, with the reasons, as text."""
    return tuple(f"{entry}: {why}" for entry, why in planned.missed)


def _stand(file: SessionFile, entry_id: str, values: Values, paths: dict[int, KeyPath]) -> bool:
    """Check whether an entry has the original values; `values` are tokens by extraction id."""
    try:
        with open_session(file) as opened:
            for line in opened.lines:
                entry = parse(line.raw) if line.raw else None
                if entry is None or line.raw is None:
                    continue
                if opened.format.identity(entry, line.raw, line.number) == entry_id:
                    return all(
                        value_at(entry, paths[ident]) == decode(token)
                        for ident, token in values.items()
                    )
    except (OSError, RefusedError):
        pass
    return False


def request_to_restore(
    record: SessionRecord, entry_id: str | None, paths: tuple[KeyPath, ...] | None,
    pristine: bool, now: float,
) -> Request:  # fmt: skip
    """Return a request to carry out now, to be recorded only if it has to wait."""
    return Request(None, record.id, entry_id, "restore", paths, None, pristine, now, lapses_at=None)


def note_answer(store: Store, answer: RestoreAnswer) -> None:
    """Record the id of an answer, so that the call it answers is redacted later."""
    if answer.redacts:
        answer_id = answer.answer_id.encode()
        with store.transaction():
            store.requests.add_redact(
                answer.session_id, answer.entry_id, answer_id, answer.asked_at
            )


def note(
    settings: Settings, store: Store, record: SessionRecord, entry_id: str | None,
    paths: tuple[KeyPath, ...] | None, pristine: bool, now: float,
) -> None:  # fmt: skip
    """Record a pending restore."""
    with store.transaction():
        store.requests.add_restore(
            record.id, entry_id, paths, now, now + _patience(settings), pristine=pristine
        )
