"""Live: releases of the real Claude Code on a model that signs its thinking."""

import json
import re
import time

import pytest

from proofs.agent_packages import CLAUDE_CODES
from proofs.live import program
from proofs.live.binding import BROKEN, Binding
from proofs.live.claude import ClaudeCode, printing, started_by
from proofs.live.witness import Witness

pytestmark = pytest.mark.long(proves=("formats", "planning", "rewrite", "operations"))

QUIET = 2
MODEL = "claude-opus-5-5"
PLACEHOLDER = re.compile(r"\[\[extracted-([0-9a-f-]{36})\]\]")
KINDS = ("thinking", "redacted_thinking")


@pytest.fixture
def model():
    """Yield a model that binds signatures to the history before them."""
    with Binding(redacts=True) as model:
        yield model


@pytest.fixture(params=CLAUDE_CODES)
def claude(request, tmp_path, model):
    return ClaudeCode(tmp_path, started_by(request.param), model, MODEL)


def configure(claude, **more):
    program.configure(
        claude.base, claude.config / "projects", quiet_seconds=QUIET, keep_recent=2,
        keep_after_restore_seconds=1, trigger_types=["tool_result"], **more,
    )  # fmt: skip


def ours(claude, *words, code=0):
    """Run brainsurgeon once the session is idle; return its output."""
    program.wait("it is idle", lambda: time.time() - claude.path.stat().st_mtime > QUIET)
    return program.ours(claude, *words, code=code)


def thoughts(messages):
    """Return the number of thinking blocks in the messages, and of placeholders."""
    blocks = [block for message in messages if isinstance(message["content"], list)
              for block in message["content"]]  # fmt: skip
    assert not any(block["type"] == "text" and not block["text"].strip() for block in blocks)
    shown = set(PLACEHOLDER.findall(json.dumps(messages)))
    return sum(block["type"] in KINDS for block in blocks), len(shown)


def test_signed_session_is_pruned_without_a_refusal(claude):
    """Seven turns with scans and a restore are not refused, and the undo restores every byte.

    The thinking before the first placeholder is still signed, redacted thinking included.
    """
    configure(claude)
    requests = claude.turn([printing("before", lines=3)], [printing("all", lines=3)])
    with Witness(claude.path) as witness:
        for number in range(6):
            requests = claude.turn([printing(number), printing(f"{number} too")], [printing("end")])
            ours(claude, "scan", "--once")
            if number == 3:
                [ident, *_] = PLACEHOLDER.findall(claude.path.read_text())
                ours(claude, "restore", ident)
                assert b"_restored" in claude.path.read_bytes()
        signed, shown = thoughts(requests[-1]["messages"])
        pruned = claude.path.stat().st_size
        ours(claude, "restore", "--all", "--pristine")

    assert signed >= 3
    assert shown >= 8
    assert "redacted_thinking" in json.dumps(requests[-1]["messages"])
    assert claude.path.read_bytes() == b"".join(witness.lines)
    print(
        f"{claude.turns} turns, none refused; {signed} signed blocks and {shown} placeholders in "
        f"the last request; {pruned:,} bytes when pruned, {claude.path.stat().st_size:,} after"
    )


def test_relieve_signatures_repairs_a_refused_session(claude):
    """Without the rule a prompt is refused; `relieve --signatures` removes all thinking.

    2.1.112 fails every turn before that, and 2.1.220 has every turn refused once. Later releases
    send no thinking at all from then on.
    """
    configure(claude, signed_models=["!*"])
    for number in range(3):
        claude.turn([printing(number), printing(f"{number} too")])
    ours(claude, "scan", "--once")
    works = claude.tries([printing("again")])
    assert any(BROKEN in why for why in claude.model.refused)
    heals = b"thinking_stripped" in claude.path.read_bytes()
    assert works or not claude.tries([printing("and again")])
    if not heals:
        configure(claude)
        report = json.loads(ours(claude, "relieve", claude.session, "--signatures", "--json"))
        assert report["signatures"] >= 3
        assert report["refused"] == []
    claude.model.refused.clear()
    requests = claude.turn([printing("after")])  # none of its requests is refused
    assert heals or thoughts(requests[0]["messages"])[0] <= 1
