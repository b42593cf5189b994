"""What may stand behind a key: read a value, or say what is wanted instead."""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from brainsurgeon.decide.cron import cron_numbers
from brainsurgeon.model.entries import KINDS, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LARGEST = 2**53
"""Beyond this not every reader of a number keeps it exactly."""
LONGEST = 3_155_760_000
"""Seconds of a hundred years: beyond these there are no dates to compute with."""
YEAR = 31_536_000
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SIZES = {"": 1, "B": 1, "KB": 1000, "MB": 1000**2, "GB": 1000**3}
_DURATION = re.compile(r"([1-9][0-9]{0,11})([smhdw])")
_SIZE = re.compile(r"([0-9]{1,15}) ?(B|KB|MB|GB)?", re.IGNORECASE)
_SHARE = re.compile(r"([0-9]{1,9}(?:\.[0-9]+)?) ?%")
_THINGS = ("agent", "session", "tool")


class UnwantedError(ValueError):
    """A value that makes no sense: what is wanted instead, and what may have been meant."""

    def __init__(self, wanted: str, meant: str | None = None) -> None:
        self.meant = meant
        super().__init__(f"wants {wanted}")


def nearest(word: str, words: Iterable[str]) -> str | None:
    """Give the one of these words that is most like a misspelt one, if any is."""
    return next(iter(get_close_matches(word, list(words), 1)), None)


def whole_number(low: int = 0, high: int = LARGEST) -> Callable[[Any], int]:
    """Make a reader of whole numbers between two bounds; true and false are none."""

    def read(value: Any) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        bounded = high < LARGEST or (isinstance(value, int) and value > high)
        raise UnwantedError(f"a whole number from {low}" + (f" to {high:,}" if bounded else ""))

    return read


def one_of(*words: str) -> Callable[[Any], str]:
    """Make a reader of a choice among some words."""

    def read(value: Any) -> str:
        if isinstance(value, str) and value in words:
            return value
        meant = nearest(value.lower(), words) if isinstance(value, str) else None
        raise UnwantedError(f"{', '.join(words[:-1])} or {words[-1]}", meant)

    return read


def _switch(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise UnwantedError("true or false")


def _duration(value: Any) -> int | None:
    """Read `24h` and the like to seconds; `never` to None."""
    if value is None or value == "never":
        return None
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if not match:
        raise UnwantedError(
            'a whole number above 0 with s, m, h, d or w ("24h"), or "never"'
        )  # fmt: skip
    seconds = int(match[1]) * _UNITS[match[2]]
    if seconds > LONGEST:
        raise UnwantedError('at most 5200w, or "never"')
    return seconds


def _size(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST:
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if not match:
        raise UnwantedError('bytes, with KB, MB or GB where you like ("64KB")')
    return int(match[1]) * _SIZES[(match[2] or "").upper()]


def _reclaim(value: Any) -> float | int:
    """Read `1%` to a share of the file, anything else to bytes."""
    match = _SHARE.fullmatch(value) if isinstance(value, str) else None
    if match and float(match[1]) > 100:  # noqa: PLR2004
        raise UnwantedError("a share of at most 100%")
    if match:
        return float(match[1]) / 100
    try:
        return _size(value)
    except UnwantedError:
        raise UnwantedError('a share of the file ("1%") or bytes ("64KB")') from None


def _cron(value: Any) -> str | None:
    if value is None:
        return None
    wanted = 'the five fields of cron ("*/2 * * * *")'
    if not isinstance(value, str):
        raise UnwantedError(wanted)
    try:
        cron_numbers(value)
    except ValueError as error:
        why = str(error).removeprefix("wants ")
        raise UnwantedError(wanted if why == wanted else f"{wanted}: {why}") from None
    return value


def _absolute(value: Any) -> str:
    path = os.path.expanduser(value) if isinstance(value, str) else ""
    if not os.path.isabs(path) or "\0" in path:
        raise UnwantedError("an absolute path (~ is understood)")
    return os.path.normpath(path)


def _root(value: Any) -> str:
    path = _absolute(value)
    if os.path.realpath(path) == os.sep:
        raise UnwantedError("a directory of sessions, not the whole file system")
    return path


def _pattern(value: Any) -> str:
    """Read what is to be left alone; a glob that fits no absolute path is a misspelt word."""
    kind, _, name = value.partition(":") if isinstance(value, str) else ("", "", "")
    if (kind in _THINGS and name) or (isinstance(value, str) and value[:1] in ("/", "*", "?", "[")):
        return str(value)
    meant = nearest(kind, _THINGS) if name else None
    wanted = "a glob of absolute paths, agent:<id>, session:<id> or tool:<name>"
    raise UnwantedError(wanted, meant and f"{meant}:{name}")


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _name(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise UnwantedError("a name, or a glob of names")


_WholeNumber = Annotated[int, Field(ge=0, le=LARGEST)]
_Written = Annotated[str, Field(pattern=rf"^({_DURATION.pattern}|never)$")]
_Bytes = _WholeNumber | Annotated[str, Field(pattern=r"^[0-9]{1,15} ?([KMGkmg]?[Bb])?$")]
_Share = Annotated[str, Field(pattern=rf"^{_SHARE.pattern}$")]
"""What stands in a file, for the schema that editors read."""

Count = Annotated[int, BeforeValidator(whole_number(), json_schema_input_type=_WholeNumber)]
Seconds = Annotated[
    int,
    BeforeValidator(
        whole_number(high=LONGEST),
        json_schema_input_type=Annotated[int, Field(ge=0, le=LONGEST)],
    ),
]
Interval = Annotated[
    int,
    BeforeValidator(
        whole_number(1, YEAR), json_schema_input_type=Annotated[int, Field(ge=1, le=YEAR)]
    ),
]
Switch = Annotated[bool, BeforeValidator(_switch)]
Duration = Annotated[int | None, BeforeValidator(_duration, json_schema_input_type=_Written)]
Size = Annotated[int, BeforeValidator(_size, json_schema_input_type=_Bytes)]
Reclaim = Annotated[float | int, BeforeValidator(_reclaim, json_schema_input_type=_Bytes | _Share)]
Cron = Annotated[str | None, BeforeValidator(_cron, json_schema_input_type=str)]
AbsolutePath = Annotated[str, BeforeValidator(_absolute)]
RootPath = Annotated[str, BeforeValidator(_root)]
Pattern = Annotated[str, BeforeValidator(_pattern)]
Names = Annotated[
    tuple[Annotated[str, BeforeValidator(_name)], ...],
    BeforeValidator(_listed, json_schema_input_type=str | list[str]),
]
OneKind = Annotated[Kind, BeforeValidator(one_of(*KINDS))]
Sealed = Annotated[Literal["take", "defer"], BeforeValidator(one_of("take", "defer"))]
FormatName = Annotated[
    Literal["auto", "openclaw", "claude-code", "codex", "generic"],
    BeforeValidator(one_of("auto", "openclaw", "claude-code", "codex", "generic")),
]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"],
    BeforeValidator(one_of("debug", "info", "warning", "error")),
]
LogFormat = Annotated[
    Literal["auto", "console", "json"], BeforeValidator(one_of("auto", "console", "json"))
]
Databases = Annotated[
    Literal["auto", "engines", "off"], BeforeValidator(one_of("auto", "engines", "off"))
]


class Table(BaseModel):
    """A table of the configuration: it has no keys but its own, and never changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class RootTable(Table):
    """A directory to walk, which format its files are, and whether nobody else writes there."""

    path: RootPath
    format: FormatName = "auto"
    exclusive: Switch = False


class RuleTable(Table):
    """One rule of the long form."""

    kind: OneKind
    tool: Names = ()
    min_value_length: Count | None = None
    keep_recent: Count | None = None


def is_duration(table: type[Table], key: str) -> bool:
    """Tell whether a key of a table is a duration, which a file gives as `24h` and the like."""
    return any(getattr(one, "func", None) is _duration for one in table.model_fields[key].metadata)
