"""Recognise the agent's own restore calls and say what is to stand in their place.

A call is recognised by its answer alone: the wish recorded a digest of how the answer began, and
that names session, entry and moment. What the host called the tool does not matter, and a tool
that merely happens to be called restore is never touched.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from brainsurgeon.formats.base import parse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.formats.base import Answer, Format
    from brainsurgeon.model.entries import Entry, KeyPath, Kind, Lines
    from brainsurgeon.model.records import Wish

HEAD = 200
"""Characters of an answer that are recorded: hosts cut long answers off at their end."""


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


def answer_mark(text: str) -> bytes:
    """Give the digest by which an answer is recognised later."""
    head = text.strip()[:HEAD]
    return hashlib.blake2b(head.encode("utf-8", "surrogatepass"), digest_size=32).digest()


def find_own_calls(lines: Lines, form: Format, wishes: Iterable[Wish]) -> OwnCalls:
    """Look through a session for the answers that were recorded, and for the calls they answer.

    A result that does not name its call answers the call that stands before it.
    """
    marks: dict[bytes | None, list[Wish]] = defaultdict(list)
    for wish in wishes:
        if wish.action == "redact":  # what was asked for twice is answered alike, in that order
            marks[wish.answer].append(wish)
    found = OwnCalls()
    if not marks:
        return found
    last_call = None
    for line in lines:
        entry = parse(line.raw) if line.raw else None
        if entry is None or line.raw is None:
            continue
        ident = form.identity(entry, line.raw, line.number)
        for call in form.calls(entry):
            last_call = call.call_id or ident
        for answer in form.answers(entry):
            asked = marks.get(answer_mark(answer.text))
            if asked is None or ident is None:
                continue
            wish = asked.pop(0) if len(asked) > 1 else asked[0]
            wanted = wish.entry_id or ""
            found.wishes.add(wish.id)
            found.answers.setdefault(ident, []).append((answer, wanted))
            call_id = answer.call_id or last_call
            if call_id:
                found.calls[call_id] = wanted
    return found


def redactions(
    entry: Entry, ident: str, form: Format, own: OwnCalls
) -> tuple[list[Redaction], bool]:
    """Say what gives way in one entry, and whether the entry is one of our own calls at all.

    The result becomes one short line. The call keeps its id and name and, where its arguments
    name an action, only that and the entry; a shell command stays as it is, and what its provider
    signed.
    """
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
        if "action" in call.arguments and call.arguments != short and not call.signed:
            said = json.dumps(short, separators=(",", ":"))
            token = (json.dumps(said) if call.as_text else said).encode()
            listed.append(Redaction(call.path, token, len(str(call.arguments)), "tool_call"))
    return listed, ours
