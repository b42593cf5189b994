"""Rows of archives that fold into one: which turns, and what is left of each."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING

from brainsurgeon.decide.gathered import NO_WEIGHT
from brainsurgeon.decide.summary import shortened
from brainsurgeon.model.turns import MARK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from brainsurgeon.decide.conversation import Conversation
    from brainsurgeon.decide.gathered import Gathered, Weight
    from brainsurgeon.decide.turns import ArchiveRules
    from brainsurgeon.formats.base import Format
    from brainsurgeon.model.turns import Told

Group = list["Gathered"]


def group_rows(
    talk: Conversation, live: Sequence[Gathered], depths: Sequence[int], rules: ArchiveRules,
    form: Format, together: int,
) -> list[Group]:  # fmt: skip
    """Give the groups of turns that become one archive each.

    `depths` are those of the live turns, 0 where one stays as it is. Of a row that is longer than
    `fold_after` the oldest half becomes one, until none is; so do the oldest `together` turns, or
    as many of them as may.
    """
    groups: list[tuple[Group, int]] = []
    oldest = (live[:count] for count in range(_reach(live, together), 1, -1))
    done = next((one for one in oldest if _may(talk, one, rules, form)), [])
    if done:
        groups.append((list(done), max(depths[: len(done)]) + 1))
        live, depths = live[len(done) :], depths[len(done) :]
    for row in _rows(talk, live, depths, rules, form):
        groups += _folded(row, rules)
    return [group for group, _ in groups if len(group) > 1]


def _reach(live: Sequence[Gathered], together: int) -> int:
    """Tell how many of the oldest turns may fold together at most: up to one that has to stay."""
    for count, one in enumerate(live[:together]):
        if one.held or one.dead:
            return count
        if one.broken or one.fixed:
            return count + 1
    return together


def _rows(
    talk: Conversation, live: Sequence[Gathered], depths: Sequence[int], rules: ArchiveRules,
    form: Format,
) -> list[list[tuple[Group, int]]]:  # fmt: skip
    """Give the archives that stand in a row, and could all fold once more."""
    rows: list[list[tuple[Group, int]]] = [[]]
    for one, depth in zip(live, depths, strict=True):
        before = rows[-1][-1][0] if rows[-1] else []
        if not 0 < depth < rules.depth_cap or one.held:
            rows.append([])
        elif before and not _may(talk, [*before, one], rules, form):
            rows.append([([one], depth)])
        else:
            rows[-1].append(([one], depth))
    return rows


def _folded(row: list[tuple[Group, int]], rules: ArchiveRules) -> list[tuple[Group, int]]:
    done: list[tuple[Group, int]] = []
    while len(row) > max(1, rules.fold_after):
        half = row[: max(2, len(row) // 2)]
        merged = [one for group, _ in half for one in group]
        depth = max(depth for _, depth in half) + 1
        row = row[len(half) :]
        if depth < rules.depth_cap:
            row.insert(0, (merged, depth))
        else:
            done.append((merged, depth))
    return done + row


def _may(talk: Conversation, group: Sequence[Gathered], rules: ArchiveRules, form: Format) -> bool:
    """Tell whether the turns of a group follow one another and nothing holds the middle of it."""
    if form.archives != "linked" or any(one.held or one.dead for one in group):
        return False
    closing = group[-1].closing
    if closing is None or not closing.said.closes or closing.said.text_path is None:
        return False
    last = group[-1]
    inner, at = group[:-1], last.at or 0
    if any(one.broken or one.fixed for one in inner) or not last.follows(at):
        return False
    if last.fixed and last.fixed[0] < at:
        return False
    joined = all(one.prompt.said.parent == before.last for before, one in pairwise(group))
    sure = not any(talk.unsure(one, len(one.ids)) for one in inner) and not talk.unsure(last, at)
    return joined and sure and _hangs_together(group) and rules.depth_cap > 1


def _hangs_together(group: Sequence[Gathered]) -> bool:
    """Tell whether no entry outside of a group names one that would leave with it."""
    first, closing = group[0].prompt, group[-1].closing
    last = closing.offset if closing else first.offset
    for one in group:
        begin = 1 if one is group[0] else 0
        end = (one.at or 0) if one is group[-1] else len(one.ids)
        if any(
            begin <= place < end and not first.offset <= offset <= last
            for place, offset, _ in one.named
        ):
            return False
    return True


def outcomes_of(said: Iterable[Told], style: str, chars: int) -> str:
    """List what several turns came to, each with its share of the characters."""
    listed = list(said)
    share = max(1, chars // max(1, len(listed)))
    outcomes = [
        shortened(one.note, share) if one.note
        else shortened(outcome_in(one.closing), share, one.missing)
        for one in listed
    ]  # fmt: skip
    if style == "paragraph":
        return "\n".join(f"- {one}" for one in outcomes)
    return json.dumps({"outcomes": outcomes}, ensure_ascii=False)


def outcome_in(text: str) -> str:
    """Give the outcome that an archive's text tells, or any other text as it is."""
    if not text.startswith(MARK):
        return text
    summary = text.partition("\n\n")[2]
    try:
        said = json.loads(summary)
    except ValueError:
        return summary
    if not isinstance(said, dict):
        return summary
    several = said.get("outcomes")
    if isinstance(several, list):
        return "; ".join(map(str, several))
    return str(said.get("outcome", summary))


def between(group: list[Gathered]) -> Iterator[int]:
    """Yield the offsets of what leaves: behind the first prompt, before the last reply."""
    for one in group:
        begin = 1 if one is group[0] else 0
        end = one.at if one is group[-1] else len(one.offsets)
        yield from one.offsets[begin:end]


def weight_between(group: list[Gathered]) -> Weight:
    """Give what those entries come to."""
    whole = NO_WEIGHT
    for one in group[:-1]:
        whole = whole.plus(one.all_of_it)
    return whole.plus(group[-1].to_reply).less(group[0].asks)


def sum_of(numbers: Iterable[int | None]) -> int | None:
    """Add numbers up; None where one of them is not known."""
    listed = list(numbers)
    return None if None in listed else sum(one or 0 for one in listed)
