"""The JSON schema of a configuration file."""

import json
import tomllib

import jsonschema
import pytest

from brainsurgeon.config import Settings, load
from brainsurgeon.config.origins import schema
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


def test_the_schema_takes_what_the_program_takes():
    """The example, with everything in it in use, and unusual values are in order."""
    checks = jsonschema.Draft202012Validator(schema())

    jsonschema.Draft202012Validator.check_schema(schema())
    for text in (EXAMPLE.read_text(), UNUSUAL):
        assert list(checks.iter_errors(tomllib.loads(text))) == []


@pytest.mark.parametrize(
    "text",
    ["keep_recent = -1", "keep_recent = true", 'retention = "1"', 'retention = "0h"',
     "retention = 24", 'min_reclaim = "1 %%"', 'min_session_bytes = "many"', "enabled = 1",
     'trigger_types = ["tools"]', 'signed_thinking = "keep"',
     "keep_recnt = 3", "scan_interval = '30'",
     '[[roots]]\nformat = "auto"', '[[roots]]\npath = "/x"\nformt = "auto"', 'databases = "on"',
     '[[rules]]\nkind = "all"'],
)  # fmt: skip
def test_the_schema_refuses_what_the_program_refuses(tmp_path, text):
    """An editor marks what would end with exit code 2."""
    path = tmp_path / "config.toml"
    path.write_text(text)
    with pytest.raises(ConfigError):
        load(str(path))
    assert list(jsonschema.Draft202012Validator(schema()).iter_errors(tomllib.loads(text)))


def test_the_schema_says_each_default_as_a_file_would_have_it():
    """With every default put into a file, the settings are those without one."""
    made = schema()["properties"]
    defaults = {key: one["default"] for key, one in made.items() if "default" in one}

    assert defaults["retention"] == "24h"
    assert made.keys() == Settings.model_fields.keys()
    assert defaults["keep_after_restore"] == "10m"
    assert Settings.model_validate(defaults) == Settings()
    assert json.loads(json.dumps(schema())) == schema()


def test_each_key_of_the_schema_has_a_description():
    """No key of any table is without a description, and tables describe the same key alike."""
    made = schema()
    told = {key: one["description"] for key, one in made["properties"].items()}
    for name, table in made["$defs"].items():
        for key, one in table["properties"].items():
            told[f"{name}.{key}"] = one["description"]

    assert all(isinstance(one, str) and one for one in told.values())
    assert "placeholder" in told["retention"]
    assert told["BudgetTable.enabled"] != told["ArchiveTable.enabled"] != told["enabled"]
    assert told["ProfileTable.keep_recent"] == told["keep_recent"] != told["RuleTable.keep_recent"]
