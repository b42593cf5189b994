"""The reference of the configuration, made from its models: the JSON schema and a table."""

from __future__ import annotations

from typing import Any

from brainsurgeon import config
from brainsurgeon.config.origins import flat, toml
from brainsurgeon.config.settings import Settings

_IN_WORDS = {"roots": "OpenClaw's agents", "state_dir": "`~/.local/state/brainsurgeon`"}
"""Defaults that depend on the user."""


def schema() -> dict[str, Any]:
    """Return the JSON schema of a configuration file, for editors."""
    made = Settings.model_json_schema()
    for name, table in (("Settings", made), *made["$defs"].items()):
        table.pop("description", None)
        defaults = getattr(config, name).model_construct().model_dump(mode="json")
        for key, one in table["properties"].items():
            one.pop("title", None)
            if key == "state_dir" or one.get("default", "") is None:
                del one["default"]
            elif "default" in one:
                one["default"] = defaults[key]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **made,
        "title": "brainsurgeon",
    }


def markdown() -> str:
    """Return the table of the README: every key with its default and description."""
    rows = ["| key | default | description |", "| --- | --- | --- |"]
    for key, value, description in flat(Settings()):
        text = "none" if value == {} else "not set" if value is None else f"`{toml(value)}`"
        rows.append(f"| `{key}` | {_IN_WORDS.get(key, text)} | {description} |")
    return "\n".join(rows) + "\n"
