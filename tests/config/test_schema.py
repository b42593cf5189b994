"""The JSON schema of the configuration file."""

import json
import tomllib

import jsonschema
import pytest

from brainsurgeon.config import Settings, load
from brainsurgeon.config.loading import schema
from brainsurgeon.errors import ConfigError
from building.world import TOP

EXAMPLE = TOP / "config.toml.example"
UNUSUAL = """
retention_standing = "never"
min_reclaim = "2.5%"
exclude = ["tool:read", "*/node \\"quoted\\"/*"]

[[rules]]
kind = "tool_result"
tool = "read*"

[[roots]]
path = "/sessions/ü"
exclusive = true
"""


def test_schema_accepts_valid_configurations():
    """The example file and a file of unusual values satisfy the schema."""
    checks = jsonschema.Draft202012Validator(schema())

    jsonschema.Draft202012Validator.check_schema(schema())
    for text in (EXAMPLE.read_text(), UNUSUAL):
        assert list(checks.iter_errors(tomllib.loads(text))) == []


@pytest.mark.parametrize(
    "text",
    ["keep_recent = -1", "keep_recent = true", 'retention = "1"', 'retention = "0h"',
     "retention = 24", 'min_reclaim = "1 %%"', 'request_bytes = "many"', "enabled = 1",
     'trigger_types = ["tools"]',
     "keep_recnt = 3", "scan_interval = '30'",
     '[[roots]]\nformat = "auto"', '[[roots]]\npath = "/x"\nformt = "auto"', 'databases = "on"',
     '[[rules]]\nkind = "all"'],
)  # fmt: skip
def test_schema_rejects_what_the_program_refuses(tmp_path, text):
    """A configuration that raises ConfigError does not satisfy the schema."""
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(ConfigError):
        load(str(path))
    assert list(jsonschema.Draft202012Validator(schema()).iter_errors(tomllib.loads(text)))


def test_schema_defaults_are_the_settings_defaults():
    """A configuration of all defaults of the schema equals an empty one."""
    properties = schema()["properties"]
    defaults = {key: entry["default"] for key, entry in properties.items() if "default" in entry}

    assert defaults["retention"] == "24h"
    assert properties.keys() == Settings.model_fields.keys()
    assert defaults["keep_after_restore"] == "10m"
    assert Settings.model_validate(defaults) == Settings()
    assert json.loads(json.dumps(schema())) == schema()


def test_schema_describes_each_key():
    """Every key of every table has a description, and shared keys share it unless they differ."""
    document = schema()
    descriptions = {key: entry["description"] for key, entry in document["properties"].items()}
    for name, table in document["$defs"].items():
        for key, entry in table["properties"].items():
            descriptions[f"{name}.{key}"] = entry["description"]

    assert all(isinstance(entry, str) and entry for entry in descriptions.values())
    assert "placeholder" in descriptions["retention"]
    assert (
        descriptions["BudgetTable.enabled"]
        != descriptions["ArchiveTable.enabled"]
        != descriptions["enabled"]
    )
    assert (
        descriptions["ProfileTable.keep_recent"]
        == descriptions["keep_recent"]
        != descriptions["RuleTable.keep_recent"]
    )
