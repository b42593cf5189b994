"""Problems of a configuration, each as `key: expected value, but given value`."""

import json
import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

from brainsurgeon.config.settings import ALIASES, Settings
from brainsurgeon.config.tables import (
    ArchiveTable,
    BudgetTable,
    ProfileTable,
    RootTable,
    RuleTable,
    SignalTable,
    UseTable,
)
from brainsurgeon.config.values import KEY, InvalidValueError, SettingsTable, closest

MOST = 120
"""Characters of a value that a problem quotes."""
_TABLES: dict[str | int, type[SettingsTable]] = {
    "roots": RootTable, "rules": RuleTable, "use": UseTable, "profiles": ProfileTable,
    "budget": BudgetTable, "archive": ArchiveTable, "signals": SignalTable,
}  # fmt: skip
_WANTED = {
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a table",
    "string_type": "a word",
    "model_type": "a table",
    "model_attributes_type": "a table",
}
"""The expected values, by pydantic's names of errors."""


def problem_text(error: Any, names: dict[str, str]) -> str:
    """Return one error of pydantic as a problem; `names` has the aliases that the file uses."""
    place = ""
    for step in error["loc"]:
        if isinstance(step, int):
            place += f"[{step}]"
        elif step != "[key]":
            place += f".{step}" if place else names.get(step, step)
    kind = error["type"]
    if kind == "extra_forbidden":  # the value may be a secret of another program
        return f"{place}: no such key; {_known_keys(error['loc'])}"
    if kind == "missing":
        return f"{place}: is missing"
    wanted, meant = _wanted(error)
    hint = f"; did you mean {meant}?" if meant else ""
    return f"{place}: {wanted}, but {quoted(error['input'])} is given{hint}"


def _wanted(error: Any) -> tuple[str, str | None]:
    context = error.get("ctx", {})
    if error["type"] == "literal_error":
        words = context["expected"].replace("'", "")
        value = error["input"]
        listed = words.replace(" or ", ", ").split(", ")
        return f"wants {words}", closest(value.lower(), listed) if isinstance(value, str) else None
    why = context.get("error")
    if isinstance(why, InvalidValueError):
        return str(why), why.meant
    return f"wants {_WANTED.get(error['type'], error['msg'])}", None


def _known_keys(place: tuple[str | int, ...]) -> str:
    """Return a hint to the key that was meant, or to all keys of the table."""
    above = [step for step in place[:-1] if step in _TABLES]
    table = _TABLES[above[-1]] if above else Settings
    meant = closest(str(place[-1]), [*table.model_fields, *ALIASES])
    return f"did you mean {meant}?" if meant else f"there are {', '.join(table.model_fields)}"


def quoted(value: Any) -> str:
    """Return a value as JSON, shortened."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MOST else text[: MOST - 3] + "..."


def contradictions(settings: Settings, table: dict[str, Any]) -> Iterator[str]:
    """Yield the problems of values that contradict each other; `table` is the file as given."""
    yield from _misplaced(settings, table)
    archives = {"archive": settings.archive}
    for name, profile in settings.profiles.items():
        if "command" in profile.archive.model_fields_set:
            archives[f"profiles.{name}.archive"] = settings.archive.under(profile.archive)
        if {"rules", "trigger_types"} <= profile.model_fields_set and profile.rules:
            yield f"profiles.{name}: wants rules or trigger_types, but a table of both is given"
    for place, archive in archives.items():
        if archive.command and not archive.enabled:
            yield f"{place}.command: wants archive.enabled = true beside it, but false is given"
    yield from _unusable(settings)


def _misplaced(settings: Settings, table: dict[str, Any]) -> Iterator[str]:
    """Yield each root that is given twice, and each root that overlaps the state directory."""
    places = [os.path.realpath(root.path) for root in settings.root_directories()]
    for number, place in enumerate(places):
        first = places.index(place)
        if first < number:
            yield (
                f"roots[{number}].path: wants another directory than roots[{first}], "
                f"but {quoted(table['roots'][number]['path'])} is given"
            )
    state = os.path.realpath(settings.state_dir)
    for place in dict.fromkeys(places):
        if os.path.commonpath([state, place]) in (state, place):
            yield (
                "state_dir: wants a directory outside every root, but "
                f"{quoted(settings.state_dir)} is given and {quoted(place)} is a root"
            )


def _unusable(settings: Settings) -> Iterator[str]:
    """Yield each `[[use]]` that names no profile or can never match."""
    known = settings.profile_names()
    earlier: list[str] = []
    for number, use in enumerate(settings.use):
        if use.profile not in known:
            meant = closest(use.profile, known)
            hint = f"did you mean {meant}?" if meant else f"there are {', '.join(known)}"
            name = json.dumps(use.profile)
            yield f"use[{number}].profile: wants a profile, but {name} is given; {hint}"
        covering = [
            next((before for before in earlier if _covers(before, glob)), None)
            for glob in use.sessions
        ]
        if all(covering):
            takes = ", ".join(map(json.dumps, dict.fromkeys(covering)))
            listed = json.dumps(list(use.sessions), ensure_ascii=False)
            yield (
                f"use[{number}].sessions: can never match: wants others than {takes} before it "
                f"takes, but {listed} is given"
            )
        earlier += use.sessions


def _covers(earlier: str, later: str) -> bool:
    """Check whether a glob certainly matches everything that a later one matches."""
    if earlier == later:
        return True
    if any(mark in earlier for mark in "?["):
        return False
    if later.startswith(KEY) and not earlier.startswith(KEY):
        return set(earlier) <= {"*", "/"} and earlier.count("/") <= 1
    return earlier.startswith(KEY) == later.startswith(KEY) and fnmatchcase(later, earlier)
