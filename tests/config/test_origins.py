"""The settings in force, as a configuration file has them, and where each comes from."""

import pytest

from brainsurgeon.config import Settings, load
from brainsurgeon.config.origins import settings_shown
from brainsurgeon.render.init import settings as rendered
from building.world import TOP

EXAMPLE = TOP / "config.toml.example"
UNUSUAL = """
enabled = false   # for now
retention = "48h"
retention_standing = "never"
min_reclaim = "2.5%"
keep_restore_calls = true
exclude = ["tool:read", "*/node \\"quoted\\"/*"]

[[rules]]
kind = "tool_result"
tool = ["read", "exec*"]
keep_recent = 10

[[roots]]
path = "/sessions/ü"
exclusive = true

[[roots]]
path = "/more"
"""


@pytest.fixture
def shown(tmp_path):
    path = tmp_path / "config.toml"

    def show(text):
        path.write_text(text)
        return {one.key: one for one in settings_shown(load(str(path))[0], str(path))}

    return show


def test_every_setting_is_shown_with_where_it_comes_from(shown, tmp_path, monkeypatch):
    """The environment, the line of the file, or the default; an alias is its key."""
    monkeypatch.setenv("BRAINSURGEON_QUIET_SECONDS", "7")
    one = shown(UNUSUAL)
    file = tmp_path / "config.toml"

    assert {key.partition(".")[0] for key in one} == Settings.model_fields.keys()
    assert one["enabled"].source == f"{file}:2"
    assert one["keep_purge_control_calls"].source == f"{file}:6"
    assert one["rules"].source == f"{file}:9"
    assert one["roots"].source == f"{file}:14"
    assert one["quiet"].source == "$BRAINSURGEON_QUIET_SECONDS"
    assert (one["quiet"].value, one["watch"].source) == ('"7s"', "default")


def test_a_key_whose_line_is_not_found_has_its_file(shown, tmp_path):
    """TOML may quote a key."""
    assert shown('"enabled" = true')["enabled"].source == str(tmp_path / "config.toml")


@pytest.mark.parametrize(
    "text", ["", UNUSUAL, EXAMPLE.read_text()], ids=["none", "many", "example"]
)
def test_what_is_shown_is_a_configuration_of_the_same_settings(shown, tmp_path, text):
    """It can be kept as a file, and then holds as it did."""
    listed = list(shown(text).values())
    before, _ = load(str(tmp_path / "config.toml"))
    again = tmp_path / "again.toml"
    again.write_text(rendered(listed, str(tmp_path / "config.toml")))
    after, warnings = load(str(again))

    assert warnings == []
    assert after.model_copy(update={"roots": before.roots}) == before
    assert after.root_directories() == [
        *(root for root in before.root_directories() if before.roots), *(
            type(root)(root.path, databases=root.databases)
            for root in before.root_directories() if not before.roots
        ),
    ]  # fmt: skip


def test_durations_are_written_as_a_file_has_them(shown):
    """In the largest unit of which they are a whole number; a day is 24 hours."""
    one = shown('retention = "86400s"\nretention_standing = "14d"')

    assert one["retention"].value == '"24h"'
    assert one["retention_standing"].value == '"2w"'
    assert shown('retention = "90m"')["retention"].value == '"90m"'
