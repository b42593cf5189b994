"""The tables of the configuration, and the rules made from them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from msgspec import Struct
from pydantic import Field, PrivateAttr, model_validator

from brainsurgeon.config.values import (
    KEY,
    AbsolutePath,
    Command,
    Count,
    Cron,
    Dollars,
    Duration,
    Interval,
    Names,
    Pattern,
    Positive,
    Reclaim,
    RootPath,
    SessionGlobs,
    SettingsTable,
    Size,
    Switch,
    Threshold,
    Wait,
    key,
    wants,
)
from brainsurgeon.model.entries import Kind
from brainsurgeon.model.session_files import Root
from brainsurgeon.model.turns import LAST_STEP, SIGNALS, TIERS, Signal, Tier

if TYPE_CHECKING:  # not every command needs these: methods import them
    from brainsurgeon.model.providers import Price
    from brainsurgeon.model.rules import ArchiveRules, Budget, Rule, Rules, Terms


MaxStep = Annotated[
    int, Field(strict=True, ge=0, le=LAST_STEP), wants(f"a whole number from 0 to {LAST_STEP}")
]


def keys_set(table: SettingsTable) -> dict[str, Any]:
    return {name: getattr(table, name) for name in table.model_fields_set}


def _shared(record: type[Struct], table: SettingsTable) -> dict[str, Any]:
    names = set(record.__struct_fields__).intersection(type(table).model_fields)
    return {name: getattr(table, name) for name in names}


class RootTable(SettingsTable):
    path: RootPath = Field(description="the directory; `~` is your home directory")
    format: str = key(
        "auto",
        "format of the files: `auto` detects it by their first lines; `openclaw` (also for pi), "
        "`claude-code`, `codex`, `copilot`, `gemini`, a described format, or `generic` for any "
        "other",
    )
    exclusive: Switch = key(
        False, "you promise that no other program writes there; for file systems without leases"
    )
    shrink: Switch = key(
        False,
        "files into which Codex stores offsets become smaller, too, and the offsets are changed",
    )


class RuleTable(SettingsTable):
    kind: Kind = Field(description="kind of the values to extract")
    tool: Names = key((), "globs of tool names; an empty list: every tool")
    min_value_length: Count | None = key(None, "like the key `min_value_length`, for this rule")
    keep_recent: Count | None = key(None, "like the key `keep_recent`, for this rule")


class ArchiveTable(SettingsTable):
    enabled: Switch = key(
        False,
        "replace the last answer of finished turns with a summary; the entries between prompt and "
        "answer are shortened, or no longer sent",
    )
    token_threshold: Count = key(8000, "archive turns of more tokens than this")
    tool_call_threshold: Count = key(5, "archive turns with at least this many tool calls")
    keep_turns: Count = key(2, "number of newest turns that are not archived")
    command: Command = key((), "your program that writes the summaries")


class PriceTable(SettingsTable):
    input: Dollars = Field(description="tokens that are neither read from nor written to a cache")
    cache_read: Dollars = Field(description="tokens that are read from the cache")
    cache_write: Dollars = Field(description="tokens that are written to the cache")
    output: Dollars = Field(description="tokens of answers")

    def decision_price(self) -> Price:
        from brainsurgeon.model.providers import Price  # noqa: PLC0415

        read, write = self.cache_read / self.input, self.cache_write / self.input
        return Price(read, write, write, self.input, self.output / self.input)


class BudgetTable(SettingsTable):
    enabled: Switch = key(False, "scans extract more from sessions that are too full")
    max_step: MaxStep = key(3, "highest step of relief that a scan takes, 0 to 7")
    threshold: Threshold = key(
        None,
        "share of the window above which a session is too full: one number, or a table for "
        "`frontier`, `mid` and `small` models",
    )
    max_messages: Count = key(
        0,
        "number of newest messages that may be sent in full: older ones are archived, or all their "
        "values are extracted; 0: no limit",
    )

    def by_tier(self) -> dict[Tier | None, float]:  # None: unknown models
        if isinstance(self.threshold, float):
            return dict.fromkeys((*TIERS, None), self.threshold)
        return dict[Tier | None, float]((self.threshold or {}).items())


class SignalTable(SettingsTable):
    repeat_threshold: Count = key(
        5, "report a tool call that is made this many times in a row; 0: off"
    )
    max_turn_cost_usd: Dollars | None = key(None, "report a turn that has cost this many dollars")
    max_session_cost_usd: Dollars | None = key(
        None, "report a session that has cost this many dollars"
    )
    stop_prompts: Switch = key(
        False,
        "the plugin of Claude Code refuses further prompts in a session that has cost "
        "`max_session_cost_usd`",
    )
    off: tuple[Signal, ...] = key((), f"signals that are not reported: {', '.join(SIGNALS)}")
    on_signal: Command = key((), "your program that reads each signal as JSON on standard input")


class ExtractionSettings(SettingsTable):
    keep_recent: Count = key(3, "number of newest messages from which nothing is extracted")
    superseded: Switch = key(
        False, "also extract values that a later entry supersedes, and arguments of failed calls"
    )
    min_value_length: Count = key(500, "extract only values of more characters than this")
    trigger_types: tuple[Kind, ...] = key(
        ("thinking", "tool_result"),
        "kinds of values to extract: `thinking`, `tool_call`, `tool_result`, `assistant`, `user`, "
        "`system`, `custom`",
    )
    rules: tuple[RuleTable, ...] = key(
        (),
        "the long form of `trigger_types`: `[[rules]]` with `kind`, `tool` (globs), "
        "`min_value_length`, `keep_recent`",
    )
    signed_models: Names = key(
        (),
        "globs of models whose thinking becomes invalid if anything before it changes, in addition "
        "to Claude 5.1 and GPT-6.2 and later; `!` excludes a model",
    )
    when: Literal["pays", "cold", "always"] = key(
        "pays",
        "when to extract values that are in the provider's prompt cache: once it `pays`, once the "
        "cache is `cold`, or `always` at once",
    )

    def rule_list(self) -> tuple[Rule, ...]:
        from brainsurgeon.model.rules import Rule  # noqa: PLC0415

        length, recent = self.min_value_length, self.keep_recent
        return tuple(
            Rule(
                table.kind, table.tool,
                length if table.min_value_length is None else table.min_value_length,
                recent if table.keep_recent is None else table.keep_recent,
            )
            for table in self.rules or [RuleTable(kind=kind) for kind in self.trigger_types]
        )  # fmt: skip


class Profiled(ExtractionSettings):
    windows: dict[str, Positive] = key(dict, "windows of models in tokens, by globs of model ids")
    request_bytes: dict[str, Size] = key(
        dict,
        "largest requests that providers accept in bytes, by globs of model ids; `*claude*` has "
        "32 MB unless you set it; 0: no limit",
    )
    tiers: dict[str, Tier] = key(
        dict, "tiers of models (`frontier`, `mid`, `small`), by parts of model ids"
    )
    budget: BudgetTable = key(
        BudgetTable.model_construct,
        "how full a context window may become before a scan extracts more",
    )
    archive: ArchiveTable = key(
        ArchiveTable.model_construct,
        "which finished turns are archived, and how they are summarised",
    )


class ProfileTable(Profiled):
    """A table `[profiles.NAME]`. Keys that it leaves out keep the values of the configuration."""


class UseTable(SettingsTable):
    sessions: SessionGlobs = Field(
        description="globs of `agent/name`, or of the agent's session keys, as in `key:*:cron:*`"
    )
    profile: str = Field(description="name of a profile, yours or built in")


ALIASES = {  # former names of keys
    "abandoned_after_seconds": "abandoned_after",
    "keep_after_restore_seconds": "keep_after_restore",
    "keep_restore_calls": "keep_purge_control_calls",
    "quiet_seconds": "quiet",
    "scan_interval_seconds": "scan_interval",
}
REMOVED = {  # former keys, and what applies without them
    "keep_recent_tokens": "keep_recent counts messages",
    "log_format": "the log is text on a terminal, else JSON lines",
    "min_session_bytes": "exclude and min_reclaim leave sessions as they are",
    "signed_thinking": "thinking that an extraction makes invalid is extracted, too",
}
BUILT_IN_PROFILES: dict[str, dict[str, Any]] = {
    "debug": {"budget": {"threshold": 0.65}},
    "implement": {"budget": {"threshold": 0.70}},
    "chat": {"budget": {"threshold": 0.85}},
    "research": {"budget": {"threshold": 0.65}},
    "review": {"budget": {"threshold": 0.75}},
    "ephemeral": {"budget": {"max_messages": 50}, "archive": {"enabled": True}},
    "lean": {"keep_recent": 1, "min_value_length": 150, "superseded": True},
}


class RewriteSettings(SettingsTable):
    enabled: Switch = key(True, "with `false`, scans extract nothing")
    exclude: tuple[Pattern, ...] = key(
        (),
        "extract nothing from these: globs of files or directories, `agent:<id>`, `session:<id>`, "
        "`tool:<name>`",
    )
    min_reclaim: Reclaim = key(
        0.01,
        'rewrite a session only if this saves at least a number of bytes (`"64KB"`) or a share of '
        'its last request (`"1%"`)',
    )
    quiet: Wait = key(30, "how long a session must be unchanged before it is rewritten")
    abandoned_after: Wait = key(
        3600, "how long an open turn must be unchanged to count as finished"
    )
    keep_after_restore: Wait = key(
        600, "how long a restored value is kept before it can be extracted again"
    )
    keep_purge_control_calls: Switch = key(
        False,
        "with `false`, a scan shortens the agent's restore calls and their results, once the "
        "values are back in their entries",
    )


class ScheduleSettings(SettingsTable):
    scan_interval: Interval = key(30, "time between the scans of the daemon")
    auto_cron: Cron = key(
        None, 'cron schedule of these scans, instead of `scan_interval`: `"*/2 * * * *"`'
    )
    watch: Switch = key(True, "the daemon also scans soon after a change")
    retention: Duration = key(86_400, "how long the store keeps a value whose placeholder is gone")
    retention_missing: Duration = key(
        30 * 86_400,
        "how long the store keeps a value whose session or entry is missing; if only "
        "`retention_standing` is set, that long",
    )
    retention_standing: Duration = key(
        None,
        "how long the store keeps a value whose placeholder is in a session, after the session's "
        "last activity",
    )
    retention_cron: Cron = key(
        "0 */6 * * *", "cron schedule on which the daemon deletes expired values"
    )

    @property
    def terms(self) -> Terms:
        from brainsurgeon.model.rules import Terms  # noqa: PLC0415

        # `retention_standing` once applied to missing sessions, too.
        follows = keys_set(self).keys() & {"retention_missing", "retention_standing"}
        missing = self.retention_missing
        if follows == {"retention_standing"}:
            missing = self.retention_standing
        return Terms(self.retention, missing, self.retention_standing)


class RootSettings(SettingsTable):
    databases: Literal["auto", "engines", "off"] = key(
        "auto",
        "which databases of agents to change: `off`: none; `auto`: those of agents whose "
        "context engine is OpenClaw's own; `engines`: also those of agents whose context engine "
        "is a plugin",
    )
    roots: tuple[RootTable, ...] = key(
        (), "where sessions are: `[[roots]]` with `path`, `format`, `exclusive`, `shrink`"
    )
    formats: dict[str, dict[str, Any]] = key(
        dict, "`[formats.NAME]`: descriptions of logs whose format is not known"
    )

    def root_directories(self, *, every: bool = False) -> list[Root]:
        """Return the roots; without any in the configuration, those of the agents found here.

        `every` adds the others' homes then, so that no session is missing since an agent came.
        """
        databases = self.databases != "off"
        if not self.roots:
            from brainsurgeon.agents import default_roots, homes_here  # noqa: PLC0415

            others = [root for _, root in homes_here()] if every else []
            paths = dict.fromkeys([*default_roots(), *others])
            return [Root(path, required=False, databases=databases) for path in paths]
        return [
            Root(
                root.path,
                root.format,
                exclusive=root.exclusive,
                databases=databases,
                shrink=root.shrink,
            )
            for root in self.roots
        ]


class Settings(RootSettings, ScheduleSettings, RewriteSettings, Profiled):
    # The generated documentation lists the keys of the last base class first.
    profiles: dict[str, ProfileTable] = key(dict, "`[profiles.NAME]`: settings for some sessions")
    profile: str | None = key(None, "the profile of all sessions that no `[[use]]` selects")
    use: tuple[UseTable, ...] = key(
        (), "`[[use]]` with `sessions` (globs) and `profile`: the profile of these sessions"
    )
    signals: SignalTable = key(
        SignalTable.model_construct, "what is reported about a running session"
    )
    prices: dict[str, PriceTable] = key(
        dict,
        "prices of a million tokens in dollars, by globs of model ids: `input`, `cache_read`, "
        "`cache_write`, `output`",
    )
    state_dir: AbsolutePath = key(
        "", "directory of the store and its locks; one with files of others is refused"
    )
    log_level: Literal["debug", "info", "warning", "error"] = key(
        "info", "`debug`, `info`, `warning`, `error`"
    )
    _profile_threshold: float | None = PrivateAttr(None)
    _by_profile: dict[str, Any] = PrivateAttr(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _resolve_aliases(cls, table: dict[str, Any]) -> dict[str, Any]:
        renamed = {ALIASES[name]: value for name, value in table.items() if name in ALIASES}
        return renamed | {name: value for name, value in table.items() if name not in ALIASES}

    @property
    def has_profiles(self) -> bool:
        return bool(self.use or self.profile)

    @property
    def uses_session_keys(self) -> bool:
        return any(glob.startswith(KEY) for use in self.use for glob in use.sessions)

    def profile_of(self, titles: Iterable[str], keys: Iterable[str]) -> str | None:
        names = {False: list(titles), True: [KEY + key for key in keys]}
        for use in self.use:
            pairs = ((glob, name) for glob in use.sessions for name in names[glob.startswith(KEY)])
            if any(fnmatchcase(name, glob) for glob, name in pairs):
                return use.profile
        return self.profile or None

    def under(self, profile: str | None) -> Self:
        if profile is None:
            return self
        if profile not in self._by_profile:
            table = self.profiles.get(profile)
            table = table or ProfileTable.model_validate(BUILT_IN_PROFILES[profile])
            self._by_profile[profile] = self._with(table)
        return self._by_profile[profile]  # type: ignore[no-any-return]

    def _with(self, profile: ProfileTable) -> Self:
        values = keys_set(profile)
        if "trigger_types" in values:
            values.setdefault("rules", ())
        budget = keys_set(profile.budget)
        threshold = budget.pop("threshold", None)
        if isinstance(threshold, dict):
            budget["threshold"] = self.budget.by_tier() | threshold
            threshold = None
        values["budget"] = self.budget.model_copy(update=budget)
        values["archive"] = self.archive.model_copy(update=keys_set(profile.archive))
        # The profile's globs come first. For a glob in both tables, the profile's value applies.
        values["windows"] = {**profile.windows, **self.windows, **profile.windows}
        values["request_bytes"] = {
            **profile.request_bytes, **self.request_bytes, **profile.request_bytes
        }  # fmt: skip
        values["tiers"] = {**profile.tiers, **self.tiers, **profile.tiers}
        chosen = self.model_copy(update=values)
        chosen._profile_threshold = threshold  # noqa: SLF001  an attribute of this class
        chosen._by_profile = {}  # noqa: SLF001
        return chosen

    def decision_rules(self) -> Rules:
        from brainsurgeon.model.rules import Rules  # noqa: PLC0415

        return Rules(**_shared(Rules, self) | {
            "rules": self.rule_list(),
            "keep_after_restore": float(self.keep_after_restore),
            "exclude_tools": tuple(
                pattern.removeprefix("tool:") for pattern in self.exclude
                if pattern.startswith("tool:")
            ),
            "max_messages": self.budget.max_messages,
        })  # fmt: skip

    def price_rules(self) -> tuple[tuple[str, Price], ...]:
        return tuple((glob, table.decision_price()) for glob, table in self.prices.items())

    def archive_rules(self) -> ArchiveRules:
        from brainsurgeon.model.rules import ArchiveRules  # noqa: PLC0415

        more = {"enabled": self.enabled and self.archive.enabled, "keep_recent": self.keep_recent}
        return ArchiveRules(**_shared(ArchiveRules, self.archive) | more)

    def budget_rules(self) -> Budget:
        from brainsurgeon.model.rules import Budget  # noqa: PLC0415

        return Budget(
            self._profile_threshold, tuple(self.budget.by_tier().items()),
            tuple(self.windows.items()), tuple(self.tiers.items()),
            tuple(self.request_bytes.items()),
        )  # fmt: skip

    def rules_fingerprint(self) -> str:
        """Return a digest of everything that decides about an unchanged file and its values."""
        from brainsurgeon.agents import FORMATS  # noqa: PLC0415

        known = sorted((name, form.version) for name, form in FORMATS.items())
        where = self.exclude, self.databases
        budget = self.budget, self.budget_rules()
        chosen = *budget, self.price_rules(), self.profiles, self.profile, self.use
        archive = (self.archive_rules(),) if self.archive.enabled or self.has_profiles else ()
        formats = [(root.path, root.format) for root in self.roots if root.format != "auto"]
        formats += [(root.path, "shrink") for root in self.roots if root.shrink]
        text = repr((self.decision_rules(), *where, known, *chosen, *archive, *formats))
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
