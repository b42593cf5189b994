"""Which thinking is sealed, what breaks a seal, and what then becomes of it."""

from dataclasses import replace

import pytest

from brainsurgeon.model.plans import Cut, FieldEdit, Putback
from brainsurgeon.model.turns import Sent
from brainsurgeon.planning.signatures import (
    BROKEN,
    DOUBTFUL,
    HOLLOW,
    STALE,
    Seal,
    Seals,
    Verdict,
    is_bound,
    judge,
    lighter,
)


@pytest.mark.parametrize(
    ("model", "bound"),
    [
        ("claude-fable-5-1", True),
        ("claude-opus-5-5", True),
        ("anthropic/claude-fable-5.2", True),
        ("us.anthropic.claude-sonnet-5-5-20260901-v1:0", True),
        ("claude-sonnet-5-5@20260901", True),
        ("CLAUDE-OPUS-6", True),
        ("claude-6-sonnet", True),
        ("claude-haiku-10", True),
        ("claude-opus-5", False),
        ("claude-opus-5-20260301", False),
        ("claude-opus-4-20250514", False),
        ("claude-sonnet-4-6", False),
        ("claude-3-7-sonnet-20250219", False),
        ("claude-opus-20250514", False),
        ("claude-mythos-5-1", False),
        ("claude-mythos-5-1-20260901", False),
        ("claude-mythos-5-2", True),
        ("claude-fable-latest", False),
        ("gpt-6-sol", False),
        ("", False),
    ],
)
def test_a_model_is_known_by_its_id(model, bound):
    """Family, major and minor tell; eight digits are a date, and one model is left out by name."""
    assert is_bound([model], ()) is bound


@pytest.mark.parametrize(
    ("models", "globs", "bound"),
    [
        (["house-1"], ["house-*"], True),
        (["House-1"], ["HOUSE-*"], True),
        (["claude-fable-5-1"], ["!claude-fable-*"], False),
        (["claude-fable-5-1"], ["!claude-*", "claude-fable-5-*"], True),
        (["latest", "claude-fable-5-1"], [], True),
        (["latest", "claude-fable-5-1"], ["!latest"], False),
        ([], ["*"], False),
    ],
)
def test_globs_add_models_and_take_some_out(models, globs, bound):
    """The last glob that matches any name of the model decides."""
    assert is_bound(models, globs) is bound


def cut(start, **fields):
    """Give a cut of a value at a place."""
    return Cut(
        start, start + 50, b'"x"', f"e{start}", "x", ("v",), "tool_result", None, 50,
        block=False, forced=False, reason="old", **fields,
    )  # fmt: skip


def putback(start):
    """Give a value that goes back to a place."""
    return Putback(start, start + 3, 1, f"e{start}", ("v",), 50)


def seal(start, *, live=True, stays=None):
    """Give a seal at a place."""
    taken = Cut(
        start, start + 90, b"{}", f"e{start}", "", ("v",), "thinking", None, 80,
        block=True, forced=False, reason=BROKEN, empties=True,
    )  # fmt: skip
    return Seal(taken, live, stays)


def judged(standing, edits, *, dead=(), left=(), **how):
    """Judge, given the places of edits in dead entries and of what stays cut."""
    sent = {edit.start: edit.start not in dead for edit in edits}
    how = {"defer": False, "remembers": False, "pristine": False, **how}
    return judge(Seals(list(standing), list(left), sent), edits, **how)


def places(verdict):
    """Give where seals leave."""
    return [one.start for one in verdict.leave]


def test_what_stands_behind_the_first_change_leaves():
    """Seals in front of it still fit; those behind it, and behind each other, do not."""
    standing = [seal(100), seal(300), seal(500)]

    verdict = judged(standing, [cut(400), cut(200)])

    assert places(verdict) == [300, 500]
    assert {one.reason for one in verdict.leave} == {BROKEN}
    assert not any(one.forced for one in verdict.leave)
    assert judged(standing, [cut(600)]) == judged(standing, []) == Verdict()


def test_a_value_put_back_is_a_change_like_any_other():
    """A seal made behind a placeholder does not fit the value that comes back."""
    assert places(judged([seal(100), seal(300)], [putback(200)])) == [300]


def test_what_is_not_sent_breaks_nothing():
    """Fields of ours and edits that no request shows leave every seal as it is."""
    mark = FieldEdit(150, 150, b"x", "e", "_restored", None)
    seals = Seals([seal(200)], [], {})

    assert judge(
        seals, [mark, cut(160)], defer=False, remembers=False, pristine=False
    ) == Verdict()  # fmt: skip


def test_a_seal_that_leaves_by_the_rules_leaves_once():
    """What is cut anyway is not cut a second time, and breaks what stands behind it."""
    standing = [seal(100), seal(300)]

    assert places(judged(standing, [standing[0].cut])) == [300]


def test_dead_changes_break_dead_seals_only():
    """What no request carries stands in front of nothing that one does."""
    standing = [seal(300, live=False), seal(400)]

    assert places(judged(standing, [cut(200)], dead=[200])) == [300]
    assert places(judged(standing, [cut(200)])) == [300, 400]


def test_where_a_live_seal_cannot_leave_nothing_is_changed():
    """A pinned one, say: then the session is left as it is, with the reason."""
    stuck = seal(300, stays="it is pinned")

    blocked = judged([stuck, seal(400)], [cut(200)]).blocked

    assert blocked == "sealed: the thinking of e300 would break: it is pinned"
    assert judged([stuck], [cut(400)]) == Verdict()
    assert judged([seal(300, live=False, stays="it is pinned")], [cut(200)]) == Verdict()


def test_sessions_can_be_left_alone_instead():
    """With `sealed = "defer"` nothing is done that would break a seal; the rest is."""
    blocked = judged([seal(300)], [cut(200)], defer=True).blocked

    assert blocked == 'sealed: the thinking of e300 would break: sealed = "defer"'
    assert judged([seal(300)], [cut(400)], defer=True) == Verdict()
    assert judged([seal(300, live=False)], [cut(200)], defer=True).blocked is None


def test_an_agent_that_remembers_seals_in_front_of_what_it_remembers():
    """Behind placeholders its newer seals are doubtful.

    They leave for themselves, whatever it gains.
    """
    standing = [seal(100), seal(300), seal(500, stays="its turn is open"), seal(700)]

    verdict = judged(standing, [cut(600)], left=[200], remembers=True)

    assert [(one.start, one.forced, one.reason) for one in verdict.leave] == [
        (700, False, BROKEN), (300, True, DOUBTFUL),
    ]  # fmt: skip
    assert judged(standing, [], left=[200]) == Verdict()
    assert judged(standing, [], left=[200], remembers=True, defer=True) == Verdict()


def test_a_pristine_undo_keeps_every_seal_and_names_those_that_fit_no_more():
    """All bytes come back; seals that were made behind placeholders are named and not touched."""
    verdict = judged([seal(100), seal(300)], [putback(200)], pristine=True, remembers=True)

    assert verdict == Verdict(unfit=("e300",))
    assert places(judged([seal(300)], [cut(200), putback(100)], pristine=True)) == [300]


@pytest.mark.parametrize(
    ("unseal", "gone"), [("", {}), ("broken", {2000: STALE, 3000: HOLLOW}),
                         ("all", {100: STALE, 2000: STALE, 3000: HOLLOW})],
)  # fmt: skip
def test_seals_leave_on_request_that_would_stay_else(unseal, gone):
    """Those behind what was cut earlier, and hollow ones of any model; dead and pinned ones not."""
    standing = [
        seal(100), seal(2000), replace(seal(3000), bound=False, hollow=True),
        replace(seal(4000), bound=False), seal(5000, live=False), seal(6000, stays="it is pinned"),
    ]  # fmt: skip
    verdict = judge(
        Seals(standing, left=[1000]), [], defer=False, remembers=False, pristine=False,
        unseal=unseal,
    )  # fmt: skip

    assert {one.start: one.reason for one in verdict.leave} == gone
    assert all(one.forced for one in verdict.leave)


def test_a_seal_that_is_bound_to_nothing_breaks_by_no_cut():
    """Older models sign their thinking alone, so that it stays behind a change."""
    loose = replace(seal(2000), bound=False)
    seals = Seals([loose], sent={100: True})

    verdict = judge(seals, [cut(100)], defer=False, remembers=True, pristine=False)
    assert verdict == Verdict()


def test_a_plan_makes_the_next_request_lighter_by_what_was_sent():
    """What leaves live parts counts in characters, pictures by their number."""
    picture = replace(cut(300), block=True)
    edits = [cut(100), cut(200), picture, FieldEdit(400, 400, b"x", "e", "f", None)]

    assert lighter(edits, {100: True, 200: False, 300: True}) == Sent(35, 1)
    assert lighter([putback(100)], {100: True}) == Sent(-47, 0)
