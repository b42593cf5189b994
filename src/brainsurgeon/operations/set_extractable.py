"""Set or remove the field `_extractable`, which pins or extracts an entry."""

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from brainsurgeon import errors
from brainsurgeon.agents import superseded
from brainsurgeon.config import Settings
from brainsurgeon.lookup.entries import entry_in
from brainsurgeon.lookup.sessions import Session, file_of, with_record
from brainsurgeon.model.entries import EXTRACTABLE, REDACTED, Value
from brainsurgeon.model.records import Request
from brainsurgeon.model.reports import FieldAnswer
from brainsurgeon.model.session_files import NotIdleError, SessionFile
from brainsurgeon.operations.restore import recorded
from brainsurgeon.rewrite import inspect
from brainsurgeon.rewrite.apply import carry_out
from brainsurgeon.rewrite.recover import UNFINISHED, finish
from brainsurgeon.sessions.discovery import AnyOpen, failed, open_to_show
from brainsurgeon.store import Store

LARGEST_RECENT = 2**53  # larger numbers are not exact in JavaScript, in which agents are written


def set_extractable(
    settings: Settings, store: Store, entry: str, value: bool | int | None,
    *, clock: Callable[[], float], session: str | Session | None = None,
) -> FieldAnswer:  # fmt: skip
    """Record a request for the field, and set it if the session is idle. None removes the field.

    Plans follow the request even before the field is set. If the format has no fields, the store
    remembers it instead. Raises UsageError for other values,
    NotFoundError or AmbiguousError unless exactly one entry matches, ChangedError if the entry
    cannot be edited, and FailedError or MovedError if the file cannot be changed. For True, also
    raises FailedError if no scan prunes the session, and ChangedError if the entry has no value
    that could be extracted. Values of excluded tools and redacted entries do not count.
    """
    if value is not None and (type(value) not in (bool, int) or not 0 <= value <= LARGEST_RECENT):
        raise errors.UsageError(
            f"{value!r}: wants true, false, or a whole number from 0; more than {LARGEST_RECENT} "
            "are too many to be stored exactly"
        )
    chosen, ident = entry_in(settings, store, entry, session)
    file, now = _checked_file(settings, chosen, value), clock()
    record = recorded(with_record(store, chosen))
    if value is True and not _has_values(settings, store, file, record.id, ident):
        raise errors.ChangedError(
            f"{chosen.title} {ident}: the entry has no value that could be extracted; it was left "
            "as it is"
        )
    with open_to_show(file) as opened:
        has_fields = opened.form.has_fields
    pending, reason = False, ""
    with store.runs.run("extract" if value is True else "pin", now):
        if has_fields:
            with store.transaction():
                store.requests.add(Request(record.id, "set", now, ident, value=value))
            try:
                planned, rewrite = carry_out(settings, store, file, record, (), clock)
                reason = "" if finish(rewrite) else UNFINISHED
                missed = planned.handled.missed
            except NotIdleError as why:
                pending, reason, missed = True, str(why), ()
            if reasons := [why for name, why in missed if name == ident]:
                raise errors.ChangedError(
                    f"{chosen.title} {ident}: {reasons[0]}; the entry was left as it is"
                )
        else:
            with store.transaction():
                store.fields.keep(record.id, ident, value, store.runs.number())
                store.files.forget([file.path])  # else it counts as unchanged
    placed = store.placements.of_session(record.id)
    values = store.extractions.of_entry(ident) if value is not True else []
    extracted = sum(
        one.id in placed and one.entry_id == ident and not one.is_redacted for one in values
    )
    return FieldAnswer(ident, chosen.title, value, pending, reason, extracted)


def _checked_file(settings: Settings, chosen: Session, value: bool | int | None) -> SessionFile:
    file = file_of(chosen)
    if superseded(file):
        raise errors.MovedError(
            f"{chosen.title}: the agent keeps its sessions in SQLite now; nothing was changed"
        )
    why = inspect.excluded(file, settings) if settings.enabled else "enabled = false"
    if value is True and why:  # no scan would extract the entry
        raise failed(chosen.title, why)
    return file


def _has_values(
    settings: Settings, store: Store, file: SessionFile, session_id: int, ident: str
) -> bool:
    # Extracted signed thinking leaves no placeholder: its entry may have no other value.
    placed = store.extractions.contained_in(session_id)
    if any(one.entry_id == ident and not one.is_redacted for one in placed):
        return True
    rules = inspect.settings_for(settings, file).decision_rules()
    with open_to_show(file) as opened:
        return any(
            not (value.locked or rules.excludes(value))
            for index, entry in enumerate(opened.transcript.entries)
            if entry.ident == ident
            for value in _extractable(opened, index)
        )


def _extractable(opened: AnyOpen, index: int) -> Iterator[Value]:
    """Yield the values of an entry as if it had the field, and a later prompt followed it.

    That prompt unlocks the signed thinking of the last turn. A redacted entry has none.
    """
    entry, around = opened.parsed(index).entry, opened.transcript.around(index)
    values = opened.form.read({**entry, EXTRACTABLE: True}).values
    later = replace(around, in_last_turn=False)
    return iter(()) if entry.get(REDACTED) else opened.form.resolved(values, later)
