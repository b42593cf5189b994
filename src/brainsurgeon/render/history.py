"""Passes, rollbacks and events, as text and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from brainsurgeon.model.texts import readable as safe
from brainsurgeon.model.times import iso
from brainsurgeon.model.turns import folded_text
from brainsurgeon.render import SCHEMA, bytes_, count, local, printable, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from brainsurgeon.model.events import Event, Pass, Tally
    from brainsurgeon.model.reports import RollbackReport, SessionRollback

ESTIMATE = "tokens are estimated from the characters that were cut"
_MINUTES = len("2026-11-01 10:00")
_COUNTS = {
    "sessions": "sessions_changed", "extracted": "values_extracted", "restored": "values_restored",
    "redacted": "values_redacted", "expired": "values_deleted", "fields": "fields_changed",
    "archived": "turns_archived", "unarchived": "turns_unarchived", "chars": "chars",
    "tokens": "tokens",
}  # fmt: skip
"""How the counts of a pass are called in the store, and in JSON."""
_SAID = {
    "extracted": "extracted", "restored": "put back", "redacted": "shortened",
    "expired": "expired",
}  # fmt: skip
_FOLDED = (("archived", "folded", "folded"), ("unarchived", "unfolded", "unfolded"))
"""How archives are counted in the store, how the turns in them, and what is said of both."""


def passes_json(listed: Iterable[Pass]) -> dict[str, Any]:
    """Give the passes as other programs read them."""
    return {"passes": [_pass_json(one) for one in listed]}


def _pass_json(one: Pass) -> dict[str, Any]:
    return {
        "pass_id": one.id, "at": iso(one.at), "command": one.command,
        **{said: one.facts.get(name, 0) for name, said in _COUNTS.items()},
        "rolls_back": one.facts.get("rolls_back"),
    }  # fmt: skip


def passes(listed: Sequence[Pass]) -> str:
    """Give the passes as a table, the newest last."""
    if not listed:
        return "no pass has changed anything yet"
    rows = [
        (str(one.id), local(one.at)[:_MINUTES], command(one), did(one),
         f"{one.facts.get('sessions', 0):,}", f"{one.facts.get('tokens', 0):,}")
        for one in listed
    ]  # fmt: skip
    head = ("pass", "when", "command", "values", "sessions", "tokens")
    return "\n".join([table(head, rows, left=4), ESTIMATE])


def command(one: Pass) -> str:
    """Give by which command a pass was made, and which other it took back."""
    undone = one.facts.get("rolls_back")
    return one.command if undone is None else f"{one.command} {undone}"


def did(one: Pass) -> str:
    """Give what a pass did in a few words."""
    done = [f"{one.facts[name]:,} {said}" for name, said in _SAID.items() if one.facts.get(name)]
    done += [
        f"{folded_text(one.facts[archives], one.facts.get(turns))} {said}"
        for archives, turns, said in _FOLDED if one.facts.get(archives)
    ]  # fmt: skip
    fields = one.facts.get("fields")
    return ", ".join([*done, *([count(fields, "field")] if fields else [])]) or "-"


def rollback_json(done: RollbackReport) -> dict[str, Any]:
    """Give what became of a rollback as other programs read it."""
    return printable({  # type: ignore[no-any-return]
        "rolls_back": done.undone.id, "pass_id": done.made, "dry_run": done.dry_run,
        "sessions": [
            {"session": one.session, "state": one.state, "reason": one.reason,
             "values_restored": one.values, "turns_unarchived": one.turns,
             "insertions_removed": list(one.insertions_removed), "missed": list(one.missed),
             "reasons": one.since}
            for one in done.sessions
        ],
    })  # fmt: skip


def rollback(done: RollbackReport) -> str:
    """Give what became of a rollback, session by session."""
    lines = [line for one in done.sessions for line in _session(one, dry_run=done.dry_run)]
    pending = sum(one.state == "pending" for one in done.sessions)
    changed = sum(one.state == "rolled back" for one in done.sessions)
    verb = "would be " if done.dry_run else ""
    parts = [f"{count(len(done.sessions), 'session')} of pass {done.undone.id}"]
    parts[0] += f" ({done.undone.command}, {local(done.undone.at)})"
    parts.append(f"{changed} {verb}rolled back")
    if pending:
        parts.append(f"{pending} waiting for a settled moment")
    return "\n".join([*lines, ", ".join(parts)])


def _session(one: SessionRollback, *, dry_run: bool) -> list[str]:
    state = f"would be {one.state}" if dry_run and one.state == "rolled back" else one.state
    counts = ((one.values, "value"), (one.turns, "archive"))
    back = " and ".join(count(number, what) for number, what in counts if number)
    values = f", {back} put back" if back else ""
    reason = f" ({safe(one.reason)})" if one.reason else ""
    return [
        f"{safe(one.session)}: {state}{values}{reason}",
        *(f"  undone: {safe(item)}" for item in one.insertions_removed),
        *(f"  not done: {safe(item)}" for item in one.missed),
        *(f"  {count(number, 'value')}: {safe(why)}" for why, number in one.since.items()),
    ]


def events_json(listed: Iterable[Event]) -> dict[str, Any]:
    """Give events as other programs read them."""
    return {"events": [_event_json(one) for one in listed]}


def event_line(one: Event) -> str:
    """Give an event as one line of JSON, for whoever follows."""
    return json.dumps({"schema": SCHEMA, **_event_json(one)})


def _event_json(one: Event) -> dict[str, Any]:
    return printable({  # type: ignore[no-any-return]
        "event_id": one.id, "at": iso(one.at), "kind": one.kind, "pass_id": one.pass_id,
        "session": one.session or one.facts.get("session"),
        "facts": {name: fact for name, fact in one.facts.items() if name != "session"},
    })  # fmt: skip


def event(one: Event) -> str:
    """Give an event as a line of text."""
    of_pass = f" (pass {one.pass_id})" if one.pass_id is not None else ""
    return f"{one.id:<5} {local(one.at)}  {one.kind:11}  {of_session(one)}{of_pass}"


def of_session(one: Event) -> str:
    """Give the session of an event, and what there is to say of it."""
    session = one.session or one.facts.get("session") or "-"
    return f"{safe(session)}: {_told(one)}"


def _told(one: Event) -> str:
    facts = one.facts
    parts = []
    if facts.get("rolls_back") is not None:
        parts.append(f"of pass {facts['rolls_back']}")
    if facts.get("pending"):
        parts.append("waits")
    if facts.get("entry_id"):
        parts.append(f"{facts.get('action', '')} of {facts['entry_id']}".strip())
    elif one.kind == "lapse":
        parts.append(f"{facts.get('action', '')} lapsed".strip())
    if facts.get("values"):
        size = f" ({bytes_(facts['size_bytes'])})" if facts.get("size_bytes") else ""
        parts.append(f"{count(facts['values'], 'value')}{size}")
    if facts.get("archives"):
        parts.append(folded_text(facts["archives"], facts.get("turns_folded")))
    if one.kind == "relief" and not parts:
        parts.append("turns folded")
    if facts.get("reason"):
        parts.append(str(facts["reason"]))
    return safe(", ".join(parts)) or "-"


def counts_json(listed: Iterable[Tally]) -> dict[str, Any]:
    """Give the counts by kind and tool as other programs read them."""
    return {
        "counts": [
            {"kind": one.kind, "tool": one.tool, "values_extracted": one.extracted,
             "chars": one.extracted_chars, "values_restored": one.restored,
             "chars_restored": one.restored_chars}
            for one in listed
        ]
    }  # fmt: skip


def counts(listed: Sequence[Tally]) -> str:
    """Give the counts by kind and tool as a table."""
    if not listed:
        return "nothing was extracted or put back in this time"
    rows = [
        (one.kind, one.tool or "-", f"{one.extracted:,}", f"{one.extracted_chars:,}",
         f"{one.restored:,}", f"{one.restored_chars:,}")
        for one in listed
    ]  # fmt: skip
    head = ("kind", "tool", "extracted", "characters", "put back", "characters")
    return table(head, rows, left=2)
