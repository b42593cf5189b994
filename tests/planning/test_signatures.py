"""Signed thinking: models that bind signatures, edits that break them, and removals."""

import pytest
from msgspec.structs import replace

from brainsurgeon.formats.base import HOLLOW
from brainsurgeon.model.rules import Rules
from brainsurgeon.planning.signatures import (
    BROKEN,
    DOUBTFUL,
    STALE,
    SentChange,
    Signature,
    Signatures,
    SignatureVerdict,
    is_bound,
    judge,
)

PATH = ("v",)


@pytest.mark.parametrize(
    ("model", "bound"),
    [
        # The models that the provider lists.
        *((f"claude-{name}", True) for name in (
            "fable-5-1", "fable-5-2", "mythos-5-1", "mythos-5-2", "opus-5-5", "sonnet-5-5",
            "haiku-5-5",
        )),
        ("claude-mythos-5", False),
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
        ("claude-mythos-5-1-20260901", True),
        ("claude-fable-latest", False),
        *((f"gpt-{name}", True) for name in ("6.2-sol", "6.2-astra", "6-3", "7")),
        *((f"gpt-{name}", False) for name in ("6-sol", "6.1-terra", "5.6-luna", "oss-120b")),
        ("", False),
    ],
)  # fmt: skip
def test_is_bound_by_family_and_version_of_the_model(model, bound):
    """Claude 5.1, GPT-6.2 and later bind signatures; eight digits are a date."""
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
def test_configured_globs_add_and_exclude_models(models, globs, bound):
    """The last glob that matches any name of the model decides."""
    assert is_bound(models, globs) is bound


@pytest.mark.parametrize(
    ("models", "globs", "bound"),
    [
        (["house-1"], [], True), ([], [], True), (["claude-opus-5"], [], True),
        (["house-1"], ["!house-*"], False),
    ],
)  # fmt: skip
def test_signature_of_the_new_form_is_bound(models, globs, bound):
    """A proxy may rename a model; only the user's own globs take precedence over the form."""
    assert is_bound(models, globs, by_form=True) is bound


def signature(start, *, live=True, stays=None):
    return Signature((start, PATH), f"e{start}", 80, live, stays)


def change(start, *, live=True, removes=True):
    return SentChange((start, PATH), live, removes)


def judged(standing, changes, *, edited=(), still_extracted=(), **how):
    """Judge changes, given the places of signed thinking that is edited, and of placeholders."""
    rules = Rules(())
    how = {"remembers": False, "pristine": False, **how}
    places = {(start, PATH) for start in edited}
    return judge(Signatures(list(standing), changes, places, list(still_extracted)), rules, **how)


def removed(verdict):
    return [dropped.signature.place[0] for dropped in verdict.dropped]


def test_thinking_that_is_extracted_is_not_removed_again():
    """Thinking that is extracted anyway is not removed, and breaks the signatures after it."""
    standing = [signature(100), signature(300)]

    assert removed(judged(standing, [change(100)], edited=[100])) == [300]


def test_unsent_thinking_that_is_extracted_is_not_removed_again():
    """Unsent thinking that is extracted anyway is not removed, although an edit precedes it."""
    standing = [signature(300, live=False)]

    assert removed(judged(standing, [change(200)], edited=[300])) == []


def test_edits_of_dead_entries_break_only_dead_signatures():
    """An edit of a dead entry breaks no live signature: no request contains both."""
    standing = [signature(300, live=False), signature(400)]

    assert removed(judged(standing, [change(200, live=False)])) == [300]
    assert removed(judged(standing, [change(200)])) == [300, 400]


def test_signatures_after_placeholders_of_a_remembering_agent():
    """Signatures after placeholders are doubtful if the agent remembers, and are removed."""
    standing = [
        signature(100),
        signature(300),
        signature(500),
        signature(700),
    ]

    verdict = judged(standing, [change(600)], still_extracted=[200], remembers=True)

    assert [(one.signature.place[0], one.forced, one.reason) for one in verdict.dropped] == [
        (700, False, BROKEN), (300, True, DOUBTFUL), (500, True, DOUBTFUL),
    ]  # fmt: skip
    assert judged(standing, [], still_extracted=[200]) == SignatureVerdict()


def test_no_signature_leaves_from_between_others():
    """A missing block breaks those behind it: if one of them stays, a doubtful one stays, too.

    After the removal of a hollow one, all behind it that are bound leave.
    """
    standing = [signature(300), signature(500, stays="its turn is open"), signature(700)]
    assert removed(judged(standing, [], still_extracted=[200], remembers=True)) == [700]

    standing = [signature(100), replace(signature(300), unsound=HOLLOW), signature(500)]
    verdict = judge(
        Signatures(standing), Rules((), drop_signatures="broken"), remembers=False, pristine=False
    )  # fmt: skip
    assert removed(verdict) == [300, 500]


@pytest.mark.parametrize(
    ("drop_signatures", "reasons", "unfit"),
    [("", {}, ()), ("broken", {2000: STALE, 3000: HOLLOW}, ("e6000",)),
     ("all", {100: STALE, 2000: STALE, 3000: HOLLOW, 4000: STALE}, ("e6000",))],
)  # fmt: skip
def test_drop_signatures_removes_stale_and_hollow_signatures(drop_signatures, reasons, unfit):
    """Stale and hollow signatures are removed with "broken", those of any model with "all".

    Dead signatures stay; a pinned one is reported as unfit.
    """
    standing = [
        signature(100), signature(2000), replace(signature(3000), bound=False, unsound=HOLLOW),
        replace(signature(4000), bound=False), signature(5000, live=False),
        signature(6000, stays="it is pinned"),
    ]  # fmt: skip
    verdict = judge(
        Signatures(standing, still_extracted=[1000]), Rules((), drop_signatures=drop_signatures),
        remembers=False, pristine=False,
    )  # fmt: skip

    assert {one.signature.place[0]: one.reason for one in verdict.dropped} == reasons
    assert verdict.unfit == unfit
    assert all(one.forced for one in verdict.dropped)
