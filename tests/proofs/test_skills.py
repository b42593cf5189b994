"""The skills say only what the tool and the program understand."""

import json
import re
import shlex

import pytest
import typer

from brainsurgeon import config
from brainsurgeon.cli.commands import application
from brainsurgeon.mcp_server import TOOL
from brainsurgeon.mcp_server.answering import NOT_HERE, parse_call
from brainsurgeon.model.reports import LIMIT
from building.world import TOP

DEPLOY = TOP / "deploy"
SKILLS = {
    "openclaw": ("brainsurgeon__", DEPLOY / "openclaw/skills/brainsurgeon/SKILL.md"),
    "claude-code": ("mcp__brainsurgeon__", DEPLOY / "claude-code/skills/brainsurgeon/SKILL.md"),
}


@pytest.fixture(params=SKILLS)
def skill(request):
    """Give the text of a skill, and how its host names our tool."""
    prefix, path = SKILLS[request.param]
    return path.read_text(), prefix + TOOL


def test_every_call_in_a_skill_is_one_that_the_tool_takes(skill):
    """Each JSON object is a whole call, and each action is shown at least once."""
    text, _ = skill
    calls = [parse_call(json.loads(one)) for one in re.findall(r'\{"action".*?\}', text)]

    assert {call.action for call in calls} == {
        "show", "restore", "set_extractable", "get_context", "done", "search", "evidence",
    }  # fmt: skip
    assert next(call.action for call in calls) == "show"


def test_every_command_in_a_skill_is_one_that_the_program_takes(skill):
    """Each shell line parses as a command of ours with its options."""
    text, _ = skill
    block = re.search(r"```sh\n(.*?)```", text, re.DOTALL)[1]
    group = typer.main.get_command(application())

    for line in block.splitlines():
        name, *words = shlex.split(line.partition("|")[0])[1:]
        command = group.commands[name]
        command.make_context(name, words, resilient_parsing=False)


def test_a_skill_has_the_head_that_hosts_read(skill):
    """It begins with its name and a description that names the placeholder, and names the tool."""
    text, tool = skill
    head = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)[1]
    fields = dict(line.split(": ", 1) for line in head.splitlines())

    assert fields["name"] == "brainsurgeon"
    assert "[[extracted-" in fields["description"]
    assert set(re.findall(r"`(\w*purge_control)`", text)) == {tool}


def test_the_figures_in_a_skill_are_the_programs(skill):
    """Lengths, windows, protection and the fixed sentence are what the program goes by."""
    text, _ = skill
    settings = config.Settings()

    assert f"longer than {settings.min_value_length} characters" in text
    assert settings.keep_recent == 3
    assert "more than three messages ago" in text
    assert settings.keep_after_restore == 600
    assert "ten minutes" in text
    assert f"{LIMIT:,}" in text
    assert NOT_HERE.removesuffix(".") in text
