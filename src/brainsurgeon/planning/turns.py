"""One turn as it is gathered, entry by entry.

Sessions have turns of many thousand entries and many thousand turns: of an entry its place and two
numbers are kept, of a turn what a summary quotes, and that only where the turn may fold.
"""

from __future__ import annotations

import json
import re
from array import array
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, NamedTuple

from brainsurgeon.model.entries import placeholder_id
from brainsurgeon.model.turns import MARK, Told, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.model.turns import Answered, Asked, Said, Sent, Turn


# Characters of a failed result's first line that are told.
FINDING = 160
# Failed results that are told, the newest.
FINDINGS = 5
_FILES = 20
# Characters that are not worth leaving out of what is only kept for a while.
_SLACK = 200
_QUESTIONS = 5
_QUESTION = re.compile(r"[^\s.!?][^.!?\n]*\?")
_WRITES = re.compile(r"write|edit|patch", re.IGNORECASE)


def archive_text(entry_id: str, summary: str) -> str:
    """Return the text that stands in the place of a closing entry's."""
    return f"{MARK}\narchive: {placeholder_id(entry_id)}\n\n{summary}"


def summary_of(told: Told, style: str, chars: int) -> str:
    """Summarise a turn in a style; beyond `chars` characters what it quotes is shortened."""
    return paragraph(told, chars) if style == "paragraph" else structured(told, chars)


def structured(told: Told, chars: int) -> str:
    """Return one JSON object, its keys in a fixed order."""
    said = {
        "outcome": _outcome(told, chars),
        "key_findings": [line[:FINDING] for line in told.failures[-FINDINGS:]],
        "files_touched": _files(told),
        "tools_used": _tools(told.tools),
        "open_questions": list(_questions(told)),
    }
    return json.dumps(said, ensure_ascii=False)


def paragraph(told: Told, chars: int) -> str:
    """Return tools, files and failures in one line, and behind it what was said last."""
    tools = ", ".join(f"{name} {count}" for name, count in _tools(told.tools).items())
    failures = [line[:FINDING] for line in told.failures[-FINDINGS:]]
    parts = [
        f"{name}: {said}"
        for name, said in (
            ("Tools", tools), ("Files", ", ".join(_files(told))), ("Failed", "; ".join(failures)),
        )
        if said
    ]  # fmt: skip
    head = ". ".join(parts)
    outcome = _outcome(told, chars)
    return f"{head}.\n{outcome}" if head else outcome


def shortened(text: str, chars: int, missing: int = 0) -> str:
    """Return a text, or its two ends with the bytes left out between them.

    `missing` bytes of it are left out already, in its middle.
    """
    if len(text) <= chars and not missing:
        return text
    head, tail = text[: chars - chars // 2], text[len(text) - chars // 2 :]
    left = missing + _size(text[len(head) : len(text) - len(tail)])
    return f"{head}\n[... {left:,} bytes left out ...]\n{tail}"


def reduced(told: Told, chars: int) -> Told:
    """Keep of what a turn came to no more than summaries of up to `chars` characters quote."""
    text, files = told.closing, _ranked(told)
    long = len(text) > 2 * chars + _SLACK and not text.startswith(MARK)
    return replace(
        told, closing=text[:chars] + text[len(text) - chars :] if long else text,
        missing=_size(text[chars : len(text) - chars]) if long else 0,
        questions=_questions(told), files=tuple(files[:_FILES]),
        more=told.more + max(0, len(files) - _FILES),
    )  # fmt: skip


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _outcome(told: Told, chars: int) -> str:
    if told.note:
        return shortened(told.note, chars)
    return shortened(told.closing, chars, told.missing)


def _questions(told: Told) -> tuple[str, ...]:
    if told.questions is not None:
        return told.questions
    return tuple(one.strip() for one in _QUESTION.findall(told.closing)[:_QUESTIONS])


def writes(tool: str) -> bool:
    """Check whether what a tool touches is told first: it writes."""
    return _WRITES.search(tool) is not None


def _ranked(told: Told) -> list[tuple[str, str]]:
    """Return the files that were touched, each once, those that were written first."""
    first: dict[str, str] = {}
    for tool, path in sorted(told.files, key=lambda one: not writes(one[0])):
        first.setdefault(path, tool)
    return [(tool, path) for path, tool in first.items()]


def _files(told: Told) -> list[str]:
    """Return the files that were touched, those that were written first."""
    files = [path for _, path in _ranked(told)]
    more = len(files[_FILES:]) + told.more
    return [*files[:_FILES], f"+{more}"] if more else files


def _tools(calls: Iterable[tuple[str, bool]]) -> dict[str, int]:
    """Count the calls of each tool, and those that failed under its name with a `!`."""
    listed = list(calls)
    counts = Counter(name for name, _ in listed)
    failed = Counter(f"{name}!" for name, went_wrong in listed if went_wrong)
    return dict(counts + failed)


# Characters of an answer that are kept: enough to tell whether it was cut out.
_BEGIN = 300


class Weight(NamedTuple):
    """What some entries come to.

    `chars` and `going` count their values, and those that leave in the flat form; `sent` and
    `pictures` are what a request carries of them, `calls` the calls that they make.
    """

    chars: int = 0
    going: int = 0
    sent: int = 0
    pictures: int = 0
    calls: int = 0

    def plus(self, other: Weight) -> Weight:
        """Add what other entries come to."""
        return Weight(*(one + more for one, more in zip(self, other, strict=True)))

    def less(self, other: Weight) -> Weight:
        """Take away what some of the entries come to."""
        return Weight(*(one - gone for one, gone in zip(self, other, strict=True)))


NO_WEIGHT = Weight()


def weight_of(chars: int, going: int, sent: Sent, said: Said) -> Weight:
    """Return what one entry comes to."""
    return Weight(chars, going, sent.chars, sent.pictures, len(said.asked))


class Offsets:
    """Places of lines, packed: turns that fold may have a million of them."""

    def __init__(self, offsets: Iterable[int] = ()) -> None:
        self._sorted = array("q", offsets)
        if any(one > other for one, other in pairwise(self._sorted)):
            self._sorted = array("q", sorted(self._sorted))

    def __contains__(self, offset: object) -> bool:
        if not isinstance(offset, int) or not self._sorted:
            return False
        at = bisect_left(self._sorted, offset)
        return at < len(self._sorted) and self._sorted[at] == offset


@dataclass(frozen=True, slots=True)
class End:
    """The first or the last entry of a turn: where it stands, what it is called, what it says."""

    offset: int
    ident: str | None
    said: Said


@dataclass(slots=True)
class Course:
    """What is remembered of a turn while it goes on: its entries and calls, and what these came to.

    `balance` is 0 where each call that has an id was answered once, whatever the order.
    """

    asked: int = 0
    answered: int = 0
    failed: int = 0
    balance: int = 0
    twice: bool = False
    tools: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    written: dict[str, str] = field(default_factory=dict)
    touched: dict[str, str] = field(default_factory=dict)
    digest: blake2b = field(default_factory=lambda: blake2b(digest_size=16))
    _wrong: Counter[str] = field(default_factory=Counter)
    _ids: set[int] = field(default_factory=set)
    _open: dict[str, str] = field(default_factory=dict)
    _early: set[str] = field(default_factory=set)

    def take(self, ident: str | None, said: Said) -> None:
        self.digest.update(f"{ident}\n".encode("utf-8", "surrogatepass"))
        for call in said.asked:
            self._ask(call)
        for result in said.answered:
            self._answer(result)

    def _ask(self, call: Asked) -> None:
        self.asked += 1
        self.tools[call.tool] += 1
        for path in call.files:
            (self.written if writes(call.tool) else self.touched).setdefault(path, call.tool)
        if not call.call_id:
            return
        known = hash(call.call_id)
        self.twice |= known in self._ids
        self._ids.add(known)
        self.balance += known
        if call.call_id in self._early:
            self._fail(call.tool)
        else:
            self._open[call.call_id] = call.tool

    def _answer(self, result: Answered) -> None:
        self.answered += 1
        if result.finding:
            self.failures = [*self.failures, result.finding[:FINDING]][-FINDINGS:]
        if not result.call_id:
            return
        self.balance -= hash(result.call_id)
        tool = self._open.pop(result.call_id, None)
        if result.failed and tool is not None:
            self._fail(tool)
        elif result.failed:
            self._early.add(result.call_id)

    def _fail(self, tool: str) -> None:
        self.failed += 1
        self._wrong[tool] += 1

    def told(self, closing: str) -> Told:
        """Return what a summary is made of, beside what the turn ends with."""
        files = [(tool, path) for path, tool in self.written.items()]
        files += [(tool, path) for path, tool in self.touched.items() if path not in self.written]
        tools = [
            one
            for name, count in self.tools.items()
            for one in (
                *repeat((name, False), count - self._wrong[name]),
                *repeat((name, True), self._wrong[name]),
            )
        ]
        return Told(closing, None, tuple(self.failures), tuple(files), tuple(tools))


@dataclass(slots=True)
class Gathered:
    """One turn as it stands, its entries from the prompt on.

    `at` is the place of its last reply among them, whether or not that closes it. `offsets` and
    `ids` are those of all of them, ids by their hashes. `broken` is the place of the first that
    does not continue the one before it, `nameless` of the first without an id, `fixed` of the first
    that has to stay on the branch, with its kind. `behind` says that something of the conversation
    stands behind the last reply.

    Once the next turn begins, `told` is what a summary is made of, None where the turn cannot fold;
    `grows` are the characters by which its text would grow.
    """

    number: int
    dead: str | None = None
    held: str | None = None
    until: float | None = None
    position: int = 0
    archived: bool = False
    offsets: array[int] = field(default_factory=lambda: array("q"))
    ids: array[int] = field(default_factory=lambda: array("q"))
    ends: list[End] = field(default_factory=list)
    at: int | None = None
    broken: int | None = None
    nameless: int | None = None
    fixed: tuple[int, str] | None = None
    behind: bool = False
    last: str | None = None
    named: list[tuple[int, int, str]] = field(default_factory=list)
    all_of_it: Weight = NO_WEIGHT
    to_reply: Weight = NO_WEIGHT
    asks: Weight = NO_WEIGHT
    course: Course = field(default_factory=Course)
    opened: str | None = None
    called: int = 0
    failed: int = 0
    closing_chars: int = 0
    digest: bytes = b""
    told: Told | None = None
    grows: int = 0

    @property
    def prompt(self) -> End:
        """The entry that it begins with."""
        return self.ends[0]

    @property
    def closing(self) -> End | None:
        """Its last reply, whether or not that closes it."""
        return self.ends[-1] if self.at is not None else None

    @property
    def middle(self) -> int:
        """How many entries stand between its prompt and its last reply."""
        return (len(self.offsets) if self.at is None else self.at) - 1

    @property
    def weight(self) -> Weight:
        """What those come to."""
        return (self.all_of_it if self.at is None else self.to_reply).less(self.asks)

    def add(self, end: End, kind: str, weight: Weight) -> None:
        """Take in its next entry."""
        place, said = len(self.offsets), end.said
        if place and said.parent != self.last and self.broken is None:
            self.broken = place
        if end.ident is None and self.nameless is None:
            self.nameless = place
        if said.role == "fixed" and self.fixed is None:
            self.fixed = place, kind
        if place == 0:
            self.ends, self.asks = [end], weight
        elif said.role == "reply":
            self.ends[1:], self.at, self.to_reply = [end], place, self.all_of_it
        self.behind = said.role in ("result", "aside") or (self.behind and said.role != "reply")
        self.offsets.append(end.offset)
        self.ids.append(hash(end.ident))
        self.last, self.all_of_it = end.ident, self.all_of_it.plus(weight)
        self.course.take(end.ident, said)

    def follows(self, last: int) -> bool:
        """Check whether each entry up to a place continues the one before it."""
        return self.broken is None or self.broken > last

    def over(self) -> None:
        """Keep of its course what the turn came to: no entry comes any more."""
        course, text = self.course, self.closing.said.text if self.closing else ""
        course.digest.update(text.encode("utf-8", "surrogatepass"))
        self.opened, self.digest = self._opened(), course.digest.digest()
        self.called, self.failed, self.closing_chars = course.asked, course.failed, len(text)
        self.told, self.course = course.told(text), _OVER

    def shorten(self) -> None:
        """Keep what its ends say only as far as it is short."""
        self.ends = [
            replace(one, said=replace(one.said, text=one.said.text[:_BEGIN], asked=(), answered=()))
            for one in self.ends
        ]

    def forget(self) -> None:
        """Keep nothing to quote: the turn folds neither by itself nor with others."""
        self.told = None
        self.shorten()

    def _opened(self) -> str | None:
        closing, course = self.closing, self.course
        if closing is None or not closing.said.closes or closing.said.text_path is None:
            return "its last reply does not close it"
        if self.behind:
            return "something stands behind its last reply"
        if course.asked != course.answered or course.balance:
            return "a call has no result, or more than one"
        return "a call stands in it twice" if course.twice else None

    def digest_of(self, note: str | None) -> bytes:
        """Return the digest of the closed turn with a note: it never says anything else again."""
        said = (note or "").encode("utf-8", "surrogatepass")
        return blake2b(self.digest + said, digest_size=16).digest()


# The course of every turn that is over.
_OVER = Course()


# Tokens of a character, where a session's own usage tells nothing better.
RATE = 0.33
# The share of what leaves by which the text may grow.
_WORTH = 0.5


@dataclass(frozen=True, slots=True)
class ArchiveRules:
    """What decides about turns.

    `keep_recent` is in messages, `keep_turns` in live turns. More than `token_threshold` tokens in
    its middle, or at least `tool_call_threshold` calls, fold a turn. `summary_chars` bounds what a
    summary quotes, `rate` is the tokens of a character.
    """

    enabled: bool = False
    token_threshold: int = 8000
    tool_call_threshold: int = 5
    on_failed: bool = True
    keep_turns: int = 2
    depth_cap: int = 3
    fold_after: int = 20
    style: str = "structured"
    summary_chars: int = 2000
    keep_recent: int = 3
    rate: float = RATE


def without_thresholds(rules: ArchiveRules) -> ArchiveRules:
    """Return rules by which every turn folds that may, whatever its size."""
    return replace(rules, enabled=True, token_threshold=-1)


def tokens_of(chars: int, rate: float = RATE) -> int:
    """Return the tokens that so many characters come to."""
    return round(chars * rate)


def chars_of(tokens: int, rate: float = RATE) -> int:
    """Return the characters of which so many tokens were counted."""
    return round(tokens / rate)


def decide(turn: Turn, rules: ArchiveRules) -> Verdict:
    """Decide about one turn: why it stays, or why it folds."""
    kept = _kept(turn, rules)
    if kept is not None:
        return Verdict(turn, folds=False, reason=kept, until=turn.until if turn.held else None)
    why = _folds(turn, rules)
    return Verdict(turn, folds=why is not None, reason=why or "small")


def _kept(turn: Turn, rules: ArchiveRules) -> str | None:
    """Return why a turn stays whatever its size, or None."""
    if not rules.enabled and not turn.asked:
        return "off"
    if turn.unformed:
        return f"format: {turn.unformed}"
    if turn.after < rules.keep_turns or turn.position < rules.keep_recent:
        return "recent"
    if turn.open or turn.closing_id is None:
        return f"open turn: {turn.open or 'it has no last answer'}"
    if turn.dead:
        return f"never sent: {turn.dead}"
    if turn.held:
        return turn.held
    if turn.referred:
        return f"referred to by {turn.referred}"
    if not turn.middle or turn.grows > turn.leaves * _WORTH:
        return "no gain"
    if turn.depth >= rules.depth_cap:
        return f"depth {turn.depth}"
    return None


def _folds(turn: Turn, rules: ArchiveRules) -> str | None:
    if turn.asked:
        return "asked for"
    return worth_folding(rules, turn.tokens, turn.calls, cut_short=turn.cut_short)


def worth_folding(rules: ArchiveRules, tokens: int, calls: int, *, cut_short: bool) -> str | None:
    """Return why a turn is worth folding, asked for or not, or None."""
    if rules.on_failed and cut_short:
        return "it was cut short"
    if tokens > rules.token_threshold:
        return f"{tokens:,} tokens"
    if calls >= rules.tool_call_threshold:
        return f"{calls:,} calls"
    return None
