"""The skills, compared with the tool and the program."""

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
    "copilot": ("brainsurgeon-", DEPLOY / "copilot/skills/brainsurgeon/SKILL.md"),
    "opencode": ("brainsurgeon_", DEPLOY / "opencode/skills/brainsurgeon/SKILL.md"),
    "gemini": ("mcp_brainsurgeon_", DEPLOY / "gemini/skills/brainsurgeon/SKILL.md"),
    "codex": ("", DEPLOY / "codex/skills/brainsurgeon/SKILL.md"),
    "claude-code": ("mcp__brainsurgeon__", DEPLOY / "claude-code/skills/brainsurgeon/SKILL.md"),
}


@pytest.fixture(params=SKILLS)
def skill(request):
    """Return the text of a skill, and its host's name for the tool."""
    prefix, path = SKILLS[request.param]
    return path.read_text(), prefix + TOOL


def test_calls_in_a_skill_are_valid_and_cover_all_actions(skill):
    """Each JSON object parses as a call, and each action occurs; `show` comes first."""
    text, _ = skill
    calls = [parse_call(json.loads(text)) for text in re.findall(r'\{"action".*?\}', text)]

    assert {call.action for call in calls} == {
        "show", "restore", "set_extractable", "get_context", "done", "search", "evidence",
    }  # fmt: skip
    assert next(call.action for call in calls) == "show"


def test_commands_in_a_skill_are_valid(skill):
    """Each shell line parses as a command with its options."""
    text, _ = skill
    block = re.search(r"```sh\n(.*?)```", text, re.DOTALL)[1]
    group = typer.main.get_command(application())

    for line in block.splitlines():
        name, *words = shlex.split(line.partition("|")[0])[1:]
        command = group.commands[name]
        command.make_context(name, words, resilient_parsing=False)


def test_skill_has_name_description_and_tool(skill):
    """The description mentions the placeholder, and the text only this host's tool."""
    text, tool = skill
    head = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)[1]
    fields = dict(line.split(": ", 1) for line in head.splitlines())

    assert fields["name"] == "brainsurgeon"
    assert "[[extracted-" in fields["description"]
    assert set(re.findall(r"`([\w-]*purge_control)`", text)) == {tool}


def test_figures_in_a_skill_are_the_defaults(skill):
    """Lengths, windows, protection and the fixed sentence are those of the program."""
    text, _ = skill
    settings = config.Settings()

    assert f"longer than {settings.min_value_length} characters" in text
    assert settings.keep_recent == 3
    assert "more than three messages ago" in text
    assert settings.keep_after_restore == 600
    assert "ten minutes" in text
    assert f"{LIMIT:,}" in text
    assert NOT_HERE.removesuffix(".") in text
