"""Rows of archives that fold into one: which turns, and what is left of each."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING

from brainsurgeon.decide.summary import shortened
from brainsurgeon.model.turns import MARK

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from brainsurgeon.decide.conversation import Conversation, Gathered
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
    oldest = (live[:count] for count in range(together, 1, -1))
    done = next((one for one in oldest if _may(talk, one, rules, form)), [])
    if done:
        groups.append((list(done), max(depths[: len(done)]) + 1))
        live, depths = live[len(done) :], depths[len(done) :]
    for row in _rows(talk, live, depths, rules, form):
        groups += _folded(row, rules)
    return [group for group, _ in groups if len(group) > 1]


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
    steps = [step for one in group for step in one.steps]
    steps = steps[: steps.index(closing) + 1]
    follow = all(
        step.said.parent == before.ident and talk.ids[step.ident or ""] == 1
        for before, step in pairwise(steps)
    )
    first, last = steps[0].offset, closing.offset
    named = (offset for step in steps[1:-1] for offset, _ in talk.named.get(step.ident or "", ()))
    inside = all(first <= offset <= last for offset in named)
    fixed = any(step.said.role == "fixed" for step in steps[1:-1])
    return follow and inside and not fixed and rules.depth_cap > 1


def outcomes_of(said: Iterable[Told], style: str, chars: int) -> str:
    """List what several turns came to, each with its share of the characters."""
    listed = list(said)
    share = max(1, chars // max(1, len(listed)))
    outcomes = [shortened(one.note or outcome_in(one.closing), share) for one in listed]
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
