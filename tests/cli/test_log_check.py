"""`config --check FILE`: what a description finds in a log, and what it misses."""

import base64
import json
import os
import re
import shutil
import time

import pytest

from building.processes import error_line, json_output, run
from building.world import SAMPLES, TOP

KIMI = SAMPLES / "described" / "kimi-code.jsonl"
LOG = """{"kind": "start", "run": "r1"}
{"kind": "ask", "id": "1", "said": "go on"}
{"kind": "act", "id": "2", "tool": "exec", "given": {"command": "ls"}, "call": "c1"}
{"kind": "seen", "id": "3", "call": "c1", "said": "%s", "shown": "%s", "lost": "%s"}
{"kind": "tell", "id": "4", "said": "done"}
{"kind": "ask", "id": "5", "said": "thanks"}
{"kind": "tell", "id": "6", "said": "bye"}
""" % tuple(letter * 800 for letter in "abc")  # noqa: UP031
DESCRIPTION = """
[[roots]]
path = "{root}"
format = "mine"
[formats.mine]
recognise = [{{ kind = "start", run = "*" }}]
entries = [
  {{ role = "prompt", when = {{ kind = "ask" }} }},
  {{ role = "reply", kind = "tool_call", when = {{ kind = "act" }} }},
  {{ role = "result", when = {{ kind = "seen" }} }},
  {{ role = "reply", when = {{ kind = "{reply}" }} }},
]
id = "id"
session = "run"
texts = ["said", "never"]
unsent = "shown"
call_id = "call"
tool = "tool"
arguments = "given"
"""


@pytest.fixture
def described(tmp_path):
    """Return a function that writes a log and a configuration that describes it."""

    def write(log=LOG, reply="tell"):
        root = tmp_path / "logs"
        root.mkdir(exist_ok=True)
        (root / "log.jsonl").write_text(log)
        config = tmp_path / "config.toml"
        head = f"state_dir = '{tmp_path}/state'\nquiet = 0\nmin_reclaim = 0\nkeep_recent = 0\n"
        config.write_text(head + DESCRIPTION.format(root=root, reply=reply))
        return root / "log.jsonl", config

    return write


def check(file, config, *words):
    return run("config", "--check", file, "--config", config, *words)


def test_check_prints_what_is_found_and_what_nothing_reaches(described):
    """Entries by role, values by kind, and the texts and keys that were forgotten."""
    log, config = described()
    seen = json_output(check(log, config, "--json"))

    assert (seen["format"], seen["session_id"], seen["open_turn"]) == ("mine", "r1", None)
    assert seen["roles"] == {
        "none of the conversation": 1, "prompt": 2, "reply": 3, "result": 1,
    }  # fmt: skip
    assert (seen["tool_calls"], seen["answered"]) == (1, 1)
    assert {one["reason"]: one["chars"] for one in seen["found"]
            if one["where"] == "tool_result"} == {"": 800, "never sent": 800}  # fmt: skip
    assert [(one["where"], one["first_line"]) for one in seen["unreached"]] == [("lost", 4)]
    assert seen["unused_keys"] == ["texts never"]
    text = check(log, config).stdout.decode()
    for expected in ("mine, 7 entries; the last turn is finished", "leads to nothing here: texts"):
        assert expected in text


def test_a_described_log_is_pruned_below_a_root_that_names_it(described):
    """What the user described is extracted and restored to the byte."""
    log, config = described()
    before = log.read_bytes()

    run("scan", "--once", "--config", config)
    assert json.loads(log.read_text().splitlines()[3])["said"] == "[[extracted-3]]"
    assert b"a" * 800 not in log.read_bytes()
    assert b"b" * 800 not in log.read_bytes()
    run("restore", "--all", "--pristine", "--config", config)
    assert log.read_bytes() == before


def test_check_refuses_a_description_without_a_prompt(described):
    """The first lines show why; the command exits with 1."""
    log, config = described(LOG.replace('"ask"', '"asks"'))
    result = check(log, config)
    assert result.returncode == 1
    assert b"problem: no entry is a prompt; line 1 has kind, run; line 2 has" in result.stdout


def test_check_refuses_a_log_that_no_format_recognises(described):
    """The keys of its first lines are named, but no content."""
    log, config = described(LOG.replace('"start"', '"begin"'))

    line = error_line(check(log, config))
    assert 'no line meets recognise[0] kind = "start"; line 1 has kind, run; line 2 has' in line
    assert "go on" not in line


def test_check_of_a_file_that_is_not_there_is_a_wrong_argument(described):
    """As with every other file that an argument names: exit 2, one line."""
    log, config = described()
    result = check(log.with_name("absent.jsonl"), config)
    of_directory = check(log.parent, config)

    assert result.returncode == of_directory.returncode == 2
    assert "absent.jsonl: No such file or directory; name another file" in error_line(result)
    assert "not a regular file; name another file" in error_line(of_directory)


def test_check_and_scan_agree_whether_a_session_is_idle(described):
    """An open turn waits while it is young; an old one, and a file that just changed, say so."""
    log, config = described("".join(LOG.splitlines(keepends=True)[:-1]))
    for age, left_alone in ((60, "the last turn is open: a user message"), (90_000, None)):
        os.utime(log, (time.time() - age,) * 2)
        seen = json_output(check(log, config, "--json"))

        assert (seen["open_turn"], seen["left_alone"]) == (
            "the last turn is open: a user message", left_alone,
        )  # fmt: skip
        scanned = json_output(run("scan", "--once", "--config", config, "--json"))
        assert (scanned["sessions_changed"] == 1) is (left_alone is None)


def test_check_says_why_no_scan_reads_a_file(described, tmp_path):
    """It is below none of the roots, or has another name."""
    log, config = described()
    elsewhere, renamed = tmp_path / "log.jsonl", log.with_suffix(".txt")
    shutil.copy(KIMI, elsewhere)
    shutil.copy(KIMI, renamed)
    seen = [json_output(check(path, config, "--json")) for path in (elsewhere, renamed)]

    assert [one["left_alone"] for one in seen] == [
        "it is below none of the roots", "its name does not end with .jsonl",
    ]  # fmt: skip
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert "not a regular file" in error_line(check(tmp_path / "pipe.jsonl", config))


def test_check_says_how_a_log_becomes_known(world, tmp_path):
    """By a description, or by a root that names a format."""
    (tmp_path / "log.jsonl").write_text(LOG)

    line = error_line(check(tmp_path / "log.jsonl", world.config_file()))
    assert "describe it in [formats.NAME]" in line
    assert 'format = "generic" in its root' in line


INNER = """
calls = [{ at = "call" }, { at = "given", tool = "name.of", arguments = "command" }]
results = [{ at = "no.result", texts = "said" }]
failed = [{ kind = "seen", wrong = true }]
usage = { at = "given", prompt = "command" }
"""


def test_check_names_each_path_of_a_description_that_leads_to_nothing(described):
    """Also those within calls, results, failed and usage, and one that leads to no object."""
    log, config = described()
    with config.open("a") as file:
        file.write(INNER)
    seen = json_output(check(log, config, "--json"))

    assert seen["unused_keys"] == [
        "texts never", "failed wrong", "usage.prompt command",
        "calls[0].at call (to no object; of a list, call.*)", "calls[1].tool name.of",
        "results[0].at no.result (to no object; of a list, no.result.*)",
        "results[0].texts said",
    ]  # fmt: skip


def test_check_says_that_an_id_occurs_twice(described):
    """Nothing is extracted from such entries."""
    log, config = described(LOG.replace('"id": "4"', '"id": "3"'))
    seen = json_output(check(log, config, "--json"))

    assert {one["reason"] for one in seen["found"] if one["where"] == "tool_result"} == {
        "its id occurs twice in the file"
    }


def test_check_says_that_an_entry_has_no_id(described):
    """Nothing is extracted from it, as from a log whose signatures cover what is before them."""
    log, config = described(LOG.replace('"id": "3"', '"id": ""'))
    reasons = {one["reason"] for one in json_output(check(log, config, "--json"))["found"]
               if one["where"] == "tool_result"}  # fmt: skip
    assert reasons == {"the id of its entry is empty, too long or no text"}

    signature = base64.b64encode(bytes([8, 4, 0x12, 2, 9, 9])).decode()
    thinking = json.dumps([{"type": "thinking", "thinking": "hm", "signature": signature}])
    log, config = described(LOG.replace('"bye"', thinking))
    seen = json_output(check(log, config, "--json"))
    assert seen["left_alone"] == "the signature of its thinking covers the request before it"
    scanned = json_output(run("scan", "--once", "--config", config, "--json"))
    assert scanned["sessions_changed"] == 0


def test_check_tries_the_shipped_descriptions(world):
    """A log anywhere can be tried; nothing is written."""
    config = world.config_file()
    seen = json_output(check(KIMI, config, "--json"))

    assert (seen["format"], seen["answered"]) == ("kimi-code", 2)
    assert not list(world.state.glob("*"))


def test_example_of_the_manual_is_described_as_it_says(tmp_path):
    """Its log and its description fit each other, and nothing is left."""
    page = (TOP / "deploy" / "docs" / "describe.md").read_text()
    log = tmp_path / "log.jsonl"
    log.write_text(re.search(r"```json\n(.*?)```", page, re.DOTALL)[1])
    table = next(text for text in re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
                 if "[formats" in text)  # fmt: skip
    config = tmp_path / "config.toml"
    config.write_text(table)
    seen = json_output(check(log, config, "--json"))

    assert seen["format"] == "mine"
    assert seen["roles"] == {"none of the conversation": 2, "prompt": 1, "reply": 2, "result": 1}
    assert (seen["tool_calls"], seen["answered"]) == (1, 1)
    assert (seen["unreached"], seen["unused_keys"], seen["faults"]) == ([], [], [])


def test_a_file_needs_check(world):
    """Without `--check`, a file would mean nothing."""
    assert run("config", KIMI, "--config", world.config_file()).returncode == 2
