"""TOML and environment to frozen settings: every problem at once, each with its place."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from brainsurgeon.config_archive import ArchiveTable
from brainsurgeon.config_glance import config_path, default_state_dir
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
    Table,
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
ALIASES = {"keep_restore_calls": "keep_purge_control_calls"}
REMEMBERED = ("last_run_at", "last_retention_run_at")
"""Keys in which the original kept what our store remembers."""
_SHOWN = 120
"""Characters of a value that a problem shows."""


class Settings(Table):
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
    archive: ArchiveTable = ArchiveTable()
    state_dir: AbsolutePath = ""
    log_level: LogLevel = "info"
    log_format: LogFormat = "auto"

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
        )  # fmt: skip

    def archive_rules(self) -> ArchiveRules:
        """Give what decides about turns, as plain values."""
        return self.archive.decision_rules(enabled=self.enabled, keep_recent=self.keep_recent)

    def rules_fingerprint(self) -> str:
        """Give what changes whenever a decision on an unchanged file could change."""
        from brainsurgeon.formats import FORMATS  # noqa: PLC0415  as above

        known = sorted((name, form.version) for name, form in FORMATS.items())
        where = self.exclude, self.min_session_bytes, self.databases
        archive = (self.archive_rules(),) if self.archive_rules().enabled else ()
        said = repr((self.decision_rules(), *where, known, *archive))
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
        problems += [_say(problem, names) for problem in error.errors()]
        raise ConfigError(source or "environment", problems) from None
    problems += [*settings.archive.problems(), *_misplaced(settings, table)]
    if problems:
        raise ConfigError(source or "environment", problems)
    return settings, warnings


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
    if key == "archive":
        return json.loads(text)
    if key in ("roots", "rules"):
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
        return _say(error.errors()[0], {}).partition(": ")[2]
    wanted = "wants JSON" if isinstance(error, json.JSONDecodeError) else str(error)
    return f"{wanted}, but {_shown(text)} is given"


_PLAIN = {
    "tuple_type": "wants a list",
    "model_type": "wants a table",
    "model_attributes_type": "wants a table",
}
"""What pydantic's own problems are in words of a configuration file."""


def _say(problem: Any, names: dict[str, str]) -> str:
    """Give one problem as `path.in.file: what is wrong`, by the names that the file uses."""
    place = ""
    for step in problem["loc"]:
        place += (
            f"[{step}]" if isinstance(step, int) else f".{step}" if place else names.get(step, step)
        )
    kind, why = problem["type"], problem.get("ctx", {}).get("error")
    if kind == "extra_forbidden":  # its value may be anybody's secret
        return f"{place}: no such key; {_there_are(problem['loc'])}"
    if kind == "missing":
        return f"{place}: is missing"
    wanted = str(why) if why else _PLAIN.get(kind, problem["msg"])
    meant = f"; did you mean {why.meant}?" if isinstance(why, UnwantedError) and why.meant else ""
    return f"{place}: {wanted}, but {_shown(problem['input'])} is given{meant}"


def _there_are(place: tuple[str | int, ...]) -> str:
    """Name the key that was meant, else those that there are at a place."""
    tables: dict[str | int, type[Table]] = {
        "roots": RootTable, "rules": RuleTable, "archive": ArchiveTable,
    }  # fmt: skip
    table: type[Table] = tables.get(place[0], Settings) if len(place) > 1 else Settings
    meant = nearest(str(place[-1]), [*table.model_fields, *ALIASES])
    return f"did you mean {meant}?" if meant else f"there are {', '.join(table.model_fields)}"


def _shown(value: Any) -> str:
    """Write a value as it stands in a file, shortened."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _remembered(name: str) -> str:
    return f"{name}: is kept in the store and shown by `brainsurgeon status`; ignored"


def _misplaced(settings: Settings, table: dict[str, Any]) -> list[str]:
    """Say which directories lie where they may not: a root twice, the store among sessions."""
    problems = []
    places = [os.path.realpath(root.path) for root in settings.root_directories()]
    for number, place in enumerate(places):
        first = places.index(place)
        if first < number:
            given = _shown(table["roots"][number]["path"])
            problems.append(
                f"roots[{number}].path: wants another directory than roots[{first}], "
                f"but {given} is given"
            )
    state = os.path.realpath(settings.state_dir)
    around = (
        "state_dir: wants a directory outside every root, but "
        f"{_shown(settings.state_dir)} is given and {_shown(place)} is a root"
        for place in dict.fromkeys(places)
        if os.path.commonpath([state, place]) in (state, place)
    )
    return [*problems, *around]
