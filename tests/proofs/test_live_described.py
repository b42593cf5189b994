"""Live: real agents that are only described read their pruned logs again."""

import json
import re

import pytest

from proofs.live.described import KimiCode, QwenCode
from proofs.live.model import Model
from proofs.live.program import configure, lines_of, ours

pytestmark = pytest.mark.long(proves=("formats", "agents", "rewrite", "operations"))

PLACEHOLDER = re.compile(r"\[\[extracted-[^\]]+\]\]")


@pytest.mark.parametrize("agent", [KimiCode, QwenCode])
def test_a_described_agent_reads_its_pruned_log_again(tmp_path, agent):
    """It resumes with placeholders, with a restored value, and with all of them restored."""
    with Model() as model:
        driven = agent(tmp_path, model)
        for number in range(4):
            driven.turn(lines_of(f"turn {number}"))
        driven.turn()
        configure(tmp_path, driven.root, keep_recent=2, keep_after_restore=0, when="always")
        before = driven.path.read_bytes()
        ours(driven, "scan", "--once")
        pruned = driven.path.read_bytes()
        assert len(pruned) < len(before) * 0.7
        ours(driven, "scan", "--once")
        assert driven.path.read_bytes() == pruned
        ours(driven, "restore", "--all", "--pristine")
        assert driven.path.read_bytes() == before
        ours(driven, "scan", "--once")
        assert driven.path.read_bytes() == pruned

        (request, *_) = driven.turn()
        sent = set(PLACEHOLDER.findall(json.dumps(request["messages"])))
        assert len(sent) >= 3
        assert driven.path.read_bytes().startswith(pruned)

        ours(driven, "restore", min(sent))
        assert b'"_restored"' in driven.path.read_bytes()
        (request, *_) = driven.turn()
        text = json.dumps(request["messages"])
        assert set(PLACEHOLDER.findall(text)) == sent - {min(sent)}
        assert "_restored" not in text

        ours(driven, "restore", "--all", "--pristine")
        (request, *_) = driven.turn()
        assert not PLACEHOLDER.search(json.dumps(request["messages"]))
        assert driven.path.read_bytes().startswith(before)
