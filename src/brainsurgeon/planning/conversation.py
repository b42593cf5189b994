"""Gather the turns of a session: what each holds, and all that decides about it.

One walk over the lines, made only where turns may fold. What is kept of an entry is little: a
session may have a million of them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from brainsurgeon.formats import base
from brainsurgeon.formats.weight import DIALECTS
from brainsurgeon.model.entries import OLD, placeholder_in, value_at
from brainsurgeon.model.sessions import EDITED_AWAY, OFF_BRANCH
from brainsurgeon.model.turns import MARK, Turn
from brainsurgeon.planning.drafts import Ids, Twice
from brainsurgeon.planning.turns import (
    End,
    Gathered,
    archive_text,
    reduced,
    summary_of,
    tokens_of,
    weight_of,
    worth_folding,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from brainsurgeon.formats.base import Format
    from brainsurgeon.model.entries import Entry, Line, Lines
    from brainsurgeon.model.records import Extraction, Request
    from brainsurgeon.model.sessions import Survey
    from brainsurgeon.model.turns import Said
    from brainsurgeon.planning.rules import EntryState
    from brainsurgeon.planning.turns import ArchiveRules, Weight


_LONGEST_NAME = 40
# Kinds that leave the middle of a turn that stays where it stands.
_CUT_FLAT = ("thinking", "tool_result")


@dataclass(slots=True)
class Conversation:
    """All turns of a session, oldest first, and which ids stand in it twice.

    `names` says which entries name which others, by the hashes of their ids, but for those that
    continue the one before them: in their turn, or beside the active branch.
    """

    turns: list[Gathered] = field(default_factory=list)
    names: dict[int, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))
    twice: Twice = field(default_factory=lambda: Twice(frozenset()))

    def unsure(self, one: Gathered, last: int) -> bool:
        """Check whether an entry of a turn up to a place has no id, or one that stands twice."""
        if one.nameless is not None and one.nameless <= last:
            return True
        hashes = self.twice.hashes
        return bool(hashes) and not hashes.isdisjoint(one.ids[: last + 1])


@dataclass(frozen=True, slots=True)
class Context:
    """What gathering goes by.

    `archived` are the records of archives by the ids of their closing entries, `restores` the open
    requests to put something back, `asked` what is asked of turns by the ids of their prompts.
    `together` says that any turn may fold with others.
    """

    form: Format
    survey: Survey
    rules: ArchiveRules
    archived: Mapping[str, Extraction]
    restores: tuple[Request, ...]
    keep_after_restore: float
    now: float
    asked: Mapping[str, str | None] = field(default_factory=dict)
    together: bool = False


def converse(lines: Lines, context: Context, knows: Callable[..., EntryState]) -> Conversation:
    """Walk the lines of a session and gather its turns."""
    talk, number, ids, aside = Conversation(), 0, Ids(), None
    for line, entry, ident, said in _entries(lines, context.form):
        if ident is not None:
            ids.meet(ident)
        dead = context.survey.dead(line.offset)
        before = talk.turns[-1] if talk.turns else None
        last = before.last if before and said.role != "prompt" else None
        if context.form.archives == "linked":
            _note_names(talk, line.offset, ident, said, aside if dead == OFF_BRANCH else last)
        if dead == OFF_BRANCH:
            aside = ident
            continue
        if said.role == "prompt":
            _end(before, context)
            number += dead is None
            talk.turns.append(Gathered(number, dead=dead))
        if not talk.turns:
            continue
        turn = talk.turns[-1]
        turn.add(End(line.offset, ident, said), *_weighed(context, line, entry, said, dead))
        if dead and dead != EDITED_AWAY:
            turn.dead = dead
        _hold(turn, context, knows(line, entry, ident))
        if said.role == "reply":
            turn.position = context.survey.position(line.offset)
            turn.archived = _is_archive(context, entry, ident, said)
    _end(talk.turns[-1] if talk.turns else None, context)
    talk.twice = ids.twice()
    for one in talk.turns if talk.names else ():
        one.named = list(_named(talk, one))
    return talk


def _entries(lines: Lines, form: Format) -> Iterator[tuple[Line, Entry, str | None, Said]]:
    """Yield the entries that are part of a turn, or may name some that are."""
    for line in lines:
        entry = base.parse(line.raw) if line.raw and line.terminated else None
        said = form.said(entry) if entry is not None else None
        if entry is not None and line.raw is not None and said is not None:
            yield line, entry, form.identity(entry, line.raw, line.number), said


def _note_names(
    talk: Conversation, offset: int, ident: str | None, said: Said, before: str | None
) -> None:
    """Note which entries an entry names, but for the one `before` it, which it may continue."""
    named = said.names if before is not None and said.parent == before else (
        said.parent, *said.names,
    )  # fmt: skip
    for name in named:
        if name is not None:
            talk.names[hash(name)].append((offset, ident or "an entry"))


def _named(talk: Conversation, one: Gathered) -> Iterator[tuple[int, int, str]]:
    """Yield the places in a turn of entries that are named, with who names them."""
    for place, known in enumerate(one.ids):
        for offset, ident in talk.names.get(known, ()):
            yield place, offset, ident


def _weighed(
    context: Context, line: Line, entry: Entry, said: Said, dead: str | None
) -> tuple[str, Weight]:
    parts = [] if dead else [
        part for part in context.form.parts(entry, context.survey, line.offset) if not part.dead
    ]  # fmt: skip
    going = sum(p.chars for p in parts if p.kind in _CUT_FLAT and p.locked is None)
    message = entry.get("message")
    role = message.get("role") if isinstance(message, dict) else None
    kind = str(role or entry.get("type"))[:_LONGEST_NAME]
    sent = DIALECTS[context.form.name].sent(entry)
    return kind, weight_of(sum(part.chars for part in parts), going, sent, said)


def _end(turn: Gathered | None, context: Context) -> None:
    """End a turn, and keep of its texts only what may be quoted."""
    if turn is None:
        return
    turn.over()
    told, rules = turn.told, context.rules
    if told is None:
        return
    note, closing = context.asked.get(turn.prompt.ident or ""), turn.closing
    if closing is not None and turn.middle:
        text = archive_text(closing.ident or "", summary_of(
            replace(told, note=note), rules.style, rules.summary_chars
        ))  # fmt: skip
        turn.grows = len(text) - turn.closing_chars
    asked = (turn.prompt.ident or "") in context.asked
    cut_short = closing is not None and closing.said.cut_short
    tokens = tokens_of(turn.weight.chars, rules.rate)
    if turn.archived or asked or context.together or (
        turn.middle and worth_folding(rules, tokens, turn.weight.calls, cut_short=cut_short)
    ):  # fmt: skip
        turn.told = reduced(told, rules.summary_chars)
        turn.shorten()
    else:
        turn.forget()


def _is_archive(context: Context, entry: Entry, ident: str | None, said: Said) -> bool:
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
    elif any(request.speaks_of(ident) for request in context.restores):
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
    """Return a turn as it is decided about."""
    closing, weight = one.closing, one.weight
    linked = form.archives == "linked"
    folded = one.archived and not linked
    return Turn(
        one.number, one.prompt.ident or "", closing.ident if closing else None, after,
        OLD if one.dead else one.position, unformed(talk, one, form), one.opened, one.dead,
        one.held, one.until,
        referrer(one) if linked else None,
        middle=0 if folded else one.middle,
        leaves=weight.chars if linked else weight.going,
        grows=grows, depth=depth, tokens=tokens_of(weight.chars, rules.rate),
        calls=weight.calls, asked=asked,
        cut_short=closing is not None and closing.said.cut_short,
    )  # fmt: skip


def unformed(talk: Conversation, one: Gathered, form: Format) -> str | None:
    """Return why a turn has no form in which it could fold, or None."""
    if form.archives is None:
        return "sessions of this kind have no form for it"
    closing, at = one.closing, one.at
    if closing is None or at is None:
        return None
    if one.prompt.ident is None or closing.ident is None:
        return "an entry of it has no usable id"
    if placeholder_in(closing.said.text):
        return "its last answer is extracted"
    if form.archives == "flat":
        ends = (one.prompt.ident, closing.ident)
        return "its id stands twice" if any(name in talk.twice for name in ends) else None
    if talk.unsure(one, at):
        return "an id stands twice, or not at all"
    if not one.follows(at):
        return "its entries do not follow one another"
    return f"a {one.fixed[1]} stands in it" if one.fixed and one.fixed[0] < at else None


def referrer(one: Gathered) -> str | None:
    """Name an entry outside of a turn that names one of its middle, or None."""
    at = one.at
    if at is None:
        return None
    inside = frozenset(one.offsets[: at + 1]) if one.named else frozenset[int]()
    named = (ident for place, offset, ident in one.named if 0 < place < at and offset not in inside)
    return next(named, None)
