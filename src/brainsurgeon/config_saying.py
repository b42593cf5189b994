"""Say what is wrong with a configuration, in the words of its file."""

from __future__ import annotations

import json
from typing import Any

from brainsurgeon.config_archive import ArchiveTable
from brainsurgeon.config_budget import BudgetTable, ProfileTable, UseTable
from brainsurgeon.config_values import RootTable, RuleTable, Table, UnwantedError, nearest

ALIASES = {"keep_restore_calls": "keep_purge_control_calls"}
MOST = 120
"""Characters of a value that a problem shows."""
_PLAIN = {
    "tuple_type": "wants a list",
    "dict_type": "wants a table",
    "string_type": "wants a word",
    "model_type": "wants a table",
    "model_attributes_type": "wants a table",
}
"""What pydantic's own problems are in words of a configuration file."""


def say(settings: type[Table], problem: Any, names: dict[str, str]) -> str:
    """Give one problem as `path.in.file: what is wrong`, by the names that the file uses."""
    place = ""
    for step in problem["loc"]:
        place += (
            f"[{step}]" if isinstance(step, int) else f".{step}" if place else names.get(step, step)
        )
    kind, why = problem["type"], problem.get("ctx", {}).get("error")
    if kind == "extra_forbidden":  # its value may be anybody's secret
        return f"{place}: no such key; {_there_are(settings, problem['loc'])}"
    if kind == "missing":
        return f"{place}: is missing"
    wanted = str(why) if why else _PLAIN.get(kind, problem["msg"])
    meant = f"; did you mean {why.meant}?" if isinstance(why, UnwantedError) and why.meant else ""
    return f"{place}: {wanted}, but {shown(problem['input'])} is given{meant}"


_TABLES: dict[str | int, type[Table]] = {
    "roots": RootTable, "rules": RuleTable, "use": UseTable, "profiles": ProfileTable,
    "budget": BudgetTable, "archive": ArchiveTable,
}  # fmt: skip
"""What stands behind each key that is a table, or several."""


def _there_are(settings: type[Table], place: tuple[str | int, ...]) -> str:
    """Name the key that was meant, else those that there are at a place."""
    above = [step for step in place[:-1] if step in _TABLES]
    table = _TABLES[above[-1]] if above else settings
    meant = nearest(str(place[-1]), [*table.model_fields, *ALIASES])
    return f"did you mean {meant}?" if meant else f"there are {', '.join(table.model_fields)}"


def shown(value: Any) -> str:
    """Write a value as it stands in a file, shortened."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MOST else text[: MOST - 3] + "..."
