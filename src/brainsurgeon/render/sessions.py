"""Render sessions, restores, pins, and copies of the store as text and JSON."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from brainsurgeon.model import reports
from brainsurgeon.model.text import bytes_, counted, iso, lasting
from brainsurgeon.model.text import readable as safe
from brainsurgeon.render.formatting import (
    Column,
    columned,
    columns,
    first,
    in_local_time,
    local,
    table,
    title,
    titles,
    width,
)

SUGGESTION = (
    "This entry was restored before. To keep it in context, consider setting _extractable: false "
    "on the entry: `set_extractable` with false in the tool, `brainsurgeon pin ENTRY` in a shell."
)
KEPT = "This keeps what is in the entry now. "
STILL_OUT = (
    "Values that were extracted from this entry stay extracted until they are restored: call "
    "restore for it."
)
PADDED = "{} of values are replaced by placeholders and spaces: that saves tokens, no disk space"
_MOST = 20  # sessions or changes listed by name
_NAMES = 3  # entries named for one reason
_BY = {
    "daemon": "The daemon restores it when the session is idle",
    "scan --once": "No daemon runs: the next `brainsurgeon scan` that finds the session "
    "idle restores it",
}


_DONE = ("restored", "would be restored")  # really, or in a dry run
_WOULD = {"restored": "would be restored", "rolled back": "would be rolled back",
          "pending": "would wait", "failed": "would fail"}  # fmt: skip
NOTHING = "nothing was written"


def restored_json(answer: reports.RestoreAnswer, *, with_content: bool = False) -> dict[str, Any]:
    before, others = answer.previous is not None, answer.others
    includes = answer.shows_values or with_content
    document: dict[str, Any] = {
        "answer_id": answer.answer_id, "restored": not answer.dry_run, "pending": answer.pending,
        "entry_id": answer.entry_id, "session": answer.session,
        "keys_restored": list(answer.sizes), "sizes_bytes": answer.sizes,
        "restored_at": iso(answer.at), "redacted": answer.redaction is not None,
    }  # fmt: skip
    optional = {
        "dry_run": answer.dry_run,
        "already": answer.already,
        "values_restored": others and others + (0 if answer.already else len(answer.sizes)),
        "previous_restored_at": before and iso(answer.previous or 0.0),
        "suggestion": before and SUGGESTION,
        "kept_until": answer.kept_until and iso(answer.kept_until),
        "reason": answer.pending and answer.why_pending,
        "restored_by": answer.pending and answer.restored_by,
        "insertions_removed": list(answer.insertions_removed),
        "missed": list(answer.missed),
        "same_as": includes and answer.same_as,
    }
    document |= {name: fact for name, fact in optional.items() if fact}
    # The content comes last, since it may be very long.
    return document | ({"content": answer.content} if includes else {})


def restored(answer: reports.RestoreAnswer, *, to_person: bool = False) -> str:
    """Return the answer as text; for an agent, with the id under which it is recorded."""
    lines = []
    if answer.pending and answer.dry_run:
        state = f"would wait ({answer.why_pending})"
    elif answer.pending:
        state = f"not restored yet ({answer.why_pending}); here it is. {_BY[answer.restored_by]}"
    elif answer.already:
        at = "" if answer.previous is None else f", at {local(answer.at)}"
        state = f"restored already{at}{'; here it is' if answer.shows_values else ''}"
    else:
        size = bytes_(sum(answer.sizes.values()))
        state = f"{counted(len(answer.sizes), 'value')} ({size}) {_DONE[answer.dry_run]}"
        lines = [f"  {safe(key)}: {bytes_(size)}" for key, size in answer.sizes.items()]
    to_person |= answer.dry_run
    name = f"{safe(title(answer.session))} {safe(answer.entry_id)}"
    lines.insert(0, f"{name}: {state}" + ("" if to_person else f" [answer {answer.answer_id}]"))
    if answer.others:
        others = counted(answer.others, "value")
        lines.append(f"{others} of the same turn {_DONE[answer.dry_run]}")
    lines += _undone_and_missed(answer, "", dry_run=answer.dry_run)
    if answer.dry_run:
        lines.append(NOTHING)
    elif to_person and answer.kept_until is not None:
        lines.append(
            f"It stays at least until {local(answer.kept_until)}. "
            f"To keep it longer: brainsurgeon pin {safe(answer.entry_id)}"
        )
    elif answer.previous is not None:
        lines.append(SUGGESTION)
    return "\n".join(lines)


def restored_all_json(
    done: Sequence[reports.SessionRestore], overfull: Sequence[reports.OverfullSession],
    *, dry_run: bool = False,
) -> dict[str, Any]:  # fmt: skip
    return {
        **({"dry_run": True} if dry_run else {}),
        "sessions": done,
        "values_restored": sum(session.values_restored for session in done),
        "sessions_unfinished": sum(session.unfinished for session in done),
        "too_full_afterwards": overfull,
    }


def overfull(listed: Sequence[reports.OverfullSession]) -> str:
    lines = [
        f"{safe(one.session)}: the next request will have about {round(one.load_tokens, -3):,}"
        f" tokens, but the window of the model has {one.window_tokens:,}"
        for one in listed
    ]
    return "\n".join([*lines, "start a new conversation, or let the agent compact the session"])


def waiting(pending: Sequence[reports.SessionRestore]) -> str:
    return "\n".join(f"waiting for {safe(one.session)}: {safe(one.reason)}" for one in pending)


def restored_all(
    done: Sequence[reports.SessionRestore], *, waited: bool = False, dry_run: bool = False
) -> str:
    if not done:
        return "nothing to undo"
    lines = []
    for session in done:
        lines += session_restored(session, dry_run=dry_run)
        if session.note:
            lines.append(f"  {session.note}")
        if session.state == reports.IN_ARCHIVE:
            stay = counted(len(session.left), "placeholder stays", "placeholders stay")
            lines[-1] += f", {stay}: this kind of file is never changed"
        else:
            missed = set(session.missed)
            left = [item for item in session.left if item not in missed]
            lines += _by_reason("  placeholder not replaced", left)
    values = counted(sum(session.values_restored for session in done), "value")
    # A session may have several files.
    changed = counted(len({one.session for one in done if one.state == "restored"}), "session")
    unfinished = len({one.session for one in done if one.unfinished})
    end = f"no placeholder {'would be' if dry_run else 'is'} left"
    if unfinished:
        # A failed session may be unreadable, or already changed if only the store failed.
        are = "may be" if any(session.state == "failed" for session in done) else "are"
        pending = len({one.session for one in done if one.state == "pending"})
        advice = "" if waited else ": add --wait"
        waits = f", {pending} of them not idle{advice}" if pending else ""
        are = "would be" if dry_run else are
        end = f"placeholders {are} left in {counted(unfinished, 'session')}{waits}"
    if signed := sum(session.signed_left for session in done):
        entries = counted(signed, "entry", "entries")
        end += f"; signed thinking of {entries} stays extracted: --pristine restores it, too"
    if dry_run:
        end += f"; {NOTHING}"
    return "\n".join([*lines, f"{values} {_DONE[dry_run]} in {changed}; {end}"])


def what_follows(session: str | None, *, paused: bool, keep: float) -> str:
    """Return what scans do with restored values, and how to change it."""
    of_session = f" --session {safe(session)}" if session else ""
    if paused:
        return (
            "paused: scans extract nothing here until you end it: "
            f"brainsurgeon pause --end{of_session}"
        )
    return (
        f"scans may extract these values again after {lasting(keep)}; to prevent that: "
        f"brainsurgeon pause{of_session}"
    )


def session_restored(
    answer: reports.SessionRestore, turns: int = 0, *, dry_run: bool = False
) -> list[str]:
    counts = ((answer.values_restored, "value"), (turns, "archive"))
    amounts = " and ".join(counted(number, unit) for number, unit in counts if number)
    done = f"{answer.state}, {amounts} restored" if amounts else answer.state
    if dry_run and answer.state in _WOULD:
        done = _WOULD[answer.state] + (f", {amounts}" if amounts else "")
    reason = f" ({safe(answer.reason)})" if answer.reason else ""
    return [
        f"{safe(title(answer.session))}: {done}{reason}",
        *_undone_and_missed(answer, "  ", dry_run=dry_run),
    ]


def _undone_and_missed(
    answer: reports.RestoreAnswer | reports.SessionRestore, indent: str, *, dry_run: bool
) -> list[str]:
    label = f"{indent}{'would be ' if dry_run else ''}undone"
    undone = [f"{label}: {safe(item)}" for item in answer.insertions_removed]
    missed = _by_reason(f"{indent}not done", answer.missed)
    return [
        *first(undone, _MOST, indent + "… and {:,} more undone"),
        *first(missed, _MOST, indent + "… and {:,} more not done (--json names each)"),
    ]


def _by_reason(label: str, items: Iterable[str]) -> list[str]:
    entries = defaultdict[tuple[str, str], list[str]](list)
    for item in items:
        entry, colon, why = item.partition(": ")
        entries[colon + why, "" if why else entry].append(entry)
    lines = []
    for (why, _), names in entries.items():
        some = ", ".join(first(names, _NAMES, "… and {:,} more"))
        number = f"{counted(len(names), 'entry', 'entries')}, " if len(names) > 1 else ""
        lines.append(safe(f"{label}: {number}{some}{why}"))
    return lines


def set_json(answer: reports.FieldAnswer) -> dict[str, Any]:
    advice = STILL_OUT if answer.extractable is None else KEPT + STILL_OUT
    suggestion = {"suggestion": advice} if answer.still_extracted else {}
    return {"set": True, **to_builtins(answer), **suggestion}


def set_(answer: reports.FieldAnswer) -> str:
    match answer.extractable:
        case None:
            done = "the rules decide again"
        case True:
            done = "to be extracted by the next scan, whatever is not extracted yet"
        case False:
            done = "pinned"
        case _:
            done = f"pinned while among the last {counted(answer.extractable, 'message')}"
    text = f"{safe(answer.session)} {safe(answer.entry_id)}: {done}"
    if answer.pending:
        text += f"; recorded, and in force from now on ({answer.reason})"
    elif answer.reason:
        text += f"; {answer.reason}"
    if answer.still_extracted:
        text += f"\nthe entry still has {counted(answer.still_extracted, 'extracted value')}: "
        text += f"`brainsurgeon restore {safe(answer.entry_id)}` restores the entry"
    return text


def _age(one: reports.SessionSummary, now: float) -> str:
    return "-" if one.changed_at is None else lasting(now - one.changed_at)


def sessions(
    listed: Sequence[reports.SessionSummary], now: float, *, filtered: bool = False
) -> str:
    if not listed:
        if filtered:
            return "no session matches; without --agent and --state all are listed"
        return "no sessions found; `brainsurgeon status` prints the roots"
    size = sum(session.size_bytes for session in listed)
    saved = sum(session.bytes_saved for session in listed)
    states = Counter(session.state for session in listed).most_common()
    counts = ", ".join(f"{number:,} {state}" for state, number in states)
    names = titles((one.session for one in listed), only_some=filtered)
    longest = max(map(width, names.values()))
    room = columns() - max(0, longest - _NAME)
    lines = [
        table(*columned(_COLUMNS, listed, names, now, room=room), fixed=1),
        "",
        f"{counted(len(listed), 'session')}, {bytes_(size)}, {bytes_(saved)} saved; {counts}",
    ]
    why = [
        f"{safe(names[one.session])}: {safe(in_local_time(one.reason))}"
        for one in listed if one.state != "idle"
    ]  # fmt: skip
    if padded := sum(session.bytes_padded for session in listed):
        lines.append(PADDED.format(bytes_(padded)))
    return "\n".join([*lines, *(["", *why] if why else [])])


_NAME = 20  # the width of a name beside which the columns fit
_COLUMNS: tuple[Column, ...] = (
    ("session", -math.inf, lambda one, names, _: names[one.session]),
    ("format", 70, lambda one, *_: one.format or "-"),
    ("size", -math.inf, lambda one, *_: bytes_(one.size_bytes)),
    ("saved", 40, lambda one, *_: bytes_(one.bytes_saved)),
    ("age", 60, lambda one, _, now: _age(one, now)),
    ("state", 50, lambda one, *_: one.state),
)


def backup(done: reports.StoreCopy) -> str:
    return f"{safe(done.path)}: {_size(done)}, verified"


def before_replacing(done: reports.Replacement) -> str:
    values = "only the current store has the values; first run `brainsurgeon restore --all`"
    return "\n".join([backup(done), *_newer(done, values)])


def replacement(done: reports.Replacement) -> str:
    values, kept = "only a newer backup can have the values", []
    if done.kept_store:
        values = (
            "only the old store has the values; to restore them, run `brainsurgeon store restore` "
            "with the old store, then `brainsurgeon restore --all`"
        )
        kept = [f"the old store is kept as {safe(done.kept_store)}; remove it when all is well"]
    installed = f"the store was replaced by a copy of {safe(done.path)}: {_size(done)}"
    return "\n".join([installed, *_newer(done, values), *kept])


def purge(done: reports.Purge) -> str:
    if done.removed:
        others = [name for name in done.left if name != "init.json"]
        kept = f"; other files were kept: {safe(', '.join(others))}" if others else ""
        if len(others) < len(done.left):
            kept += "; to undo the changes by `init`: `brainsurgeon init --undo`"
        return f"{safe(done.store_path)}: the store was removed{kept}"
    listed = done.in_the_way
    lines = [
        f"{safe(done.store_path)}: the store was not removed, since extracted values may be left",
        *_listed(listed),
    ]
    expired = sum(left.values_expired for left in listed)
    orphans = sum(left.orphans for left in listed if not left.left)
    if lost := expired + orphans:
        number = f"{counted(lost, 'value')} ({expired:,} expired, {orphans:,} without a record)"
        lines.append(f"this store cannot restore {number}: only --even-so removes it then")
    if lost < sum(left.placeholders for left in listed) or not all(left.sure for left in listed):
        those = "the others" if lost else "them; --even-so removes the store anyway"
        lines.append(f"`brainsurgeon restore --all --pristine` restores {those}")
    return "\n".join(lines)


def _newer(backup: reports.Replacement, values: str) -> list[str]:
    if not backup.newer:
        return ["no extracted value is newer than the backup"]
    number = sum(left.orphans for left in backup.newer)
    what = counted(number, "extracted value") if number else "perhaps there are extracted values"
    listed = [replace(left, placeholders=left.orphans) for left in backup.newer]
    return [f"{what} newer than the backup: {values}", *_listed(listed)]


def _listed(placeholders: Sequence[reports.PlaceholdersLeft]) -> list[str]:
    lines = []
    for left in placeholders:
        number = counted(left.placeholders, "extracted value")
        found = number if left.sure else "there may be extracted values"
        note = f", {safe(left.reason)}" if left.reason else ""
        lines.append(f"  {safe(left.session)}: {found}{note}")
    return first(lines, _MOST, "  … and {} more, with --json")


def _size(copy: reports.StoreCopy) -> str:
    return f"{bytes_(copy.size_bytes)} with {counted(copy.values_held, 'value')}"
