"""Gather the turns of a session: what each holds, and all that decides about it.

One walk over the lines, made only where turns may fold. What is kept of an entry is its id, its
place and some numbers; of its texts only those that a summary quotes.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING

from brainsurgeon.decide.summary import FINDING
from brainsurgeon.decide.turns import tokens_of
from brainsurgeon.formats import base
from brainsurgeon.formats.sending import DIALECTS
from brainsurgeon.model.entries import stub_in, value_at
from brainsurgeon.model.sessions import EDITED_AWAY, OFF_BRANCH
from brainsurgeon.model.turns import MARK, Told, Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from brainsurgeon.decide.extract import EntryState
    from brainsurgeon.decide.turns import ArchiveRules
    from brainsurgeon.formats.base import Format
    from brainsurgeon.model.calls import Sent
    from brainsurgeon.model.entries import Entry, Line, Lines
    from brainsurgeon.model.records import Extraction, Wish
    from brainsurgeon.model.sessions import Survey
    from brainsurgeon.model.turns import Said

_LONGEST_NAME = 40
_CUT_FLAT = ("thinking", "tool_result")
"""Kinds that leave the middle of a turn that stays where it stands."""


@dataclass(frozen=True, slots=True)
class Step:
    """One entry of a turn: its place in the file and what it comes to.

    `chars` and `going` count its values, and those that leave in the flat form; `sent` is what a
    request carries of it.
    """

    offset: int
    ident: str | None
    said: Said
    chars: int
    going: int
    kind: str
    sent: Sent


@dataclass(slots=True)
class Gathered:
    """One turn as it stands: its entries from the prompt on, and what is known of them."""

    number: int
    steps: list[Step]
    dead: str | None = None
    held: str | None = None
    until: float | None = None
    position: int = 0
    archived: bool = False

    @property
    def prompt(self) -> Step:
        """The entry that it begins with."""
        return self.steps[0]

    @property
    def closing(self) -> Step | None:
        """Its last reply, whether or not that closes it."""
        return next((one for one in reversed(self.steps) if one.said.role == "reply"), None)

    @property
    def middle(self) -> list[Step]:
        """The entries between its prompt and its last reply."""
        last = self.closing
        return self.steps[1 : self.steps.index(last)] if last else self.steps[1:]


@dataclass(slots=True)
class Conversation:
    """All turns of a session, oldest first, and which entries name which others."""

    turns: list[Gathered] = field(default_factory=list)
    named: dict[str, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))
    ids: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Context:
    """What gathering goes by.

    `archived` are the records of archives by the ids of their closing entries, `restores` the open
    wishes to put something back.
    """

    form: Format
    survey: Survey
    rules: ArchiveRules
    archived: Mapping[str, Extraction]
    restores: tuple[Wish, ...]
    keep_after_restore: float
    now: float


def converse(lines: Lines, context: Context, knows: Callable[..., EntryState]) -> Conversation:
    """Walk the lines of a session and gather its turns."""
    talk, number = Conversation(), 0
    for line in lines:
        entry = base.parse(line.raw) if line.raw and line.terminated else None
        said = context.form.said(entry) if entry is not None else None
        if entry is None or line.raw is None or said is None:
            continue
        ident = context.form.identity(entry, line.raw, line.number)
        _note_names(talk, line.offset, ident, said)
        dead = context.survey.dead(line.offset)
        if dead == OFF_BRANCH:
            continue
        if said.role == "prompt":
            number += dead is None
            talk.turns.append(Gathered(number, [], dead=dead))
        if not talk.turns:
            continue
        turn = talk.turns[-1]
        turn.steps.append(_step(context, line, entry, ident, said, dead))
        if dead and dead != EDITED_AWAY:
            turn.dead = dead
        _hold(turn, context, knows(line, entry, ident))
        if said.role == "reply":
            turn.position = context.survey.position(line.offset)
            turn.archived = _is_archive(context, entry, ident, said)
    return talk


def _note_names(talk: Conversation, offset: int, ident: str | None, said: Said) -> None:
    if ident is not None:
        talk.ids[ident] += 1
    for name in (said.parent, *said.names):
        if name is not None:
            talk.named[name].append((offset, ident or "an entry"))


def _step(
    context: Context, line: Line, entry: Entry, ident: str | None, said: Said, dead: str | None
) -> Step:
    parts = [
        part for part in context.form.parts(entry, context.survey, line.offset)
        if not (part.dead or dead)
    ]  # fmt: skip
    going = sum(p.chars for p in parts if p.kind in _CUT_FLAT and p.locked is None)
    message = entry.get("message")
    role = message.get("role") if isinstance(message, dict) else None
    kind = str(role or entry.get("type"))[:_LONGEST_NAME]
    chars, sent = sum(part.chars for part in parts), DIALECTS[context.form.name].sent(entry)
    return Step(line.offset, ident, said, chars, going, kind, sent)


def _is_archive(context: Context, entry: Entry, ident: str | None, said: Said) -> bool:
    """Tell whether a reply is an archive of ours, or says that it is one."""
    record = context.archived.get(ident or "")
    if record is not None:
        return bool(value_at(entry, record.path) == json.loads(record.replacement or "null"))
    return said.text.startswith(f"{MARK}\narchive: ")


def _hold(turn: Gathered, context: Context, state: EntryState) -> None:
    """Take in why an entry holds its turn, if it does; the first reason stands."""
    if turn.held and turn.until is None:
        return
    ident = state.entry_id or "an entry"
    if state.extractable is False:
        turn.held, turn.until = f"pinned: {ident}", None
    elif type(state.extractable) is int and state.position < state.extractable:
        turn.held, turn.until = f"pinned: inside the window of {ident}", None
    elif any(wish.speaks_of(ident) for wish in context.restores):
        turn.held, turn.until = f"restored: {ident} is asked for", None
    elif state.restored_at is not None:
        until = state.restored_at + context.keep_after_restore
        if context.now < until and until > (turn.until or 0.0):
            ago = max(0, round(context.now - state.restored_at))
            turn.held, turn.until = f"restored {ago} s ago: {ident}", until


def turn_of(
    talk: Conversation, one: Gathered, rules: ArchiveRules, form: Format, *, after: int,
    depth: int, asked: bool, grows: int,
) -> Turn:  # fmt: skip
    """Give a turn as it is decided about."""
    closing, middle = one.closing, one.middle
    linked = form.archives == "linked"
    chars = sum(step.chars for step in middle)
    folded = one.archived and not linked
    return Turn(
        one.number, one.prompt.ident or "", closing.ident if closing else None, after,
        one.position, unformed(talk, one, form), opened(one), one.dead, one.held, one.until,
        referrer(talk, one) if linked else None,
        middle=0 if folded else len(middle),
        leaves=chars if linked else sum(step.going for step in middle),
        grows=grows, depth=depth, tokens=tokens_of(chars, rules.rate),
        calls=sum(len(step.said.asked) for step in middle), asked=asked,
        cut_short=closing is not None and closing.said.cut_short,
    )  # fmt: skip


def opened(one: Gathered) -> str | None:
    """Say why a turn is not closed, or None."""
    closing = one.closing
    if closing is None or not closing.said.closes or closing.said.text_path is None:
        return "its last reply does not close it"
    behind = one.steps[one.steps.index(closing) + 1 :]
    if any(step.said.role in ("result", "aside") for step in behind):
        return "something stands behind its last reply"
    asked = [call.call_id for step in one.steps for call in step.said.asked]
    answered = [result.call_id for step in one.steps for result in step.said.answered]
    if len(asked) != len(answered) or Counter(filter(None, asked)) != Counter(
        filter(None, answered)
    ):
        return "a call has no result, or more than one"
    if any(count > 1 for count in Counter(filter(None, asked)).values()):
        return "a call stands in it twice"
    return None


def unformed(talk: Conversation, one: Gathered, form: Format) -> str | None:
    """Say why a turn has no form in which it could fold, or None."""
    if form.archives is None:
        return "sessions of this kind have no form for it"
    closing = one.closing
    if closing is None:
        return None
    steps = [one.prompt, *one.middle, closing]
    if any(step.ident is None for step in (one.prompt, closing)):
        return "an entry of it has no usable id"
    if stub_in(closing.said.text):
        return "its last answer is extracted"
    if form.archives == "flat":
        return "its id stands twice" if talk.ids[closing.ident or ""] > 1 else None
    if any(talk.ids[step.ident or ""] != 1 for step in steps):
        return "an id stands twice, or not at all"
    if any(step.said.parent != before.ident for before, step in pairwise(steps)):
        return "its entries do not follow one another"
    fixed = next((step.kind for step in one.middle if step.said.role == "fixed"), None)
    return f"a {fixed} stands in it" if fixed else None


def referrer(talk: Conversation, one: Gathered) -> str | None:
    """Name an entry outside of a turn that names one of its middle, or None."""
    closing = one.closing
    if closing is None:
        return None
    inside = {one.prompt.offset, closing.offset, *(step.offset for step in one.middle)}
    for step in one.middle:
        for offset, ident in talk.named.get(step.ident or "", ()):
            if offset not in inside:
                return ident
    return None


def told(one: Gathered, note: str | None) -> Told:
    """Gather what a summary of a turn is made of."""
    answers = [answer for step in one.steps for answer in step.said.answered]
    failed = {answer.call_id for answer in answers if answer.failed and answer.call_id}
    calls = [call for step in one.steps for call in step.said.asked]
    closing = one.closing
    return Told(
        closing.said.text if closing else "", note,
        tuple(answer.finding[:FINDING] for answer in answers if answer.finding),
        tuple((call.tool, path) for call in calls for path in call.files),
        tuple((call.tool, call.call_id in failed) for call in calls),
    )  # fmt: skip


def digest_of(one: Gathered, note: str | None) -> bytes:
    """Give the digest of a closed turn: it never says anything else again."""
    closing = one.closing
    said = [*(step.ident or "" for step in one.steps), closing.said.text if closing else "", note]
    return blake2b(json.dumps(said).encode(), digest_size=16).digest()
