"""Live: releases of the real Claude Code resume sessions whose documents were extracted."""

import json
import re
import subprocess
import sys

import pytest

from proofs.agent_packages import CLAUDE_CODES
from proofs.live.claude import ClaudeCode, printing, reading, started_by
from proofs.live.messages import Messages, TooLargeError

pytestmark = pytest.mark.long(proves=("formats", "planning", "rewrite", "operations"))

PDF = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n"
    b"2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
    b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>endobj\n% FILL\n"
    b"xref\n0 1\n0000000000 65535 f \ntrailer<</Root 1 0 R/Size 4>>\nstartxref\n0\n%%EOF\n"
)


class Narrow(Messages):
    """Refuses requests of more than `most` bytes with status 413, and then those for summaries.

    The documents have few tokens, so that no agent compacts by itself.
    """

    most = None

    def usage(self, request, size):
        return super().usage(request, size // 20)

    def _check(self, request):
        size = len(json.dumps(request))
        if self.most and (size > self.most or not request.get("tools")):
            raise TooLargeError(f"Request exceeds the maximum size: {size}")
        super()._check(request)


def ours(claude, *words):
    (claude.base / "config.toml").write_text(
        f'state_dir = "{claude.base}/state"\nquiet_seconds = 0\nabandoned_after_seconds = 0\n'
        f'[request_bytes]\n"claude-*" = {claude.model.most}\n'
        f'[[roots]]\npath = "{claude.config}/projects"\n'
    )
    process = subprocess.run(
        [sys.executable, "-m", "brainsurgeon", *words], env=claude.environment,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert process.returncode == 0, (process.stdout, process.stderr)
    return process.stdout


def documents(request):
    return re.findall(r'"type": "document"', json.dumps(request["messages"]))


@pytest.mark.parametrize("release", CLAUDE_CODES)
def test_session_with_too_many_documents_is_usable_after_relieve(tmp_path, release):
    """The largest documents leave, and the next prompt is answered without a 413.

    Up to 2.1.220, Claude Code writes each document into a meta line of its own. 2.1.112 gives up
    after a 413. Later releases compact the session then, so it is relieved before.
    """
    with Narrow() as model:
        claude = ClaudeCode(tmp_path, started_by(release), model, "claude-sonnet-4-5")
        claude.with_server = []
        for number, size in enumerate((50_000, 300_000, 60_000, 290_000)):
            name = claude.workspace / f"{number}.pdf"
            name.write_bytes(PDF.replace(b"FILL", b"z" * size))
            requests = claude.turn([reading(name)])
        assert len(documents(requests[-1])) == 4
        whole = len(json.dumps(requests[-1]))
        model.most = whole - 300_000
        if gives_up := release == "2.1.112":
            assert not claude.tries([printing("x", lines=2)])
            assert any("TooLargeError" in problem for problem in model.refused)
            model.refused.clear()
        before = claude.path.read_bytes()

        relief = json.loads(ours(claude, "relieve", claude.session, "--json"))
        print(release, relief["before"], relief["after"])
        assert relief["fits"]
        assert relief["before"]["prompt_refused"] == gives_up
        assert {one["tool"] for one in relief["went"]} == {"Read"}
        [request, _] = claude.turn([printing("y", lines=2)])
        left = 2 if gives_up else 3  # at most half of a refused request, else 0.75 of the limit
        assert len(documents(request)) == left
        placeholders = re.findall(r"\[\[extracted-[0-9a-f-]{36}\]\]", json.dumps(request))
        assert len(set(placeholders)) == 4 - left
        after = claude.path.read_bytes()
        ours(claude, "restore", "--all", "--pristine")
        restored = claude.path.read_bytes()
        assert restored.startswith(before)
        assert len(restored) - len(before) < len(after)
