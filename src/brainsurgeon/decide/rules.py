"""What a rule may say, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from brainsurgeon.model.entries import Part


Unseal = Literal["", "broken", "all"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: which parts it speaks of, and from which length and position they may go.

    `tools` are globs over the tool's name; empty means any part. `keep_recent` is in messages,
    `min_value_length` in characters.
    """

    kind: str
    tools: tuple[str, ...]
    min_value_length: int
    keep_recent: int

    def matches(self, part: Part) -> bool:
        """Tell whether this rule speaks of the part."""
        if part.kind != self.kind:
            return False
        return not self.tools or any(fnmatchcase(part.tool or "", glob) for glob in self.tools)


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules of a configuration, in order; the first that matches a part decides.

    `keep_recent` and `min_value_length` hold where no rule matches. `keep_after_restore` is in
    seconds. A plan that gains less than `min_reclaim_share` of the file plus `min_reclaim_bytes`
    is not carried out. `dead_kinds` are the kinds that may go from entries that no request
    carries any more; empty, they are the kinds that some rule speaks of. `sealed` says what becomes
    of thinking that is valid only behind what stands before it, `sealed_models` (globs) which
    models seal theirs.

    A result of more than `giant` characters goes wherever it stands, and whatever stands more than
    `max_messages` messages back goes whatever its length; 0 switches either off. `unseal` takes
    signed thinking out in any turn: what is `broken` or hollow, or `all` of it.
    """

    rules: tuple[Rule, ...]
    keep_recent: int = 3
    min_value_length: int = 500
    dead_kinds: tuple[str, ...] = ()
    sealed: str = "take"
    sealed_models: tuple[str, ...] = ()
    enabled: bool = True
    keep_after_restore: float = 600.0
    exclude_tools: tuple[str, ...] = ()
    min_reclaim_share: float = 0.01
    min_reclaim_bytes: int = 0
    giant: int = 0
    max_messages: int = 0
    unseal: Unseal = ""

    def match(self, part: Part) -> Rule | None:
        """Give the first rule that speaks of the part."""
        return next((rule for rule in self.rules if rule.matches(part)), None)

    def excludes(self, part: Part) -> bool:
        """Tell whether the part's tool is to be left alone."""
        tool = part.tool
        return tool is not None and any(fnmatchcase(tool, glob) for glob in self.exclude_tools)

    def pays(self, gain: int, size: int) -> bool:
        """Tell whether a net gain of `gain` bytes is worth rewriting a file of `size` bytes."""
        return gain > 0 and (gain - self.min_reclaim_bytes) / size >= self.min_reclaim_share

    @property
    def shortest(self) -> int:
        """The length (characters) up to which no rule lets a value go."""
        if self.max_messages:
            return 0
        lengths = (rule.min_value_length for rule in self.rules)
        return min(lengths, default=0) if not self.rules else min(self.min_value_length, *lengths)

    @property
    def window(self) -> int:
        """The largest number of recent messages that any rule keeps."""
        return max(
            [self.keep_recent, self.max_messages, *(rule.keep_recent for rule in self.rules)]
        )
