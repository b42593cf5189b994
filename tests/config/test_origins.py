"""The settings in force, in the syntax of a configuration file, and the origin of each."""

import pytest

from brainsurgeon.config import Settings, load
from brainsurgeon.config.loading import settings_shown
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
        return {setting.key: setting for setting in settings_shown(load(str(path))[0], str(path))}

    return show


def test_each_setting_is_shown_with_its_origin(shown, tmp_path, monkeypatch):
    """The origin is a variable, a line of the file or the default; an alias has its key's name."""
    monkeypatch.setenv("BRAINSURGEON_QUIET_SECONDS", "7")
    settings = shown(UNUSUAL)
    file = tmp_path / "config.toml"

    assert {key.partition(".")[0] for key in settings} == Settings.model_fields.keys()
    assert settings["enabled"].source == f"{file}:2"
    assert settings["keep_purge_control_calls"].source == f"{file}:6"
    assert settings["rules"].source == f"{file}:9"
    assert settings["roots"].source == f"{file}:14"
    assert settings["quiet"].source == "$BRAINSURGEON_QUIET_SECONDS"
    assert (settings["quiet"].value, settings["watch"].source) == ('"7s"', "default")


def test_the_origin_of_a_quoted_key(shown, tmp_path):
    """A quoted key is found in its line. A key with an escape is not: its origin is the file."""
    file = tmp_path / "config.toml"

    assert shown('\n"enabled" = true')["enabled"].source == f"{file}:2"
    assert shown(r'"en\u0061bled" = true')["enabled"].source == str(file)


@pytest.mark.parametrize(
    "text", ["", UNUSUAL, EXAMPLE.read_text()], ids=["none", "many", "example"]
)
def test_shown_settings_load_as_the_same_settings(shown, tmp_path, text):
    """The settings as shown are a valid file with the same settings and roots."""
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


def test_durations_are_shown_in_the_largest_exact_unit(shown):
    """A duration is shown in its largest exact unit, but one day as 24 hours."""
    settings = shown('retention = "86400s"\nretention_standing = "14d"')

    assert settings["retention"].value == '"24h"'
    assert settings["retention_standing"].value == '"2w"'
    assert shown('retention = "90m"')["retention"].value == '"90m"'
