"""TOML and environment to frozen settings: every problem at once, each with its place."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from brainsurgeon.config_budget import Profiled, profile_problems
from brainsurgeon.config_saying import ALIASES, say, shown
from brainsurgeon.config_values import (
    AbsolutePath,
    Count,
    Cron,
    Databases,
    Duration,
    Interval,
    LogFormat,
    LogLevel,
    Names,
    OneKind,
    Pattern,
    Reclaim,
    RootTable,
    RuleTable,
    Sealed,
    Seconds,
    Size,
    Switch,
    UnwantedError,
    nearest,
)
from brainsurgeon.errors import ConfigError
from brainsurgeon.hosts import openclaw
from brainsurgeon.model.sessions import Root

if TYPE_CHECKING:
    from brainsurgeon.decide.rules import Rules
    from brainsurgeon.decide.turns import ArchiveRules

PREFIX = "BRAINSURGEON_"
REMEMBERED = ("last_run_at", "last_retention_run_at")
"""Keys in which the original kept what our store remembers."""
TABLES = ("archive", "budget", "windows", "tiers", "profiles")
"""Keys behind which one table stands, which the environment gives as JSON."""


class Settings(Profiled):
    """Everything that can be configured; the names and defaults are those of the README."""

    enabled: Switch = True
    roots: tuple[RootTable, ...] = ()
    keep_recent: Count = 3
    min_value_length: Count = 500
    trigger_types: tuple[OneKind, ...] = ("thinking", "tool_result")
    rules: tuple[RuleTable, ...] = ()
    dead_kinds: tuple[OneKind, ...] = ()
    sealed: Sealed = "take"
    sealed_models: Names = ()
    exclude: tuple[Pattern, ...] = ()
    min_session_bytes: Size = 0
    min_reclaim: Reclaim = 0.01
    scan_interval_seconds: Interval = 30
    auto_cron: Cron = None
    retention: Duration = 86_400
    retention_standing: Duration = 30 * 86_400
    retention_cron: Cron = "0 */6 * * *"
    keep_after_restore_seconds: Seconds = 600
    keep_purge_control_calls: Switch = False
    watch: Switch = True
    quiet_seconds: Seconds = 30
    abandoned_after_seconds: Seconds = 3600
    databases: Databases = "auto"
    state_dir: AbsolutePath = ""
    log_level: LogLevel = "info"
    log_format: LogFormat = "auto"
    metrics_file: AbsolutePath | None = None

    def root_directories(self) -> list[Root]:
        """Give the roots to walk; without any configured, OpenClaw's agents of this user."""
        looks = self.databases != "off"
        if not self.roots:
            return [Root(openclaw.agents_directory(), required=False, databases=looks)]
        return [
            Root(one.path, one.format, exclusive=one.exclusive, databases=looks)
            for one in self.roots
        ]

    def decision_rules(self) -> Rules:
        """Give what the decision needs, as plain values."""
        from brainsurgeon.decide.rules import Rule, Rules  # noqa: PLC0415  a server decides nothing

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
            min_value_length=self.min_value_length,
            dead_kinds=self.dead_kinds,
            sealed=self.sealed,
            sealed_models=self.sealed_models,
            enabled=self.enabled,
            keep_after_restore=float(self.keep_after_restore_seconds),
            exclude_tools=tuple(
                pattern.removeprefix("tool:") for pattern in self.exclude
                if pattern.startswith("tool:")
            ),
            min_reclaim_share=share,
            min_reclaim_bytes=0 if share else int(self.min_reclaim),
            max_messages=self.budget.max_messages,
        )  # fmt: skip

    def archive_rules(self) -> ArchiveRules:
        """Give what decides about turns, as plain values."""
        return self.archive.decision_rules(enabled=self.enabled, keep_recent=self.keep_recent)

    def rules_fingerprint(self) -> str:
        """Give what changes whenever a decision on an unchanged file could change."""
        from brainsurgeon.formats import FORMATS  # noqa: PLC0415  as above

        known = sorted((name, form.version) for name, form in FORMATS.items())
        where = self.exclude, self.min_session_bytes, self.databases
        chosen = self.budget_rules(), self.profiles, self.use
        # What an archive is made by counts only where one may be made.
        archive = (self.archive_rules(),) if self.archive.enabled or self.use else ()
        said = repr((self.decision_rules(), *where, known, *chosen, *archive))
        return hashlib.blake2b(said.encode(), digest_size=12).hexdigest()


def load(path: str | None = None) -> tuple[Settings, list[str]]:
    """Load the settings and the warnings about them, or raise ConfigError with every problem."""
    source, table, problems = _read_file(path)
    warnings = _override(table, problems)
    warnings += [_remembered(key) for key in REMEMBERED if table.pop(key, None) is not None]
    names = {}
    for alias, key in ALIASES.items():
        if alias in table:
            names[key] = alias
            table.setdefault(key, table.pop(alias))
    table.setdefault("state_dir", default_state_dir())
    if table.get("rules") and "trigger_types" in table:
        problems.append("rules and trigger_types: give one of the two")
    try:
        settings = Settings.model_validate(table)
    except ValidationError as error:
        problems += [say(Settings, problem, names) for problem in error.errors()]
        raise ConfigError(source or "environment", problems) from None
    problems += [*_misplaced(settings, table), *profile_problems(settings)]
    if problems:
        raise ConfigError(source or "environment", problems)
    return settings, warnings


def config_path(given: str | None) -> str | None:
    """Return the configuration file: the given one, or the first that exists of three places."""
    if given or os.environ.get("BRAINSURGEON_CONFIG"):
        return given or os.environ["BRAINSURGEON_CONFIG"]
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    places = (os.path.join(home, "brainsurgeon/config.toml"), "/etc/brainsurgeon/config.toml")
    return next((place for place in places if os.path.exists(place)), None)


def default_state_dir() -> str:
    """Return the state directory of a user who has configured none."""
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.path.join(home, "brainsurgeon")


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
        if key in REMEMBERED:
            warnings.append(_remembered(variable))
            continue
        if key not in Settings.model_fields:
            meant = nearest(key, Settings.model_fields)
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
    default = Settings.model_fields[key].default
    if key in TABLES:
        return json.loads(text)
    if key in ("roots", "rules", "use"):
        if key == "roots" and not text.lstrip().startswith(("[", "{")):
            return [{"path": path.strip()} for path in text.split(",") if path.strip()]
        value = json.loads(text)
        return value if isinstance(value, list) else [value]
    if isinstance(default, tuple):
        return [word.strip() for word in text.split(",") if word.strip()]
    if isinstance(default, bool):
        if text.lower() not in ("true", "false", "1", "0", "yes", "no"):
            raise UnwantedError("true or false")
        return text.lower() in ("true", "1", "yes")
    if isinstance(default, int) and re.fullmatch(r"-?[0-9]+", text):
        return int(text)
    return text


def _reason(error: ValueError, text: str) -> str:
    if isinstance(error, ValidationError):
        return say(Settings, error.errors()[0], {}).partition(": ")[2]
    wanted = "wants JSON" if isinstance(error, json.JSONDecodeError) else str(error)
    return f"{wanted}, but {shown(text)} is given"


def _remembered(name: str) -> str:
    return f"{name}: is kept in the store and shown by `brainsurgeon status`; ignored"


def _misplaced(settings: Settings, table: dict[str, Any]) -> list[str]:
    """Say which directories lie where they may not: a root twice, the store among sessions."""
    problems = []
    places = [os.path.realpath(root.path) for root in settings.root_directories()]
    for number, place in enumerate(places):
        first = places.index(place)
        if first < number:
            given = shown(table["roots"][number]["path"])
            problems.append(
                f"roots[{number}].path: wants another directory than roots[{first}], "
                f"but {given} is given"
            )
    state = os.path.realpath(settings.state_dir)
    around = (
        "state_dir: wants a directory outside every root, but "
        f"{shown(settings.state_dir)} is given and {shown(place)} is a root"
        for place in dict.fromkeys(places)
        if os.path.commonpath([state, place]) in (state, place)
    )
    return [*problems, *around]
