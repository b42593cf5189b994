"""Load the settings from a TOML file and the environment."""

import json
import os
import re
import tomllib
from typing import Any

from pydantic import ValidationError

from brainsurgeon.config.problems import contradictions, problem_text, quoted
from brainsurgeon.config.settings import ALIASES, Settings
from brainsurgeon.config.values import InvalidValueError, closest
from brainsurgeon.errors import ConfigError

_KEY = re.compile(r"\s*([A-Za-z0-9_]+)\s*=")
_TABLE = re.compile(r"\s*\[\[?\s*([A-Za-z0-9_.]+)\s*\]")
PREFIX = "BRAINSURGEON_"
"""Prefix of the environment variables that override keys."""
REMEMBERED = ("last_run_at", "last_retention_run_at")
"""Keys that the store replaced: accepted with a warning."""


def config_path(given: str | None) -> str | None:
    """Return the configuration file: the given one, or the first that exists in three places."""
    if given or os.environ.get("BRAINSURGEON_CONFIG"):
        return given or os.environ["BRAINSURGEON_CONFIG"]
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    places = (os.path.join(home, "brainsurgeon/config.toml"), "/etc/brainsurgeon/config.toml")
    return next((place for place in places if os.path.exists(place)), None)


def default_state_dir() -> str:
    """Return the default state directory."""
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(home, "brainsurgeon")


def load(path: str | None = None) -> tuple[Settings, list[str]]:
    """Return the settings and warnings about them.

    Raises ConfigError with every problem at once.
    """
    source = config_path(path)
    table = _read_file(source) if source else {}
    problems: list[str] = []
    warnings = _override(table, problems)
    warnings += [_remembered(key) for key in REMEMBERED if table.pop(key, None) is not None]
    names = {key: alias for alias, key in ALIASES.items() if alias in table}
    table.setdefault("state_dir", default_state_dir())
    if table.get("rules") and "trigger_types" in table:
        problems.append("rules and trigger_types: give one of the two")
    try:
        settings = Settings.model_validate(table)
    except ValidationError as error:
        problems += [problem_text(problem, names) for problem in error.errors()]
        raise _invalid(source, problems) from None
    problems += contradictions(settings, table)
    if problems:
        raise _invalid(source, problems)
    return settings, warnings


def _invalid(source: str | None, problems: list[str]) -> ConfigError:
    """Return the error, each problem with the line of its key if that is found."""
    if source is None or all(problem.startswith(PREFIX) for problem in problems):
        return ConfigError("environment", problems)
    lines = lines_of(_text_of(source))
    numbered = []
    for problem in problems:
        keys = re.sub(r"\[[0-9]+\]", "", problem.partition(":")[0]).split(".")
        places = (lines.get(".".join(keys[:end])) for end in range(len(keys), 0, -1))
        line = next(filter(None, places), None)
        numbered.append(f"{problem} (line {line})" if line else problem)
    return ConfigError(source, numbered)


def lines_of(text: str) -> dict[str, int]:
    """Return the lines on which the keys and tables of a file probably are."""
    lines: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.split("\n"), 1):
        if table := _TABLE.match(line):
            section = f"{table[1]}."
            lines.setdefault(table[1], number)
        elif key := _KEY.match(line):
            lines.setdefault(f"{section}{key[1]}", number)
    return lines


def _text_of(path: str) -> str:
    with open(path, encoding="utf-8") as handle:
        return handle.read()


def _read_file(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as handle:
            return tomllib.load(handle)
    except OSError as error:
        raise ConfigError(path, [f"cannot be read: {error.strerror}"]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(path, [f"not TOML: {error}"]) from None


def _override(table: dict[str, Any], problems: list[str]) -> list[str]:
    """Put the variables BRAINSURGEON_<KEY> into the table; return warnings about unknown ones."""
    warnings = []
    for variable, text in sorted(os.environ.items()):
        key = variable.removeprefix(PREFIX).lower()
        if not variable.startswith(PREFIX) or key == "config":
            continue
        key = ALIASES.get(key, key)
        if key in REMEMBERED:
            warnings.append(_remembered(variable))
            continue
        if key not in Settings.model_fields:
            meant = closest(key, Settings.model_fields)
            hint = f"; did you mean {PREFIX}{meant.upper()}?" if meant else ""
            warnings.append(f"{variable} is no setting of this program: ignored{hint}")
            continue
        try:
            value = _from_text(key, text)
            Settings.model_validate({key: value})
        except (ValueError, ValidationError) as error:
            problems.append(f"{variable}: {_reason(error, text)}")
            table.pop(key, None)
        else:
            table[key] = value
    return warnings


def _from_text(key: str, text: str) -> Any:
    """Parse a value from the environment; tables are given as JSON."""
    field = Settings.model_fields[key]
    if field.default_factory:
        return json.loads(text)
    if key in ("roots", "rules", "use"):
        if key == "roots" and not text.lstrip().startswith(("[", "{")):
            return [{"path": path.strip()} for path in text.split(",") if path.strip()]
        value = json.loads(text)
        return value if isinstance(value, list) else [value]
    if isinstance(field.default, tuple):
        return [word.strip() for word in text.split(",") if word.strip()]
    if isinstance(field.default, bool):
        if text.lower() not in ("true", "false", "1", "0", "yes", "no"):
            raise InvalidValueError("true or false")
        return text.lower() in ("true", "1", "yes")
    if isinstance(field.default, int) and re.fullmatch(r"-?[0-9]+", text):
        return int(text)
    return text


def _reason(error: ValueError, text: str) -> str:
    if isinstance(error, ValidationError):
        return problem_text(error.errors()[0], {}).partition(": ")[2]
    wanted = "wants JSON" if isinstance(error, json.JSONDecodeError) else str(error)
    return f"{wanted}, but {quoted(text)} is given"


def _remembered(name: str) -> str:
    return f"{name}: is kept in the store and shown by `brainsurgeon status`; ignored"
