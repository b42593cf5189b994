"""One turn as it is gathered, entry by entry.

Sessions have turns of many thousand entries and many thousand turns: of an entry its place and two
numbers are kept, of a turn what a summary quotes, and that only where the turn may fold.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, NamedTuple

from brainsurgeon.decide.summary import FINDING, FINDINGS, writes
from brainsurgeon.model.turns import Told

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.model.calls import Sent
    from brainsurgeon.model.turns import Answered, Asked, Said


_BEGIN = 300
"""Characters of an answer that are kept: enough to tell whether it was cut out."""


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
    """Give what one entry comes to."""
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
        """Take in an entry."""
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
        """Give what a summary is made of, beside what the turn ends with."""
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
        """Tell whether each entry up to a place continues the one before it."""
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
        """Say why the turn is not closed, or None."""
        closing, course = self.closing, self.course
        if closing is None or not closing.said.closes or closing.said.text_path is None:
            return "its last reply does not close it"
        if self.behind:
            return "something stands behind its last reply"
        if course.asked != course.answered or course.balance:
            return "a call has no result, or more than one"
        return "a call stands in it twice" if course.twice else None

    def digest_of(self, note: str | None) -> bytes:
        """Give the digest of the closed turn with a note: it never says anything else again."""
        said = (note or "").encode("utf-8", "surrogatepass")
        return blake2b(self.digest + said, digest_size=16).digest()


_OVER = Course()
"""The course of every turn that is over."""
