"""Recognise the agent's own restore calls and say what is to stand in their place.

A call is recognised by its answer alone: the wish recorded the random id that the answer carries,
so that it is found inside a longer output, too. What the host called the tool does not matter, and
a tool that merely happens to be called restore is never touched.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from brainsurgeon.formats.base import parse
from brainsurgeon.model.entries import value_at
from brainsurgeon.model.sessions import NO_SURVEY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.formats.base import Answer, Format
    from brainsurgeon.model.entries import Entry, KeyPath, Kind, Lines
    from brainsurgeon.model.plans import Plan
    from brainsurgeon.model.records import Wish

ACTIONS = frozenset({"restore", "restore_remote"})
"""What a call of our own tool says that it wants; a call with another action is somebody else's."""


@dataclass(frozen=True, slots=True)
class Redaction:
    """One value that gives way: its path, the token that stands in for it, and its length."""

    path: KeyPath
    token: bytes
    chars: int
    kind: Kind


@dataclass(frozen=True, slots=True)
class OwnCalls:
    """What was recognised in a session: answers by the id of their entry, calls by their id.

    `wishes` are the wishes whose answer was found.
    """

    answers: dict[str, list[tuple[Answer, str]]] = field(default_factory=dict)
    calls: dict[str, str] = field(default_factory=dict)
    wishes: set[int | None] = field(default_factory=set)


def _answered(
    asked: dict[str, Wish], answer: Answer, entry: Entry, form: Format
) -> tuple[Wish, Answer] | None:
    """Take out the request that a text answers; give it, and the text with every copy of it."""
    ident = next((one for one in asked if one in answer.text), None)
    if ident is None:
        return None
    copies = tuple(
        part.path
        for part in form.parts(entry, NO_SURVEY, None)
        if part.path != answer.path and ident in str(value_at(entry, part.path))
    )
    return asked.pop(ident), replace(answer, copies=copies)


def find_own_calls(lines: Lines, form: Format, wishes: Iterable[Wish]) -> OwnCalls:
    """Look through a session for the answers that wishes name, and for the calls they answer.

    A result that does not name its call answers the call that stands before it.
    """
    asked = {
        wish.answer.decode(): wish for wish in wishes if wish.action == "redact" and wish.answer
    }
    own = OwnCalls()
    if not asked:
        return own
    last_call = None
    for line in lines:
        entry = parse(line.raw) if line.raw else None
        if entry is None or line.raw is None:
            continue
        ident = form.identity(entry, line.raw, line.number)
        for call in form.calls(entry):
            last_call = call.call_id or ident
        if ident is None:
            continue
        for one in form.answers(entry):
            known = _answered(asked, one, entry, form)
            if known is None:
                continue
            wish, answer = known
            wanted = wish.entry_id or ""
            own.wishes.add(wish.id)
            own.answers.setdefault(ident, []).append((answer, wanted))
            call_id = answer.call_id or last_call
            if call_id:
                own.calls[call_id] = wanted
    return own


def redactions(
    entry: Entry, ident: str, form: Format, own: OwnCalls
) -> tuple[list[Redaction], bool]:
    """Say what gives way in one entry, and whether the entry is one of our own calls at all.

    The result becomes one short line. The call keeps its id and name and, where its arguments
    are those of our tool, only action and entry; a shell command stays as it is, and what its
    provider signed.
    """
    if not (own.answers or own.calls):
        return [], False
    listed = []
    for answer, wanted in own.answers.get(ident, ()):
        token = json.dumps(f"Restored {wanted}.").encode()
        listed += [
            Redaction(path, token, len(answer.text), "tool_result")
            for path in (answer.path, *answer.copies)
        ]
    ours = bool(listed)
    for call in form.calls(entry):
        asked_for = own.calls.get(call.call_id or ident)
        if asked_for is None:
            continue
        ours = True
        short = {"action": "restore", "entry": asked_for}
        ours_to_cut = call.arguments.get("action") in ACTIONS and not call.signed
        if ours_to_cut and call.arguments != short:
            said = json.dumps(short, separators=(",", ":"))
            token = (json.dumps(said) if call.as_text else said).encode()
            listed.append(Redaction(call.path, token, len(str(call.arguments)), "tool_call"))
    return listed, ours


def ended(
    planned: Plan, unanswered: list[Wish], changed_at: float, now: float, patience: float
) -> Plan:
    """Add which redactions end without an answer, and when to look for the others again."""
    over = [
        wish for wish in unanswered
        if wish.asked_at < changed_at or wish.asked_at + patience <= now
    ]  # fmt: skip
    due = [wish.asked_at + patience for wish in unanswered if wish not in over]
    if planned.due_at is not None:
        due.append(planned.due_at)
    ids = tuple(wish.id for wish in over if wish.id is not None)
    return replace(planned, unanswered=ids, due_at=min(due, default=None))
