"""The settings in force as TOML with their sources, and a JSON schema of all settings."""

import json
import os
import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from brainsurgeon.config import settings as models
from brainsurgeon.config.loading import PREFIX, config_path, read_file
from brainsurgeon.config.settings import ALIASES, Settings
from brainsurgeon.config.values import SettingsTable


class Setting(Struct, frozen=True):
    """One setting: its key, its value as TOML (None: not set), and its source."""

    key: str
    value: str | None
    source: str


def settings_shown(settings: Settings, path: str | None) -> list[Setting]:
    """Return the settings in force; `path` is the configuration file as given, or None."""
    file = config_path(path)
    given, lines = read_file(file) if file else ({}, {})
    shown = []
    for key, value, _ in flat(settings):
        if key == "roots" and not value:
            value = [{"path": root.path} for root in settings.root_directories()]  # noqa: PLW2901
        if key == "trigger_types" and settings.rules:  # a file may set only one of these two keys
            value = None  # noqa: PLW2901
        shown.append(Setting(key, toml(value), _source(key, given, lines, file)))
    return shown


def flat(table: SettingsTable, above: str = "") -> Iterator[tuple[str, Any, str]]:
    """Yield each key of a table with its value and description; keys within a table are dotted."""
    whole, given = (table.model_dump(mode="json", exclude_unset=unset) for unset in (False, True))
    for name, field in type(table).model_fields.items():
        value = getattr(table, name)
        if isinstance(value, SettingsTable):
            yield from flat(value, f"{above}{name}.")
        else:  # tables inside lists and dicts are shown without their defaults
            yield f"{above}{name}", given.get(name, whole[name]), field.description or ""


def toml(value: Any) -> str | None:
    """Return a value as TOML, in one line unless it is a list of tables; None for None."""
    if value is None:
        return None
    if isinstance(value, dict):
        inner = ", ".join(
            f"{key if re.fullmatch('[A-Za-z0-9_-]+', key) else toml(key)} = {toml(inner)}"
            for key, inner in value.items() if inner is not None
        )  # fmt: skip
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        return "\n".join(["[", *(f"  {toml(one)}," for one in value), "]"])
    if isinstance(value, list):
        return f"[{', '.join(str(toml(one)) for one in value)}]"
    return json.dumps(value, ensure_ascii=False)


def _source(key: str, given: dict[str, Any], lines: dict[str, int], file: str | None) -> str:
    """Return the source of a setting: a variable, else a line of the file, else `default`."""
    first, *inner = key.split(".")
    names = [first, *(alias for alias, meant in ALIASES.items() if meant == first)]
    for name in names:
        if f"{PREFIX}{name.upper()}" in os.environ:
            return f"${PREFIX}{name.upper()}"
    for name in names:
        within: Any = given
        for step in (name, *inner):
            within = within.get(step) if isinstance(within, dict) else None
        if within is not None:
            line = lines.get(".".join((name, *inner)))
            return f"{file}:{line}" if line else str(file)
    return "default"


def schema() -> dict[str, Any]:
    made = Settings.model_json_schema()
    for name, table in (("Settings", made), *made["$defs"].items()):
        table.pop("description", None)
        defaults = getattr(models, name).model_construct().model_dump(mode="json")
        for key, field in table["properties"].items():
            field.pop("title", None)
            if key == "state_dir" or field.get("default", "") is None:
                del field["default"]
            elif "default" in field:
                field["default"] = defaults[key]
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, **made, "title": "brainsurgeon"}
