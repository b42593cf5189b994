"""Configuration files of agents that are no plain files of a sensible size."""

import os

import pytest

from brainsurgeon.agents import INSTALLS
from brainsurgeon.agents.openclaw import database as openclaw_database
from brainsurgeon.files import configurations
from brainsurgeon.operations.init import digest_of


@pytest.fixture(params=["pipe", "device", "large"])
def unusable(request, tmp_path):
    """Return the path of a file that must not be read as a whole."""
    path = tmp_path / "openclaw.json"
    if request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "device":
        path.symlink_to("/dev/zero")
    else:
        path.touch()
        os.truncate(path, configurations.LARGEST + 1)
    return str(path)


def test_no_reader_waits_for_or_reads_an_endless_configuration(unusable, monkeypatch):
    """A configuration of an agent that is a pipe, a device or huge counts as unreadable."""
    monkeypatch.setenv("OPENCLAW_STATE_DIR", os.path.dirname(unusable))
    monkeypatch.setenv("OPENCLAW_CONFIG_PATH", unusable)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", os.path.dirname(unusable))
    os.symlink(unusable, os.path.join(os.path.dirname(unusable), ".claude.json"))

    assert INSTALLS["openclaw"].configured() == []
    assert INSTALLS["claude"].configured() == []
    database = f"{os.path.dirname(unusable)}/agents/main/agent/openclaw-agent.sqlite"
    assert openclaw_database.selected(database).unreadable == "its configuration cannot be read"
    assert digest_of(unusable) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"mcp": {"ours": {"a": 1}},}', "{}"),
        ('{"mcp": {"ours": {"a": 1},},\n "b": 2}', '{"b": 2}'),
        ('{"mcp": {"a": 1, "ours": {}, // of b\n "b": 2}}', '{"mcp": {"a": 1, // of b\n "b": 2}}'),
        ('{"mcp": {/* off */ "ours": {}}}', None),
        ('{"mcp": {"a": 1, // keep\n "ours": {}}}', None),
        ('{"mcp": {"ours": {} // keep\n, "b": 2}}', None),
        ('{"mcp": {"ours": {}, // off: "c"\n}}', '{"mcp": {// off: "c"\n}}'),
    ],
)
def test_a_value_is_cut_out_of_json_without_a_comment(before, after):
    """What is left can be parsed, and no comment is lost: rather nothing is changed."""
    if after is None:
        with pytest.raises(ValueError, match="ours"):
            configurations.without(before, ["mcp", "ours"])
    else:
        assert configurations.without(before, ["mcp", "ours"]) == after


@pytest.mark.parametrize("comments", ["/**/" * 2000, "//" * 20_000 + "\n"])
def test_many_comments_behind_a_comma_are_read_at_once(comments):
    """They are not tried in every grouping, which would never end."""
    assert configurations.loads(f'{{"a": 1, {comments} "b": 2, {comments} }}') == {"a": 1, "b": 2}
