"""The models of the tables within the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from brainsurgeon.config.values import (
    Command,
    Count,
    Dollars,
    Names,
    Positive,
    RootPath,
    SessionGlobs,
    SettingsTable,
    Switch,
    Threshold,
    key,
    wants,
)
from brainsurgeon.model.entries import Kind
from brainsurgeon.model.turns import LAST_STEP, TIERS, Tier

if TYPE_CHECKING:
    from brainsurgeon.model.rules import ArchiveRules, Price

MaxStep = Annotated[
    int, Field(strict=True, ge=0, le=LAST_STEP), wants(f"a whole number from 0 to {LAST_STEP}")
]


def given(table: SettingsTable) -> dict[str, Any]:
    """Return the keys that a table sets, with their values."""
    return {name: getattr(table, name) for name in table.model_fields_set}


class RootTable(SettingsTable):
    """A directory in which sessions are searched."""

    path: RootPath = Field(description="the directory; `~` is your home directory")
    format: Literal["auto", "openclaw", "claude-code", "codex", "generic"] = key(
        "auto",
        "format of its files; `auto` detects it by their first lines, `codex` files are only read",
    )
    exclusive: Switch = key(
        False,
        "you guarantee that nothing else writes there; for file systems without reliable leases",
    )


class RuleTable(SettingsTable):
    """A rule of the long form of `trigger_types`."""

    kind: Kind = Field(description="kind of the values to extract")
    tool: Names = key((), "globs of tool names; none: every tool")
    min_value_length: Count | None = key(None, "like the key `min_value_length`, for this rule")
    keep_recent: Count | None = key(None, "like the key `keep_recent`, for this rule")


class ArchiveTable(SettingsTable):
    """Which finished turns are archived, and how they are summarised."""

    enabled: Switch = key(
        False, "archive finished turns: a summary in the last answer replaces them"
    )
    token_threshold: Count = key(8000, "archive a turn of more tokens than this")
    tool_call_threshold: Count = key(5, "archive a turn of at least this many tool calls")
    keep_turns: Count = key(2, "number of latest turns that are never archived")
    command: Command = key((), "your program that writes the summary instead")

    def decision_rules(self, *, enabled: bool, keep_recent: int) -> ArchiveRules:
        from brainsurgeon.model.rules import ArchiveRules  # noqa: PLC0415  `show` archives nothing

        return ArchiveRules(
            enabled and self.enabled, self.token_threshold, self.tool_call_threshold,
            self.keep_turns, keep_recent,
        )  # fmt: skip

    def under(self, profile: ArchiveTable) -> ArchiveTable:
        return self.model_copy(update=given(profile))


class PriceTable(SettingsTable):
    """Prices of a million input tokens of a model, in dollars."""

    input: Dollars = Field(description="tokens that are neither read from nor written to a cache")
    cache_read: Dollars = Field(description="tokens that are read from the cache")
    cache_write: Dollars = Field(description="tokens that are written to the cache")

    def decision_price(self) -> Price:
        from brainsurgeon.model.rules import Price  # noqa: PLC0415  `show` needs no prices

        read, write = self.cache_read / self.input, self.cache_write / self.input
        return Price(read, write, write, self.input)


class BudgetTable(SettingsTable):
    """How full a context window may become before a scan extracts more."""

    enabled: Switch = key(False, "extract more from a session whose context is too full")
    max_step: MaxStep = key(3, "highest step of relief that a scan may take, 0 to 6")
    threshold: Threshold = key(
        None,
        "share of the window above which a session is too full, or a table of shares for "
        "`frontier`, `mid` and `small` models; not set: 0.85, 0.65 and 0.35, for others 0.75",
    )
    max_messages: Count = key(
        0,
        "most messages that are sent: older turns are archived or, if that is impossible, their "
        "values are extracted; 0: off",
    )

    def by_tier(self) -> dict[Tier, float]:
        """Return the thresholds that are set for tiers; a single one is set for all of them."""
        if isinstance(self.threshold, float):
            return dict.fromkeys(TIERS, self.threshold)
        return self.threshold or {}


class SignalTable(SettingsTable):
    """Signals about a running session."""

    repeat_threshold: Count = key(
        5, "report a tool call that is repeated this many times in a row as a signal; 0: off"
    )
    on_signal: Command = key(
        (), "your program that reads each signal as JSON on its standard input"
    )


class Profiled(SettingsTable):
    """The settings that a profile may change for some sessions."""

    keep_recent: Count = key(3, "number of recent messages from which nothing is extracted")
    keep_recent_tokens: Count = key(
        0, "number of the newest tokens from whose messages nothing is extracted; 0: off"
    )
    superseded: Switch = key(
        False,
        "also extract a recent tool result that a later one supersedes, except in the last two "
        "messages",
    )
    min_value_length: Count = key(500, "extract values of more characters than this")
    trigger_types: tuple[Kind, ...] = key(
        ("thinking", "tool_result"),
        "kinds of values to extract, of `thinking`, `tool_call`, `tool_result`, "
        "`assistant`, `user`, `system`, `custom`",
    )
    rules: tuple[RuleTable, ...] = key(
        (),
        "the long form of `trigger_types`: `[[rules]]` with `kind`, `tool` (globs), "
        "`min_value_length`, `keep_recent`",
    )
    signed_thinking: Literal["take", "defer"] = key(
        "take",
        "signed thinking that an extraction invalidates: `take` also extracts it, "
        "`defer` leaves the session unchanged",
    )
    signed_models: Names = key(
        (),
        "globs of further models whose signed thinking an extraction invalidates; `!` excludes one",
    )
    when: Literal["pays", "cold", "always"] = key(
        "pays",
        "when to extract values that the provider may have cached: once that `pays`, once the "
        "cache is `cold`, or `always` at once",
    )
    windows: dict[str, Positive] = key(dict, "context windows in tokens, by globs of model ids")
    tiers: dict[str, Tier] = key(dict, "tiers of models, by parts of their ids")
    budget: BudgetTable = key(
        BudgetTable.model_construct,
        "how full a context window may become before a scan extracts more",
    )
    archive: ArchiveTable = key(
        ArchiveTable.model_construct,
        "which finished turns are archived, and how they are summarised",
    )


class ProfileTable(Profiled):
    """Settings under a name; keys that it does not set keep their values."""


class UseTable(SettingsTable):
    """Which sessions have a profile."""

    sessions: SessionGlobs = Field(
        description="globs of `agent/name`, or of the agent's session keys, as in `key:*:cron:*`"
    )
    profile: str = Field(description="name of a profile, yours or built in")
