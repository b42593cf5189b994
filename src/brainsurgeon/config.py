"""TOML and environment to frozen settings: every problem at once, each with its place."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from brainsurgeon.decide.cron import cron_numbers
from brainsurgeon.decide.rules import Rule, Rules
from brainsurgeon.errors import ConfigError
from brainsurgeon.formats import FORMATS
from brainsurgeon.hosts import openclaw
from brainsurgeon.model.entries import Kind  # noqa: TC001  pydantic reads it at run time
from brainsurgeon.model.sessions import Root

PREFIX = "BRAINSURGEON_"
ALIASES = {"keep_restore_calls": "keep_purge_control_calls"}
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SIZES = {"": 1, "B": 1, "KB": 1000, "MB": 1000**2, "GB": 1000**3}
_DURATION = re.compile(r"([1-9][0-9]*)([smhdw])")
_SIZE = re.compile(r"([0-9]+) ?(B|KB|MB|GB)?", re.IGNORECASE)
_SHARE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?%")


def _duration(value: Any) -> Any:
    """Read `24h` and the like to seconds; `never` to None."""
    if value is None or value == "never":
        return None
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if not match:
        raise ValueError('wants a whole number above 0 with s, m, h, d or w ("24h"), or "never"')
    return int(match[1]) * _UNITS[match[2]]


def _size(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if not match:
        raise ValueError('wants bytes, with KB, MB or GB where you like ("64KB")')
    return int(match[1]) * _SIZES[(match[2] or "").upper()]


def _reclaim(value: Any) -> Any:
    """Read `1%` to a share of the file, anything else to bytes."""
    match = _SHARE.fullmatch(value) if isinstance(value, str) else None
    if match:
        return float(match[1]) / 100
    try:
        return int(_size(value))
    except ValueError:
        raise ValueError('wants a share of the file ("1%") or bytes ("64KB")') from None


def _cron(value: Any) -> Any:
    if value is not None:
        cron_numbers(value if isinstance(value, str) else "")
    return value


def _absolute(value: Any) -> Any:
    if not isinstance(value, str) or not value:
        raise ValueError("wants a path")
    path = os.path.expanduser(value)
    if not os.path.isabs(path):
        raise ValueError("wants an absolute path (~ is understood)")
    return os.path.normpath(path)


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Duration = Annotated[int | None, BeforeValidator(_duration)]
Size = Annotated[int, BeforeValidator(_size)]
Reclaim = Annotated[float | int, BeforeValidator(_reclaim)]
Cron = Annotated[str | None, BeforeValidator(_cron)]
AbsolutePath = Annotated[str, BeforeValidator(_absolute)]
Count = Annotated[int, Field(ge=0, strict=True)]
Switch = Annotated[bool, Field(strict=True)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RootTable(_Table):
    """A directory to walk, and which format its files are."""

    path: AbsolutePath
    format: Literal["auto", "openclaw", "claude-code", "codex", "generic"] = "auto"


class RuleTable(_Table):
    """One rule of the long form."""

    kind: Kind
    tool: Annotated[tuple[str, ...], BeforeValidator(_listed)] = ()
    min_value_length: Count | None = None
    keep_recent: Count | None = None


class Settings(_Table):
    """Everything that can be configured; the names and defaults are those of the README."""

    enabled: Switch = True
    roots: tuple[RootTable, ...] = ()
    keep_recent: Count = 3
    min_value_length: Count = 500
    trigger_types: tuple[Kind, ...] = ("thinking", "tool_result")
    rules: tuple[RuleTable, ...] = ()
    exclude: tuple[str, ...] = ()
    min_session_bytes: Size = 0
    min_reclaim: Reclaim = 0.01
    scan_interval_seconds: Annotated[int, Field(ge=1, strict=True)] = 30
    auto_cron: Cron = None
    retention: Duration = 86_400
    retention_standing: Duration = 30 * 86_400
    retention_cron: Cron = "0 */6 * * *"
    keep_after_restore_seconds: Count = 600
    keep_purge_control_calls: Switch = False
    watch: Switch = True
    quiet_seconds: Count = 30
    abandoned_after_seconds: Count = 3600
    state_dir: AbsolutePath = ""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "console", "json"] = "auto"

    def root_directories(self) -> list[Root]:
        """Give the roots to walk; without any configured, OpenClaw's agents of this user."""
        if self.roots:
            return [Root(table.path, table.format) for table in self.roots]
        return [Root(openclaw.agents_directory(), required=False)]

    def decision_rules(self) -> Rules:
        """Give what the decision needs, as plain values."""
        long_form = self.rules or tuple(RuleTable(kind=kind) for kind in self.trigger_types)
        share = self.min_reclaim if isinstance(self.min_reclaim, float) else 0.0
        return Rules(
            rules=tuple(
                Rule(
                    table.kind, table.tool,
                    self.min_value_length if table.min_value_length is None
                    else table.min_value_length,
                    self.keep_recent if table.keep_recent is None else table.keep_recent,
                )
                for table in long_form
            ),
            keep_recent=self.keep_recent,
            enabled=self.enabled,
            keep_after_restore=float(self.keep_after_restore_seconds),
            exclude_tools=tuple(
                pattern.removeprefix("tool:") for pattern in self.exclude
                if pattern.startswith("tool:")
            ),
            min_reclaim_share=share,
            min_reclaim_bytes=0 if share else int(self.min_reclaim),
        )  # fmt: skip

    def rules_fingerprint(self) -> str:
        """Give what changes whenever a decision on an unchanged file could change."""
        adapters = sorted((name, form.version) for name, form in FORMATS.items())
        said = repr((self.decision_rules(), self.exclude, self.min_session_bytes, adapters))
        return hashlib.blake2b(said.encode(), digest_size=12).hexdigest()


def load(path: str | None = None) -> tuple[Settings, list[str]]:
    """Load the settings and the warnings about them, or raise ConfigError with every problem."""
    source, table, problems = _read_file(path)
    warnings = _override(table, problems)
    names = {}
    for alias, key in ALIASES.items():
        if alias in table:
            names[key] = alias
            table.setdefault(key, table.pop(alias))
    table.setdefault("state_dir", _default_state_dir())
    if table.get("rules") and "trigger_types" in table:
        problems.append("rules and trigger_types: give one of the two")
    try:
        settings = Settings.model_validate(table)
    except ValidationError as error:
        problems += [_say(problem, names) for problem in error.errors(include_input=False)]
        settings = None
    if problems or settings is None:
        raise ConfigError(source or "environment", problems)
    return settings, warnings


def config_path(given: str | None) -> str | None:
    """Give the configuration file that holds: the first that exists of the four places."""
    if given or os.environ.get("BRAINSURGEON_CONFIG"):
        return given or os.environ["BRAINSURGEON_CONFIG"]
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    places = (os.path.join(home, "brainsurgeon/config.toml"), "/etc/brainsurgeon/config.toml")
    return next((place for place in places if os.path.exists(place)), None)


def _read_file(given: str | None) -> tuple[str | None, dict[str, Any], list[str]]:
    path = config_path(given)
    if path is None:
        return None, {}, []
    try:
        with open(path, "rb") as handle:
            return path, tomllib.load(handle), []
    except OSError as error:
        raise ConfigError(path, [f"cannot be read: {error.strerror}"]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(path, [f"not TOML: {error}"]) from None


def _override(table: dict[str, Any], problems: list[str]) -> list[str]:
    """Lay BRAINSURGEON_<KEY> over the file; return warnings about unknown ones."""
    warnings = []
    for variable, text in sorted(os.environ.items()):
        key = variable.removeprefix(PREFIX).lower()
        if not variable.startswith(PREFIX) or key == "config":
            continue
        key = ALIASES.get(key, key)
        if key not in Settings.model_fields:
            warnings.append(f"{variable} is no setting of this program: ignored")
            continue
        try:
            value = _from_text(key, text)
            Settings.model_validate({key: value})
        except (ValueError, ValidationError) as error:
            problems.append(f"{variable}: {_reason(error)}")
            table.pop(key, None)
        else:
            table[key] = value
    return warnings


def _from_text(key: str, text: str) -> Any:
    default = Settings.model_fields[key].default
    if key in ("roots", "rules"):
        if key == "roots" and not text.lstrip().startswith(("[", "{")):
            return [{"path": path.strip()} for path in text.split(",") if path.strip()]
        value = json.loads(text)
        return value if isinstance(value, list) else [value]
    if isinstance(default, tuple):
        return [word.strip() for word in text.split(",") if word.strip()]
    if isinstance(default, bool):
        if text.lower() not in ("true", "false", "1", "0", "yes", "no"):
            raise ValueError("wants true or false")
        return text.lower() in ("true", "1", "yes")
    if isinstance(default, int) and re.fullmatch(r"-?[0-9]+", text):
        return int(text)
    return text


def _reason(error: ValueError) -> str:
    if isinstance(error, ValidationError):
        return _say(error.errors(include_input=False)[0], {}).partition(": ")[2]
    if isinstance(error, json.JSONDecodeError):
        return "wants JSON"
    return str(error)


def _say(problem: Any, names: dict[str, str]) -> str:
    """Give one problem as `path.in.file: what is wrong`, by the names that the file uses."""
    place = ""
    for step in problem["loc"]:
        place += (
            f"[{step}]" if isinstance(step, int) else f".{step}" if place else names.get(step, step)
        )
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "extra_forbidden":
        message = "no such key"
    return f"{place}: {message}" if place else message


def _default_state_dir() -> str:
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(home, "brainsurgeon")
