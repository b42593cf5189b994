"""Which thinking is signed, what breaks a signature, and what then becomes of it."""

import pytest
from msgspec.structs import replace

from brainsurgeon.model.plans import Removal
from brainsurgeon.model.rules import Rules
from brainsurgeon.planning.signatures import (
    BROKEN,
    DOUBTFUL,
    HOLLOW,
    STALE,
    Signature,
    Signatures,
    SignatureVerdict,
    is_bound,
    judge,
)

DEFER = Rules((), signed_thinking="defer")


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
    return Removal(
        start, start + 50, b'"x"', f"e{start}", "x", ("v",), "tool_result", None, 50,
        block=False, forced=False, reason="old", **fields,
    )  # fmt: skip


def signature(start, *, live=True, stays=None):
    taken = Removal(
        start, start + 90, b"{}", f"e{start}", "", ("v",), "thinking", None, 80,
        block=True, forced=False, reason=BROKEN, how="empty",
    )  # fmt: skip
    return Signature(taken, live, stays)


def judged(standing, edits, *, dead=(), unsent=(), left=(), defer=False, **how):
    """Judge, given the places of edits in dead entries, of unsent values and of what stays cut."""
    sent = {
        edit.start: (edit.start not in dead, edit.start)
        for edit in edits if edit.start not in unsent
    }  # fmt: skip
    rules = DEFER if defer else Rules(())
    how = {"remembers": False, "pristine": False, **how}
    return judge(Signatures(list(standing), list(left), sent), edits, rules, **how)


def places(verdict):
    return [one.start for one in verdict.leave]


def test_a_signature_that_leaves_by_the_rules_leaves_once():
    """What is extracted anyway is not extracted a second time, and breaks what stands behind it."""
    standing = [signature(100), signature(300)]

    assert places(judged(standing, [standing[0].removal])) == [300]


def test_thinking_that_is_never_sent_leaves_once():
    """Extracted by the rules, it is not extracted again because something sent broke it."""
    standing = [signature(300, live=False)]

    assert places(judged(standing, [cut(200), standing[0].removal], unsent=[300])) == []


def test_dead_changes_break_dead_signatures_only():
    """What no request carries stands in front of nothing that one does."""
    standing = [signature(300, live=False), signature(400)]

    assert places(judged(standing, [cut(200)], dead=[200])) == [300]
    assert places(judged(standing, [cut(200)])) == [300, 400]


def test_sessions_can_be_left_alone_instead():
    """With `signed_thinking = "defer"` all is done that breaks no signature, and nothing else."""
    blocked = judged([signature(300)], [cut(200)], defer=True).blocked

    assert blocked == 'signatures: the thinking of e300 would break: signed_thinking = "defer"'
    assert judged([signature(300)], [cut(400)], defer=True) == SignatureVerdict()
    assert judged([signature(300, live=False)], [cut(200)], defer=True).blocked is None


def test_an_agent_that_remembers_signs_in_front_of_what_it_remembers():
    """Its newer signatures behind placeholders are doubtful and leave, whatever it gains."""
    standing = [
        signature(100),
        signature(300),
        signature(500, stays="its turn is open"),
        signature(700),
    ]

    verdict = judged(standing, [cut(600)], left=[200], remembers=True)

    assert [(one.start, one.forced, one.reason) for one in verdict.leave] == [
        (700, False, BROKEN), (300, True, DOUBTFUL),
    ]  # fmt: skip
    assert judged(standing, [], left=[200]) == SignatureVerdict()
    assert judged(standing, [], left=[200], remembers=True, defer=True) == SignatureVerdict()


@pytest.mark.parametrize(
    ("drop_signatures", "gone", "unfit"),
    [("", {}, ()), ("broken", {2000: STALE, 3000: HOLLOW}, ("e6000",)),
     ("all", {100: STALE, 2000: STALE, 3000: HOLLOW, 4000: STALE}, ("e6000",))],
)  # fmt: skip
def test_signatures_leave_on_request_that_would_stay_else(drop_signatures, gone, unfit):
    """Those behind what was extracted earlier, and hollow ones of any model.

    After a refusal all leave, whatever their model. Dead ones stay; a pinned one is named.
    """
    standing = [
        signature(100), signature(2000), replace(signature(3000), bound=False, hollow=True),
        replace(signature(4000), bound=False), signature(5000, live=False),
        signature(6000, stays="it is pinned"),
    ]  # fmt: skip
    verdict = judge(
        Signatures(standing, left=[1000]), [], Rules((), drop_signatures=drop_signatures),
        remembers=False, pristine=False,
    )  # fmt: skip

    assert {one.start: one.reason for one in verdict.leave} == gone
    assert verdict.unfit == unfit
    assert all(one.forced for one in verdict.leave)
