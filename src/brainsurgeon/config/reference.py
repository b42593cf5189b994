"""The reference of the configuration, made from its models: the JSON schema and a table."""

from typing import Any

from brainsurgeon import config
from brainsurgeon.config.origins import flat, toml
from brainsurgeon.config.settings import Settings


def schema() -> dict[str, Any]:
    """Return the JSON schema of a configuration file, for editors."""
    made = Settings.model_json_schema()
    for name, table in (("Settings", made), *made["$defs"].items()):
        table.pop("description", None)
        defaults = getattr(config, name).model_construct().model_dump(mode="json")
        for key, field in table["properties"].items():
            field.pop("title", None)
            if key == "state_dir" or field.get("default", "") is None:
                del field["default"]
            elif "default" in field:
                field["default"] = defaults[key]
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, **made, "title": "brainsurgeon"}


def markdown() -> str:
    """Return the table of the reference: every key with its default and description."""
    of_user = {"roots": "OpenClaw's agents", "state_dir": "`~/.local/state/brainsurgeon`"}
    rows = ["| key | default | description |", "| --- | --- | --- |"]
    for key, value, description in flat(Settings()):
        text = "none" if value == {} else "not set" if value is None else f"`{toml(value)}`"
        rows.append(f"| `{key}` | {of_user.get(key, text)} | {description} |")
    return "\n".join(rows) + "\n"
