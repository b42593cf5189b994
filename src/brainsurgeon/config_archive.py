"""The keys of `[archive]`: which finished turns fold, and what is said of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator

from brainsurgeon.config_values import (
    Count,
    Duration,
    Switch,
    Table,
    UnwantedError,
    one_of,
    whole_number,
)

if TYPE_CHECKING:
    from brainsurgeon.decide.turns import ArchiveRules


def _word(value: Any) -> str:
    if isinstance(value, str) and value and "\0" not in value:
        return value
    raise UnwantedError("a word of a command")


def _words(value: Any) -> Any:
    """Read a command as a list of words; a string would have to be taken apart by a shell."""
    if value is None or isinstance(value, list | tuple):
        return value or ()
    raise UnwantedError('a list of words (["/usr/bin/summarise", "--short"])')


Style = Annotated[
    Literal["structured", "paragraph"], BeforeValidator(one_of("structured", "paragraph"))
]
Words = Annotated[tuple[Annotated[str, BeforeValidator(_word)], ...], BeforeValidator(_words)]


class ArchiveTable(Table):
    """Which finished turns fold into their last answers, and what is said of them there."""

    enabled: Switch = False
    token_threshold: Count = 8000
    tool_call_threshold: Count = 5
    on_failed: Switch = True
    keep_turns: Count = 2
    depth_cap: Count = 3
    fold_after: Annotated[int, BeforeValidator(whole_number(1))] = 20
    style: Style = "structured"
    summary_chars: Annotated[int, BeforeValidator(whole_number(1))] = 2000
    command: Words = ()
    command_timeout: Duration = 300

    def decision_rules(self, *, enabled: bool, keep_recent: int) -> ArchiveRules:
        """Give what decides about turns, as plain values."""
        from brainsurgeon.decide.turns import ArchiveRules  # noqa: PLC0415  a server decides nothing

        return ArchiveRules(
            enabled=enabled and self.enabled,
            token_threshold=self.token_threshold,
            tool_call_threshold=self.tool_call_threshold,
            on_failed=self.on_failed,
            keep_turns=self.keep_turns,
            depth_cap=self.depth_cap,
            fold_after=self.fold_after,
            style=self.style,
            summary_chars=self.summary_chars,
            keep_recent=keep_recent,
        )

    def under(self, profile: ArchiveTable) -> ArchiveTable:
        """Give the table that holds under a profile, which says some of the keys."""
        said = {name: getattr(profile, name) for name in profile.model_fields_set}
        return self.model_copy(update=said)

    def problems(self) -> list[str]:
        """Say which keys make no sense together."""
        if self.command and not self.enabled:
            return ["archive.command: wants archive.enabled = true beside it, but false is given"]
        return []
