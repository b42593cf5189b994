"""The tables of the configuration that say how full a session may be, and for which sessions."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BeforeValidator, Field, PrivateAttr

from brainsurgeon.config_archive import ArchiveTable
from brainsurgeon.config_values import (
    Count,
    Names,
    OneKind,
    RuleTable,
    Sealed,
    Switch,
    Table,
    UnwantedError,
    nearest,
    one_of,
    whole_number,
)
from brainsurgeon.model.loads import LAST_STEP, TIERS, Tier

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from brainsurgeon.decide.budget import Budget

KEY = "key:"
"""How a glob begins that is compared with the key by which an agent names a session."""


def _share(value: Any) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and 0 < value <= 1:
        return float(value)
    raise UnwantedError("a share of the window, above 0 and up to 1 (0.75)")


def _sessions(value: Any) -> Any:
    listed = [value] if isinstance(value, str) else value
    if isinstance(listed, list | tuple) and listed:
        return listed
    raise UnwantedError('at least one glob of agent/name, or of key:<session key> ("main/*")')


def _session(value: Any) -> str:
    """Read a glob of sessions; one that fits no `agent/name` whatever it is would never match."""
    said = isinstance(value, str) and value.removeprefix(KEY) != ""
    if said and (value.startswith(KEY) or any(mark in value for mark in "/*?[")):
        return str(value)
    raise UnwantedError('a glob of agent/name or of key:<session key> ("main/*"): no other matches')


Share = Annotated[float, BeforeValidator(_share)]
TierName = Annotated[Tier, BeforeValidator(one_of(*TIERS))]
Tokens = Annotated[int, BeforeValidator(whole_number(1))]
Globs = Annotated[tuple[Annotated[str, BeforeValidator(_session)], ...], BeforeValidator(_sessions)]


class BudgetTable(Table):
    """When a session is too full, and how far a scan may go to relieve it."""

    enabled: Switch = False
    max_step: Annotated[int, BeforeValidator(whole_number(0, LAST_STEP))] = 3
    threshold: Share = 0.75
    threshold_by_tier: dict[TierName, Share] = Field(default_factory=dict)
    max_messages: Count = 0


class ProfileTable(Table):
    """Settings under a name; what it leaves out is as at the top."""

    keep_recent: Count = 3
    min_value_length: Count = 500
    trigger_types: tuple[OneKind, ...] = ()
    rules: tuple[RuleTable, ...] = ()
    dead_kinds: tuple[OneKind, ...] = ()
    sealed: Sealed = "take"
    sealed_models: Names = ()
    archive: ArchiveTable = ArchiveTable()
    budget: BudgetTable = BudgetTable()
    windows: dict[str, Tokens] = Field(default_factory=dict)
    tiers: dict[str, TierName] = Field(default_factory=dict)


class UseTable(Table):
    """Which sessions have a profile."""

    sessions: Globs
    profile: str


BUILT_IN = {
    **{
        name: ProfileTable.model_validate({"budget": {"threshold": threshold}})
        for name, threshold in (
            ("debug", 0.65), ("implement", 0.70), ("chat", 0.85), ("research", 0.65),
            ("review", 0.75),
        )
    },
    "ephemeral": ProfileTable.model_validate(
        {"budget": {"max_messages": 50}, "archive": {"enabled": True}}
    ),
}  # fmt: skip
"""The profiles that there are without any configured."""


class Profiled(Table):
    """The part of the settings that may differ from session to session."""

    archive: ArchiveTable = ArchiveTable()
    budget: BudgetTable = BudgetTable()
    windows: dict[str, Tokens] = Field(default_factory=dict)
    tiers: dict[str, TierName] = Field(default_factory=dict)
    profiles: dict[str, ProfileTable] = Field(default_factory=dict)
    use: tuple[UseTable, ...] = ()
    _threshold: float | None = PrivateAttr(None)
    _under: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def judged_whole(self) -> bool:
        """Whether more than single entries decides about a session: how full it is, its turns."""
        return self.archive.enabled or self.budget.enabled or self.budget.max_messages > 0

    @property
    def asks_for_keys(self) -> bool:
        """Whether some profile is chosen by the key of a session."""
        return any(glob.startswith(KEY) for one in self.use for glob in one.sessions)

    def profile_of(self, titles: Iterable[str], keys: Iterable[str]) -> str | None:
        """Name the profile of a session by its titles and keys: the first use that fits."""
        named = {False: list(titles), True: [KEY + key for key in keys]}
        for one in self.use:
            pairs = ((glob, name) for glob in one.sessions for name in named[glob.startswith(KEY)])
            if any(fnmatchcase(name, glob) for glob, name in pairs):
                return one.profile
        return None

    def under(self, profile: str | None) -> Self:
        """Give the settings that hold under a profile."""
        if profile is None:
            return self
        if profile not in self._under:
            self._under[profile] = self._with(self.profiles.get(profile) or BUILT_IN[profile])
        return self._under[profile]  # type: ignore[no-any-return]

    def _with(self, profile: ProfileTable) -> Self:
        said = {name: getattr(profile, name) for name in profile.model_fields_set}
        if "trigger_types" in said:
            said.setdefault("rules", ())
        budget = said.pop("budget", BudgetTable())
        inner = {name: getattr(budget, name) for name in budget.model_fields_set}
        threshold = inner.pop("threshold", None)
        mine = self.budget.threshold_by_tier | inner.pop("threshold_by_tier", {})
        said["budget"] = self.budget.model_copy(update={**inner, "threshold_by_tier": mine})
        if "archive" in said:
            said["archive"] = self.archive.under(said["archive"])
        for name in ("windows", "tiers"):
            said[name] = said.get(name, {}) | {
                key: value
                for key, value in getattr(self, name).items()
                if key not in said.get(name, {})
            }
        chosen = self.model_copy(update=said)
        chosen._threshold = threshold  # noqa: SLF001  a copy of our own
        chosen._under = {}  # noqa: SLF001
        return chosen

    def budget_rules(self) -> Budget:
        """Give what decides how full a session may be, as plain values."""
        from brainsurgeon.decide.budget import Budget  # noqa: PLC0415  a server decides nothing

        return Budget(
            self.budget.enabled, self.budget.max_step, self.budget.max_messages,
            self.budget.threshold, self._threshold, tuple(self.budget.threshold_by_tier.items()),
            tuple(self.windows.items()), tuple(self.tiers.items()),
        )  # fmt: skip

    def all_profiles(self) -> dict[str, ProfileTable]:
        """Give every profile that a session may have."""
        return {**BUILT_IN, **self.profiles}


def profile_problems(settings: Profiled) -> Iterator[str]:
    """Say which uses name no profile or can never match, and what profiles say twice."""
    known = settings.all_profiles()
    yield from settings.archive.problems()
    for name, table in settings.profiles.items():
        if "command" in table.archive.model_fields_set:
            chosen = settings.archive.under(table.archive)
            yield from (f"profiles.{name}.{problem}" for problem in chosen.problems())
        if {"rules", "trigger_types"} <= table.model_fields_set and table.rules:
            yield f"profiles.{name}: wants rules or trigger_types, but a table of both is given"
    earlier: list[str] = []
    for number, one in enumerate(settings.use):
        if one.profile not in known:
            meant = nearest(one.profile, known)
            hint = f"did you mean {meant}?" if meant else f"there are {', '.join(known)}"
            given = json.dumps(one.profile)
            yield f"use[{number}].profile: wants a profile, but {given} is given; {hint}"
        covering = [next((two for two in earlier if _covers(two, glob)), None)
                    for glob in one.sessions]  # fmt: skip
        if all(covering):
            takes = ", ".join(json.dumps(two) for two in dict.fromkeys(covering))
            given = json.dumps(list(one.sessions), ensure_ascii=False)
            yield (
                f"use[{number}].sessions: can never match: wants others than {takes} before it "
                f"takes, but {given} is given"
            )
        earlier += one.sessions


def _covers(earlier: str, later: str) -> bool:
    """Tell whether a glob certainly takes whatever a later one would."""
    if earlier == later:
        return True
    if any(mark in earlier for mark in "?["):
        return False
    if later.startswith(KEY) and not earlier.startswith(KEY):
        return set(earlier) <= {"*", "/"} and earlier.count("/") <= 1
    return earlier.startswith(KEY) == later.startswith(KEY) and fnmatchcase(later, earlier)
