"""Estimate what the next request of a session carries, by what its own calls are known to take.

A session records for each call of its model how many tokens the prompt was. What the prompt said
is in the entries before the answer, but for what every request carries (system prompt, tools):
a line through the newest calls gives both, tokens for each character and tokens from the start.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from statistics import median
from typing import TYPE_CHECKING

from brainsurgeon.formats import base
from brainsurgeon.formats.weight import DIALECTS, codex_answers, codex_window
from brainsurgeon.model.turns import NOTHING, PICTURE, Calibration, Sent
from brainsurgeon.planning.matching import Matcher
from brainsurgeon.planning.rules import Rule
from brainsurgeon.planning.turns import chars_of, without_thresholds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from brainsurgeon.formats.base import Format
    from brainsurgeon.model.entries import Entry, Line, Lines
    from brainsurgeon.model.records import Records
    from brainsurgeon.model.sessions import Survey
    from brainsurgeon.model.turns import ArchiveRecord, ModelCall, Tier
    from brainsurgeon.planning.archive import Folding
    from brainsurgeon.planning.rules import Rules


# Calls that are looked at: what is older was made with other prompts and tools.
NEWEST = 50
FEWEST = 8
STRAIGHT = 0.9
# Tokens for a character; a line outside of these says something else than it is asked for.
SLOWEST, FASTEST = 0.15, 0.8
# What is assumed where nothing is known: a quarter of a token was too little by a third.
RATE, FIXED = 0.33, 0.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What one call of a model carried, as far as the session says, and the tokens it took."""

    chars: int
    pictures: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Measure:
    """What the next request of a session carries, and what the newest calls took.

    `messages` are those that are live. `complaint` is what the very last call was refused for, if
    it was, `refused` what it carried, and `limit` the tokens that a provider named then. `window`
    is what the session itself says that its model takes.
    """

    chars: int = 0
    pictures: int = 0
    messages: int = 0
    calls: tuple[Sample, ...] = ()
    model: str | None = None
    complaint: str | None = None
    refused: Sent = NOTHING
    limit: int | None = None
    window: int | None = None


def measure(lines: Lines, form: Format, survey: Survey, records: Records) -> Measure:
    """Walk over a session, and add up what is live in it.

    A call that was made before a value was cut out carried the value: its length is recorded.
    """
    walk, matcher = _Walk(form.name), Matcher(form, survey, records)
    cut, archives = bool(records.extractions), {one.id: one for one in records.archives}
    for line in lines:
        if line.raw is None or survey.dead(line.offset) is not None:
            continue
        entry = base.parse(line.raw)
        if entry is None:
            continue
        ways = _taken(line, entry, form, survey, matcher, archives) if cut else ()
        walk.look(entry, ways, counts=form.counts(entry))
    return walk.measure()


def measure_codex(lines: Lines) -> Measure:
    """Walk over a session of Codex, which is only read: what was compacted is not sent any more."""
    walk, window = _Walk("codex"), None
    for line in lines:
        entry = base.parse(line.raw) if line.raw else None
        if entry is not None:
            if entry.get("type") == "compacted":
                walk.begin_anew()
            walk.look(entry, (), counts=False)
            window = codex_window(entry) or window
    return replace(walk.measure(), window=window)


def _taken(
    line: Line, entry: Entry, form: Format, survey: Survey, matcher: Matcher,
    archives: Mapping[int, ArchiveRecord],
) -> Iterator[tuple[float, Sent]]:  # fmt: skip
    """Yield what was cut out of an entry, with when, as far as it was ever sent.

    Where a turn was folded into it in the linked form, that is the turn.
    """
    if line.raw is None:
        return
    standing = matcher.standing(line.raw, entry, form.identity(entry, line.raw, line.number))
    if not standing:
        return
    unsent = {part.path for part in form.parts(entry, survey, line.offset) if part.dead}
    for one in standing:
        archive = archives.get(one.archive_id or 0)
        if archive and form.archives == "linked":
            less = archive.tokens_before - archive.tokens_after
            yield one.extracted_at, NOTHING if one.links else Sent(chars_of(less))
        elif one.path not in unsent:
            picture = one.block and one.kind != "thinking"
            chars = -len(one.placeholder) if picture else one.chars - len(one.placeholder)
            yield one.extracted_at, Sent(chars, int(picture))


class _Walk:
    """One walk over the live entries of a session, in their order."""

    def __init__(self, dialect: str) -> None:
        self._dialect = DIALECTS[dialect]
        self._calls: deque[Sample] = deque(maxlen=NEWEST)
        self._met: set[str] = set()
        self._messages = 0
        self._model: str | None = None
        self._last: tuple[ModelCall, Sent] | None = None
        self._taken: dict[float, list[int]] = defaultdict(lambda: [0, 0])
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget what stood before: it is not sent any more."""
        self._chars = self._pictures = 0
        self._asked, self._summary = NOTHING, NOTHING
        self._calls.clear()

    def look(self, entry: Entry, taken: Iterable[tuple[float, Sent]], *, counts: bool) -> None:
        """Take in one live entry."""
        call = self._dialect.call(entry)
        if call is not None:
            self._call(call)
        sent = self._dialect.sent(entry)
        if self._dialect.renews(entry):
            self._calls.clear()
            self._chars -= self._summary.chars  # of several only the last is sent
            self._summary = sent
        self._chars += sent.chars
        self._pictures += sent.pictures
        self._messages += counts
        for at, out in taken:
            self._taken[at][0] += out.chars
            self._taken[at][1] += out.pictures
        if not codex_answers(entry):
            self._asked = Sent(self._chars, self._pictures)

    def _call(self, call: ModelCall) -> None:
        self._model = call.model or self._model
        if not call.begins and not call.tokens:
            return
        had = self._carried(call)
        self._last = call, had
        if not call.tokens or (call.ident is not None and call.ident in self._met):
            return
        if call.ident is not None:
            self._met.add(call.ident)
        self._calls.append(Sample(had.chars, had.pictures, call.tokens))

    def _carried(self, call: ModelCall) -> Sent:
        """Return what a call carried, with what was cut out only later."""
        had = Sent(self._chars, self._pictures) if call.begins else self._asked
        later = [out for at, out in self._taken.items() if call.at is not None and at > call.at]
        return Sent(
            had.chars + sum(out[0] for out in later), had.pictures + sum(out[1] for out in later)
        )

    def measure(self) -> Measure:
        found = Measure(
            self._chars, self._pictures, self._messages, tuple(self._calls), self._model
        )
        if self._last is None:
            return found
        call, carried = self._last
        return replace(found, complaint=call.complaint, refused=carried, limit=call.limit)


def fit(samples: Sequence[Sample]) -> Calibration | None:
    """Lay a line through calls, by least squares; None where they are too few or on none."""
    if len(samples) < FEWEST:
        return None
    across = [one.chars for one in samples]
    up = [one.tokens - PICTURE * one.pictures for one in samples]
    middle, height = sum(across) / len(across), sum(up) / len(up)
    spread = sum((x - middle) ** 2 for x in across)
    rise = sum((y - height) ** 2 for y in up)
    both = sum((x - middle) * (y - height) for x, y in zip(across, up, strict=True))
    if not spread or not rise or both * both / (spread * rise) < STRAIGHT:
        return None
    rate = both / spread
    if not SLOWEST <= rate <= FASTEST:
        return None
    return _said(Calibration(rate, height - rate * middle, len(samples), "session"), samples)


def calibrate(samples: Sequence[Sample], others: Sequence[Calibration]) -> Calibration:
    """Return what the characters of a session take: by its calls, its agent's, or a common guess.

    `others` are the lines through the calls of the agent's other sessions.
    """
    own = fit(samples)
    if own:
        return own
    if others:
        rate, fixed = median(one.rate for one in others), median(one.fixed for one in others)
        return _said(Calibration(rate, fixed, len(samples), "agent"), samples)
    return _said(Calibration(RATE, FIXED, len(samples), "default"), samples)


def _said(line: Calibration, samples: Sequence[Sample]) -> Calibration:
    """Say by how much of what calls took a line is wrong, on the average."""
    told = [line.tokens(one.chars, one.pictures) / one.tokens for one in samples if one.tokens]
    error = math.fsum(abs(share - 1) for share in told) / len(told) if told else None
    return Calibration(line.rate, line.fixed, line.calls, line.method, error)


# Tokens that a model is taken to take where nobody says.
WINDOW = 200_000
# How far below the threshold (in shares of the window) relief leads, so that it lasts.
BELOW = 0.15
THRESHOLDS: dict[Tier, float] = {"frontier": 0.85, "mid": 0.65, "small": 0.35}
# Parts of the ids of models; the first that an id holds decides.
_NAMES: tuple[tuple[str, Tier], ...] = (
    *((name, "small") for name in (
        "haiku", "-mini", "-nano", "flash", "-lite", "small", "gemma", "phi-", "-3b", "-7b", "-8b",
    )),
    *((name, "frontier") for name in ("opus", "mythos", "gpt-5", "grok-4", "gemini-3", "-pro")),
    *((name, "mid") for name in (
        "sonnet", "gpt-4", "gemini", "deepseek", "kimi", "glm", "qwen", "grok", "llama", "mistral",
    )),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Budget:
    """What a configuration says of budgets, for one session.

    `threshold` holds where nothing else is said, `of_profile` is that of the session's profile,
    and `by_tier` are those that the user set for a tier. `windows` are globs of models with the
    tokens that they take, `tiers` parts of their ids with their tiers, before those known here.
    """

    enabled: bool = False
    max_step: int = 3
    max_messages: int = 0
    threshold: float = 0.75
    of_profile: float | None = None
    by_tier: tuple[tuple[Tier, float], ...] = ()
    windows: tuple[tuple[str, int], ...] = ()
    tiers: tuple[tuple[str, Tier], ...] = ()

    def tier(self, model: str | None) -> Tier | None:
        """Return how capable a model is, by its id; None where that is not known."""
        name = (model or "").lower()
        known = (*((part.lower(), tier) for part, tier in self.tiers), *_NAMES)
        return next((tier for part, tier in known if name and part in name), None)

    def threshold_of(self, tier: Tier | None) -> float:
        """Return the share of the window from which on a session is too full.

        What the user set for the tier comes first, then the profile's, then what is usual for the
        tier, then the common one.
        """
        mine = dict(self.by_tier).get(tier) if tier else None
        if mine is not None:
            return mine
        if self.of_profile is not None:
            return self.of_profile
        return THRESHOLDS[tier] if tier else self.threshold

    def window(self, model: str | None, recorded: int | None) -> int:
        """Return the tokens that a model takes: as its agent noted, as configured, or as usual."""
        name = (model or "").lower()
        said = (size for glob, size in self.windows if fnmatchcase(name, glob.lower()))
        return recorded or next(said, WINDOW)


# Characters that a value must have at most to be worth a placeholder, from the first step on.
SHORTEST = 200
# Live turns that stay as they are where the others fold.
KEPT_TURNS = 2
# The share of the window from which on a result is too large wherever it stands.
GIANT = 0.1


@dataclass(frozen=True, slots=True)
class Room:
    """What the steps need to know: the window, tokens for a character, and live messages."""

    window: int
    rate: float
    messages: int


def _shorter(rules: Rules, _room: Room) -> Rules:
    return replace(
        _each(rules, lambda rule: replace(
            rule, min_value_length=min(rule.min_value_length, SHORTEST)
        )),
        min_value_length=min(rules.min_value_length, SHORTEST),
    )  # fmt: skip


def _no_giants(rules: Rules, room: Room) -> Rules:
    return replace(rules, giant=max(1, int(GIANT * room.window / room.rate)))


def _fewer_recent(rules: Rules, _room: Room) -> Rules:
    return replace(
        _each(rules, lambda rule: replace(rule, keep_recent=min(rule.keep_recent, 1))),
        keep_recent=min(rules.keep_recent, 1),
    )  # fmt: skip


def _calls_too(rules: Rules, _room: Room) -> Rules:
    if any(rule.kind == "tool_call" and not rule.tools for rule in rules.rules):
        return rules
    calls = Rule("tool_call", (), rules.min_value_length, rules.keep_recent)
    return replace(rules, rules=(*rules.rules, calls))


def _newer_half(rules: Rules, room: Room) -> Rules:
    half = _half(room)
    return replace(rules, max_messages=min(rules.max_messages or half, half))


def _half(room: Room) -> int:
    return max(1, (room.messages + 1) // 2)


def _fold_turns(folding: Folding, _room: Room) -> Folding:
    rules = without_thresholds(folding.rules)
    return replace(folding, rules=replace(rules, keep_turns=min(rules.keep_turns, KEPT_TURNS)))


def _fold_older_half(folding: Folding, room: Room) -> Folding:
    half = _half(room)
    return replace(folding, beyond=min(folding.beyond or half, half))


def _each(rules: Rules, change: Callable[[Rule], Rule]) -> Rules:
    return replace(rules, rules=tuple(change(rule) for rule in rules.rules))


# What each step changes in the rules.
LADDER: dict[int, Callable[[Rules, Room], Rules]] = {
    1: _shorter, 2: _no_giants, 4: _fewer_recent, 5: _calls_too, 6: _newer_half,
}  # fmt: skip
# What a step asks of the turns, where they can fold in the linked form.
FOLDS: dict[int, Callable[[Folding, Room], Folding]] = {3: _fold_turns, 6: _fold_older_half}
# The steps that there are in a database, where an index holds what was said.
IN_ROWS = (1, 2, 4, 5)


def steps_to(highest: int, *, in_rows: bool = False, linked: bool = False) -> tuple[int, ...]:
    """Return the steps that there are, up to one, from the lowest.

    `linked` is a form of archives.
    """
    there = IN_ROWS if in_rows else {*LADDER, *FOLDS} if linked else LADDER
    return tuple(step for step in sorted(there) if step <= highest)


def rules_at(taken: Iterable[int], rules: Rules, room: Room) -> Rules:
    """Return the rules that hold once these steps are taken."""
    for step in taken:
        if step in LADDER:
            rules = LADDER[step](rules, room)
    return rules


def folding_at(taken: Iterable[int], folding: Folding, room: Room) -> Folding:
    """Return what is asked of the turns once these steps are taken in the linked form."""
    for step in taken:
        if step in FOLDS:
            folding = FOLDS[step](folding, room)
    return folding
