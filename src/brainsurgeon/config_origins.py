"""The settings in force, written as a configuration has them, and where each comes from."""

from __future__ import annotations

import json
import os
import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from brainsurgeon.config import PREFIX, Settings, config_path
from brainsurgeon.config_saying import ALIASES
from brainsurgeon.config_values import RootTable, Table, is_duration
from brainsurgeon.config_words import SAID

if TYPE_CHECKING:
    from collections.abc import Iterator

_KEY = re.compile(r"\s*([A-Za-z0-9_]+)\s*=")
_TABLE = re.compile(r"\s*\[\[?\s*([A-Za-z0-9_.]+)\s*\]")
_WITHIN = {
    "ArchiveTable": "archive.", "BudgetTable": "budget.", "RootTable": "roots.",
    "RuleTable": "rules.", "UseTable": "use.",
}  # fmt: skip
"""What stands before the keys of the tables within; those of a profile are called as at the top."""
_UNITS = (("w", 604_800), ("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting: its key, its value in the words of TOML (None: not set), and its source.

    `table` says that the value is a list of tables, each of which has its lines.
    """

    key: str
    value: str | None
    source: str
    table: tuple[str, ...] = ()


def settings_shown(settings: Settings, path: str | None) -> list[Setting]:
    """List the settings in force, in the order of their names' table.

    `path` is what was given as the configuration file, or None; it was read without a problem.
    """
    file = config_path(path)
    given, lines = _given(file) if file else ({}, {})
    instead = "trigger_types" if settings.rules else None  # a file may give only one of the two
    return [
        Setting(key, None if key == instead else text, _source(key, given, lines, file), table)
        for key, text, table in _flat(settings, "")
    ]


def schema() -> dict[str, Any]:
    """Give the JSON schema of a configuration file, for editors."""
    made = Settings.model_json_schema()
    for name, table in (("", made), *made.get("$defs", {}).items()):
        table.pop("description", None)
        for key, one in table.get("properties", {}).items():
            one.pop("title", None)
            one["description"] = SAID.get(f"{_WITHIN.get(name, '')}{key}", SAID.get(key))
            if table is made and "default" in one:
                _say_default(key, one)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **made,
        "title": "brainsurgeon",
    }


def _say_default(key: str, one: dict[str, Any]) -> None:
    """Write a default as a file would have it; what is not set has none."""
    text = _value(key, Settings.model_fields[key].default)
    if text is None or key == "state_dir" or text.startswith("{"):
        del one["default"]
    else:
        one["default"] = tomllib.loads(f"x = {text}")["x"]


def _given(file: str) -> tuple[dict[str, Any], dict[str, int]]:
    """Read which keys a file gives, and in which lines they probably stand."""
    with open(file, encoding="utf-8") as handle:
        text = handle.read()
    lines: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.split("\n"), 1):
        if table := _TABLE.match(line):
            section = f"{table[1]}."
            lines.setdefault(table[1], number)
        elif key := _KEY.match(line):
            lines.setdefault(f"{section}{key[1]}", number)
    return tomllib.loads(text), lines


def _source(key: str, given: dict[str, Any], lines: dict[str, int], file: str | None) -> str:
    """Name where a setting comes from: the environment lies over the file."""
    first, _, inner = key.partition(".")
    names = [first, *(alias for alias, meant in ALIASES.items() if meant == first)]
    for name in names:
        if f"{PREFIX}{name.upper()}" in os.environ:
            return f"${PREFIX}{name.upper()}"
    at = next((name for name in names if name in given), None)
    if at is None or file is None:
        return "default"
    within = given[at]
    for step in filter(None, inner.split(".")):
        if not isinstance(within, dict) or step not in within:
            return "default"
        at, within = f"{at}.{step}", within[step]
    line = lines.get(at)
    return f"{file}:{line}" if line else file


def _flat(table: Table, above: str) -> Iterator[tuple[str, str | None, tuple[str, ...]]]:
    """Yield each key with its value; those of tables within come by their dotted names."""
    for name in type(table).model_fields:
        key, value = f"{above}{name}", getattr(table, name)
        if isinstance(value, Table):
            yield from _flat(value, f"{key}.")
        elif key == "roots" and isinstance(table, Settings):
            walked = table.root_directories()
            roots = table.roots or tuple(RootTable(path=one.path) for one in walked)
            yield key, _value(key, roots), tuple(map(_lines, roots))
        elif isinstance(value, tuple) and value and isinstance(value[0], Table):
            yield key, _value(key, value), tuple(map(_lines, value))
        else:
            yield key, _value(key, value, duration=is_duration(type(table), name)), ()


def _lines(table: Table | dict[str, Any]) -> str:
    return "\n".join(f"{key} = {text}" for key, text in _pairs(table))


def _pairs(table: Table | dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what a table says beyond its defaults."""
    said = table if isinstance(table, dict) else table.model_dump(exclude_defaults=True)
    for key, value in said.items():
        text = _value(key, value)
        if text is not None:
            bare = re.fullmatch(r"[A-Za-z0-9_-]+", key)
            yield key if bare else json.dumps(key, ensure_ascii=False), text


def _value(key: str, value: Any, *, duration: bool | None = None) -> str | None:
    """Write a value as TOML; None for what is not set."""
    if duration is None:
        duration = key in Settings.model_fields and is_duration(Settings, key)
    if duration:
        return json.dumps(_duration(value))
    if value is None:
        return None
    if key == "min_reclaim" and isinstance(value, float):
        return json.dumps(f"{value * 100:g}%")
    if isinstance(value, dict | Table):
        inner = ", ".join(f"{name} = {text}" for name, text in _pairs(value))
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(str(_value('', one)) for one in value)}]"
    return json.dumps(value, ensure_ascii=False)


def _duration(seconds: int | None) -> str:
    """Write a duration in the largest unit of which it is a whole number, a day in hours."""
    if seconds is None:
        return "never"
    unit, size = next(
        (unit, size) for unit, size in _UNITS
        if seconds % size == 0 and (seconds != size or unit not in "wd")
    )  # fmt: skip
    return f"{seconds // size}{unit}"
