"""Sessions as tables, and the answers to what was asked of one."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from brainsurgeon.model.text import iso
from brainsurgeon.model.text import readable as safe
from brainsurgeon.operations.status import lasting
from brainsurgeon.render import bytes_, columns, count, local, printable, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from brainsurgeon.model.reports import FieldAnswer, RestoreAnswer, SessionRestore, StoreCopy
    from brainsurgeon.operations.left_behind import PlaceholdersLeft
    from brainsurgeon.operations.sessions import SessionSummary
    from brainsurgeon.operations.show import ShownValues
    from brainsurgeon.operations.store import Compaction, Purge, Replacement


SUGGESTION = (
    "This entry was restored before. To keep it in context, consider setting _extractable: false "
    "on the entry."
)


_BY = {
    "daemon": "The daemon puts it back when the session is idle",
    "scan --once": "No daemon runs: the next `brainsurgeon scan --once` that finds the session "
    "idle puts it back",
}


def shown_json(shown: ShownValues) -> dict[str, Any]:
    """Return shown values as other programs read them."""
    told: dict[str, Any] = {"entry_id": shown.entry_id, "session": shown.session}
    if shown.same_as:
        told["same_as"] = shown.same_as
    if shown.missed:
        told["missed"] = list(shown.missed)
    return told | {"content": shown.content}


def restored_json(answer: RestoreAnswer, *, content: bool = False) -> dict[str, Any]:
    """Return the answer to a restore as agents and other programs read it.

    The values are in it while somebody is at work in the session, or with `content`.
    """
    told: dict[str, Any] = {
        "answer_id": answer.answer_id,
        "restored": True,
        "pending": answer.pending,
        "entry_id": answer.entry_id,
        "session": answer.session,
        "keys_restored": list(answer.keys),
        "sizes_bytes": answer.sizes,
        "restored_at": iso(answer.at),
        "redacted": answer.redacts,
    }
    if answer.already:
        told["already"] = True
    if answer.others:
        told["values_restored"] = answer.others + (0 if answer.already else len(answer.sizes))
    if answer.previous is not None:
        told["previous_restored_at"] = iso(answer.previous)
        told["suggestion"] = SUGGESTION
    if answer.pending:
        told["reason"] = answer.why_pending
        told["put_back_by"] = answer.put_back_by
    if answer.insertions_removed:
        told["insertions_removed"] = list(answer.insertions_removed)
    if answer.missed:
        told["missed"] = list(answer.missed)
    if answer.delivers or content:
        if answer.same_as:
            told["same_as"] = answer.same_as
        told["content"] = answer.content  # last, since it may be very long
    return told


def restored(answer: RestoreAnswer) -> str:
    """Return the answer to a restore as text; the values follow when it is pending."""
    values = f"{count(len(answer.sizes), 'value')} ({bytes_(sum(answer.sizes.values()))})"
    name = f"{safe(answer.session)} {safe(answer.entry_id)}"
    lines = []
    if answer.pending:
        lines.append(
            f"{name}: not put back yet ({answer.why_pending}); here it is. "
            f"{_BY[answer.put_back_by]} [answer {answer.answer_id}]"
        )
    elif answer.already:
        lines.append(
            f"{name}: stands restored already, since {local(answer.at)}"
            f"{'; here it is' if answer.delivers else ''} [answer {answer.answer_id}]"
        )
    else:
        lines.append(f"{name}: {values} put back [answer {answer.answer_id}]")
        lines += [f"  {safe(key)}: {bytes_(size)}" for key, size in answer.sizes.items()]
    if answer.others:
        lines.append(f"of its turn {count(answer.others, 'value')} put back")
    lines += [f"undone: {safe(one)}" for one in answer.insertions_removed]
    lines += [f"not done: {safe(one)}" for one in answer.missed]
    if answer.previous is not None:
        lines.append(SUGGESTION)
    return "\n".join(lines)


def restored_all_json(done: Sequence[SessionRestore]) -> dict[str, Any]:
    """Return what `restore --all` did as other programs read it."""
    rows = [asdict(one) for one in done]
    for row in rows:
        row["values_restored"] = row.pop("values")
    return {"sessions": printable(rows)}


def restored_all(done: Sequence[SessionRestore]) -> str:
    """Return what `restore --all` did, session by session."""
    if not done:
        return "nothing to undo"
    lines = []
    for one in done:
        reason = f" ({safe(one.reason)})" if one.reason else ""
        values = f", {count(one.values, 'value')} put back" if one.values else ""
        lines.append(f"{safe(one.session)}: {one.state}{values}{reason}")
        lines += [f"  undone: {safe(item)}" for item in one.insertions_removed]
        lines += [f"  not done: {safe(item)}" for item in one.missed]
        lines += [f"  {one.note}"] if one.note else []
        lines += [f"  a placeholder stays: {safe(item)}" for item in one.left]
    return "\n".join(lines)


def set_json(answer: FieldAnswer) -> dict[str, Any]:
    """Return what became of `set-extractable` as other programs read it."""
    told: dict[str, Any] = {
        "set": True,
        "pending": answer.pending,
        "entry_id": answer.entry_id,
        "session": answer.session,
        "extractable": answer.value,
    }
    if answer.reason:
        told["reason"] = answer.reason
    return told


def set_(answer: FieldAnswer) -> str:
    """Return what became of `set-extractable`."""
    value = json.dumps(answer.value)
    name = f"{safe(answer.session)} {safe(answer.entry_id)}"
    if answer.pending:
        return f"{name}: _extractable {value} noted; it holds from now on ({answer.reason})"
    return f"{name}: _extractable is {value}" + (f"; {answer.reason}" if answer.reason else "")


def sessions_json(listed: Sequence[SessionSummary]) -> dict[str, Any]:
    """Return the sessions as other programs read them."""
    rows = [
        {"session": one.session, "path": one.path, "format": one.format, "size_bytes": one.size,
         "values_extracted": one.extracted, "bytes_saved": one.saved, "state": one.state,
         "reason": one.reason, "started_by": one.started_by, "agent": one.agent,
         "changed_at": None if one.changed_at is None else iso(one.changed_at)}
        for one in listed
    ]  # fmt: skip
    return {"sessions": printable(rows)}


def sessions(listed: Sequence[SessionSummary], now: float, *, chosen: bool = False) -> str:
    """Return the sessions as a table with totals, and the reasons of those that are not idle.

    On a narrow terminal the columns that matter least are left out.
    """
    if not listed:
        none = "no session is such; without --agent and --state all are listed"
        return none if chosen else (
            "no sessions found; the roots in the configuration say where to look"
        )  # fmt: skip
    wanted = [one for one in _COLUMNS if one[1] <= columns()]
    rows = [[cell(one, now) for _, _, cell in wanted] for one in listed]
    lines = [table([name for name, _, _ in wanted], rows), "", _totals(listed)]
    why = [f"{safe(one.session)}: {safe(one.reason)}" for one in listed if one.state != "idle"]
    return "\n".join(lines + (["", *why] if why else []))


def _age(one: SessionSummary, now: float) -> str:
    return "-" if one.changed_at is None else lasting(max(0.0, now - one.changed_at))


# Each column, from how wide a terminal on it is shown, and what stands in it.
_COLUMNS: tuple[tuple[str, int, Callable[[SessionSummary, float], str]], ...] = (
    ("session", 0, lambda one, _: one.session),
    ("format", 70, lambda one, _: one.format or "-"),
    ("size", 0, lambda one, _: bytes_(one.size)),
    ("saved", 40, lambda one, _: bytes_(one.saved)),
    ("age", 60, _age),
    ("state", 50, lambda one, _: one.state),
)


def _totals(listed: Sequence[SessionSummary]) -> str:
    states = Counter(one.state for one in listed)
    told = ", ".join(f"{number:,} {state}" for state, number in states.most_common())
    size, saved = sum(one.size for one in listed), sum(one.saved for one in listed)
    return f"{count(len(listed), 'session')}, {bytes_(size)}, {bytes_(saved)} saved; {told}"


_MOST = 20


def backup_json(done: StoreCopy) -> dict[str, Any]:
    """Return a backup as other programs read it."""
    told = {"path": done.path, "size_bytes": done.size, "values_held": done.values}
    return printable(told)  # type: ignore[no-any-return]


def backup(done: StoreCopy) -> str:
    """Return where a backup is, and that it was read back."""
    return f"{safe(done.path)}: {_holding(done.size, done.values)}, read back whole"


def before_replacing(found: Replacement) -> str:
    """Return what a backup holds, and which placeholders are newer than it."""
    lines = [f"{safe(found.source)}: {_holding(found.size, found.values)}, read whole"]
    return "\n".join(lines + _newer(found))


def replacement_json(done: Replacement) -> dict[str, Any]:
    """Return a restored backup as other programs read it."""
    return printable({  # type: ignore[no-any-return]
        "path": done.source, "size_bytes": done.size, "values_held": done.values,
        "newer": [_placeholders_json(one) for one in done.newer], "kept_store": done.kept,
    })  # fmt: skip


def replacement(done: Replacement) -> str:
    """Say that a backup took the place of the store, and where the old one is."""
    lines = [f"{safe(done.source)} is the store now: {_holding(done.size, done.values)}"]
    lines += _newer(done)
    if done.kept:
        lines.append(f"the store as it was stays as {safe(done.kept)}; remove it when all is well")
    return "\n".join(lines)


def compaction_json(done: Compaction) -> dict[str, Any]:
    """Return a compaction as other programs read it."""
    return {"bytes_before": done.before, "bytes_after": done.after}


def compaction(done: Compaction) -> str:
    return f"store: {bytes_(done.before)} -> {bytes_(done.after)}"


def purge_json(done: Purge) -> dict[str, Any]:
    """Return what became of the store as other programs read it."""
    return printable({  # type: ignore[no-any-return]
        "removed": done.removed, "store_path": done.directory,
        "in_the_way": [_placeholders_json(one) for one in done.placeholders],
        "left": list(done.left),
    })  # fmt: skip


def purge(done: Purge) -> str:
    """Say that the store is gone, or what it is still needed for."""
    if done.removed:
        stays = f"; not ours, so it stays: {safe(', '.join(done.left))}" if done.left else ""
        return f"{safe(done.directory)}: the store is gone{stays}"
    lines = [f"{safe(done.directory)}: the store stays, since placeholders of it stand"]
    lines += _listed(done.placeholders)
    lines.append(
        "`brainsurgeon restore --all` puts them back; --even-so removes the store all the same"
    )
    return "\n".join(lines)


def _newer(found: Replacement) -> list[str]:
    if not found.newer:
        return ["no placeholder in any session is newer than it"]
    placeholders = sum(one.orphans for one in found.newer)
    told = (
        f"{count(placeholders, 'placeholder')} in {count(len(found.newer), 'session')} newer than "
        "it: their values are only in the store of now "
        "(`brainsurgeon restore --all` puts them back first)"
    )
    return [told, *_listed(found.newer)]


def _listed(placeholders: Iterable[PlaceholdersLeft]) -> list[str]:
    listed = list(placeholders)
    lines = []
    for one in listed[:_MOST]:
        number = count(one.placeholders, "placeholder") if one.sure else "there may be placeholders"
        lines.append(f"  {safe(one.session)}: {number}{f', {safe(one.note)}' if one.note else ''}")
    if len(listed) > _MOST:
        lines.append(f"  … and {len(listed) - _MOST} more, with --json")
    return lines


def _placeholders_json(one: PlaceholdersLeft) -> dict[str, Any]:
    told = asdict(one)
    return {"session": told["session"], "placeholders": one.placeholders, "orphans": one.orphans,
            "reason": one.note, "sure": one.sure}  # fmt: skip


def _holding(size: int, values: int) -> str:
    return f"{bytes_(size)} with {count(values, 'value')}"
