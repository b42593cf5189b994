"""Live: releases of the real Claude Code resume sessions pruned with the lean profile."""

import json
import os
import re
import ssl
import subprocess
import sys
from http.server import BaseHTTPRequestHandler

import pytest

from building.world import SAMPLES
from proofs.agent_packages import CLAUDE_CODES
from proofs.live.claude import NEWEST, ClaudeCode, printing, reading, started_by, writing
from proofs.live.messages import Messages
from proofs.live.served import Served, Streaming

pytestmark = pytest.mark.long(proves=("config", "planning", "rewrite"))

RULE = "Remember this rule of the project, whatever you do.\n" * 20


def ours(claude, *words, keys):
    (claude.base / "config.toml").write_text(
        f'{keys}\nstate_dir = "{claude.base}/state"\nquiet_seconds = 0\nmin_reclaim = 0\n'
        f'abandoned_after_seconds = 0\n[[roots]]\npath = "{claude.config}/projects"\n'
    )
    subprocess.run(
        [sys.executable, "-m", "brainsurgeon", *words], env=claude.environment,
        capture_output=True, timeout=60, check=True,
    )  # fmt: skip


def extracted(text):
    return set(re.findall(r"\[\[extracted-[0-9a-f-]{36}\]\]", text))


def send_prompt(claude, before="", *, fork=False):
    number, prompt = claude.model.script(closing="more")
    claude.runs(before + prompt, claude._session(claude.session, fork=fork))
    assert claude.model.refused == []
    return claude.model.of(number)


@pytest.mark.parametrize("release", CLAUDE_CODES)
def test_superseded_values_are_sent_as_placeholders_and_restored(tmp_path, release):
    """A failed call's arguments, an attached file and a reminder are restored to the byte."""
    with Messages() as model:
        claude = ClaudeCode(tmp_path, started_by(release), model)
        claude.with_server = []
        (claude.config / "commands").mkdir()
        (claude.config / "commands" / "rule.md").write_text(RULE)
        text = claude.workspace / "a.txt"
        for number in range(2):
            text.write_text(f"{number} a line of a file\n" * 90)
            send_prompt(claude, "@a.txt ")
            claude.runs("/rule", claude._session(claude.session))
        claude.turn([("Write", {"file_path": f"{claude.workspace}", "content": "no file\n" * 90})])
        claude.turn([printing("the last turn", lines=2)])
        whole = claude.path.read_bytes()

        ours(claude, "scan", "--once", keys="superseded = true\nkeep_recent = 99")
        kinds = {}
        for line in map(json.loads, claude.path.read_bytes().splitlines()):
            content = line.get("rendered") or line.get("message", {}).get("content")
            if line["type"] == "attachment" and "rendered" not in line:
                content = line["attachment"]
            for placeholder in extracted(json.dumps(content)):
                kinds[placeholder] = line["type"]
        assert sorted(kinds.values()) == ["assistant", "attachment", "user"]
        assert extracted(json.dumps(send_prompt(claude, fork=True)[0]["messages"])) == kinds.keys()

        ours(claude, "scan", "--once", keys='profile = "lean"')
        assert extracted(json.dumps(send_prompt(claude, fork=True)[0]["messages"])) > kinds.keys()
        print(f"{release}: {len(whole):,} bytes, {os.path.getsize(claude.path):,} when lean")
        ours(claude, "restore", "--all", "--pristine", keys='profile = "lean"')
        assert claude.path.read_bytes() == whole


class Lenient(Messages):
    """A model that accepts signatures of other models."""

    def _check(self, request):
        pass


@pytest.mark.parametrize("keys", ["", 'profile = "lean"'])
def test_notification_of_a_finished_task_is_kept(tmp_path, keys):
    """Claude Code finds the notification on resume, so it does not call the task unfinished."""
    with Lenient() as model:
        claude = ClaudeCode(tmp_path, started_by(NEWEST), model)
        claude.with_server = []
        claude.turn([printing("a turn", lines=1)])
        [sample] = SAMPLES.glob("claude-code/projects/*/*-0004-*.jsonl")
        claude.session = sample.stem
        claude.path.write_bytes(sample.read_bytes())
        os.utime(claude.path, (1e9, 1e9))
        ours(claude, "scan", "--once", keys=keys)

        sent = json.dumps(send_prompt(claude)[0]["messages"])
        assert extracted(sent)
        assert "finish before the previous session ended" not in sent


@pytest.mark.parametrize(
    "keys", ['trigger_types = ["tool_result", "tool_call"]', 'profile = "lean"']
)
@pytest.mark.parametrize("release", ["2.1.112", NEWEST])
def test_approved_plan_survives_scans_in_and_after_plan_mode(tmp_path, release, keys):
    """A missing plan file is written again from the pruned session, and the undo is exact."""
    plan = "".join(f"{number}. change a line of a file\n" for number in range(40))
    with Messages() as model:
        claude = ClaudeCode(tmp_path, started_by(release), model)
        claude.with_server = []
        claude.environment["CLAUDE_CODE_ENVIRONMENT_KIND"] = "byoc"  # plan files may get lost
        for number in range(3):
            (claude.workspace / f"{number}.txt").write_text(f"{number} a line of a file\n" * 90)
        arguments = {"content": plan}

        def name_the_file(*_):
            sent = json.dumps(model.requests[-1])
            arguments["file_path"] = re.findall(r'[^ "\\]+/plans/[a-z0-9-]+[.]md', sent)[-1]

        model.during = name_the_file
        planning = {"options": ["--permission-mode", "plan"]}
        claude.types([], [reading(claude.workspace / "0.txt")], [("Write", arguments)], **planning)
        model.during = None
        whole = claude.path.read_bytes()
        ours(claude, "scan", "--once", keys=keys)
        small = claude.path.read_bytes()
        requests = claude.types(
            [], [reading(claude.workspace / "1.txt")], [("ExitPlanMode", {})],
            [writing(claude.workspace / "out.txt", "out")], [reading(claude.workspace / "2.txt")],
            **planning,
        )  # fmt: skip
        assert (claude.workspace / "out.txt").exists()
        whole += claude.path.read_bytes()[len(small) :]
        ours(claude, "scan", "--once", keys=keys)
        (plans,) = claude.config.glob("plans/*.md")
        plans.unlink()
        [request] = send_prompt(claude, fork=True)

        shown = json.dumps(request["messages"])
        assert len(extracted(shown)) > len(extracted(json.dumps(requests[0]["messages"]))) > 0
        assert json.dumps("## Approved Plan:\n" + plan)[1:-1] in shown
        assert [path.read_text() for path in claude.config.glob("plans/*.md")] == [plan]
        ours(claude, "restore", "--all", "--pristine", "--session", claude.session, keys=keys)
        assert claude.path.read_bytes() == whole


ANSWER = "what the page says\n" * 90


class Page(Streaming, BaseHTTPRequestHandler):
    def do_GET(self):
        self.whole({"page": "a line of a page\n" * 400})


@pytest.fixture
def page(tmp_path):
    """Yield the https address of a web page, and its certificate."""
    pem = str(tmp_path / "page.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=page",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", pem, "-out", pem],
        capture_output=True, check=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    served = Served(Page)
    served._server.socket = context.wrap_socket(served._server.socket, server_side=True)
    with served:
        yield f"https://127.0.0.1:{served.port}/page", pem


class Reader(Messages):
    """A model that also answers about web pages."""

    def answer(self, request):
        if "a line of a page" in json.dumps(request["messages"][-1]):
            return [{"type": "text", "text": ANSWER}]
        return super().answer(request)


@pytest.mark.parametrize("release", CLAUDE_CODES)
def test_web_page_answers_are_extracted_and_restored(tmp_path, release, page):
    """With both profiles the next request has placeholders; the undo is exact."""
    address, pem = page
    with Reader() as model:
        claude = ClaudeCode(tmp_path, started_by(release), model)
        claude.with_server = []
        claude.environment["NODE_EXTRA_CA_CERTS"] = pem
        # Without this setting Claude Code first asks its maker whether the host is safe.
        settings = {"skipWebFetchPreflight": True, "permissions": {"allow": ["WebFetch"]}}
        (claude.config / "settings.json").write_text(json.dumps(settings))
        fetch = "WebFetch", {"url": address, "prompt": "What does it say?"}
        for _ in range(2):
            requests = claude.turn([fetch])
            assert json.dumps(ANSWER.strip())[1:-1] in json.dumps(requests[1]["messages"])
        claude.turn([printing("the last turn", lines=2)])
        whole = claude.path.read_bytes()

        for keys in ("", 'profile = "lean"'):
            ours(claude, "scan", "--once", keys=keys)
            shown = json.dumps(send_prompt(claude, fork=True)[0]["messages"])
            assert len(extracted(shown)) >= 2
            assert "what the page says" not in shown
        ours(claude, "restore", "--all", "--pristine", "--session", claude.session, keys=keys)
        assert claude.path.read_bytes() == whole
