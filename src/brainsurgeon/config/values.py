"""Types of configuration values, with their validators and their form in the JSON schema."""

import os
import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StrictBool,
    ValidationError,
    WrapValidator,
)

from brainsurgeon.model.turns import TIERS, Tier

DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
# The five fields of cron: lowest number, highest number, names of the numbers.
_CRON = ((0, 59, ()), (0, 23, ()), (1, 31, ()), (1, 12, _MONTHS), (0, 7, DAYS))
_LONGEST_MONTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_FIVE_FIELDS = 'the five fields of cron ("*/2 * * * *")'
_CRON_ITEM = re.compile(r"(\*|[0-9]+(?:-[0-9]+)?)(?:/([0-9]+))?")


# APScheduler's own parser counts weekdays from Monday and refuses 7. Its import takes 47 ms, and
# every command that reads a configuration would need it.
def cron_numbers(expression: str) -> list[list[int]]:
    """Return the numbers that each of the five fields of a cron expression matches.

    Weekdays are 0 (Sunday, also 7) to 6. Raises InvalidValueError if cron refuses the expression.
    """
    words = expression.lower().split()
    if len(words) != len(_CRON):
        raise InvalidValueError(_FIVE_FIELDS)
    fields = [_cron_field(word, *bounds) for word, bounds in zip(words, _CRON, strict=True)]
    longest = max(_LONGEST_MONTHS[month - 1] for month in fields[3])
    if fields[2][0] > longest and words[4].startswith("*"):
        raise InvalidValueError(f"{_FIVE_FIELDS}: no such month has a day {fields[2][0]}")
    return [*fields[:4], sorted({number % 7 for number in fields[4]})]


def _cron_field(word: str, low: int, high: int, names: tuple[str, ...]) -> list[int]:
    numbers = {name: str(number) for number, name in enumerate(names, low)}
    plain = re.sub(r"\b[a-z]+\b", lambda name: numbers.get(name[0], name[0]), word)
    result: set[int] = set()
    for item in plain.split(","):
        match = _CRON_ITEM.fullmatch(item)
        span, step = (match[1], int(match[2] or 1)) if match else ("", 0)
        first, _, last = (f"{low}-{high}" if span == "*" else span).partition("-")
        start = int(first or -1)
        end = int(last or (high if match and match[2] else start))
        if names is DAYS and end == 0 < start:
            end = 7  # in "sat-sun", Sunday is 7
        if step < 1 or not low <= start <= end <= high:
            raise InvalidValueError(f"{_FIVE_FIELDS}: cron does not know {word!r}")
        result.update(range(start, end + 1, step))
    return sorted(result)


LARGEST = 2**53  # larger integers are not exact in every JSON parser
CENTURY = 3_155_760_000  # seconds in 100 years, the longest duration
KEY = "key:"  # prefix of a glob of session keys
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SIZES = {"": 1, "B": 1, "KB": 1000, "MB": 1000**2, "GB": 1000**3}
_DURATION = re.compile(r"([1-9][0-9]{0,11})([smhdw])")
_SIZE = re.compile(r"([0-9]{1,15}) ?(B|KB|MB|GB)?", re.IGNORECASE)
_SHARE = re.compile(r"([0-9]{1,9}(?:\.[0-9]+)?) ?%")
_EXCLUDE_KINDS = ("agent", "session", "tool")  # words before the colon in patterns of `exclude`


class InvalidValueError(ValueError):
    """An invalid value. `wanted` describes valid values, `meant` is the probably intended one."""

    def __init__(self, wanted: str, meant: str | None = None) -> None:
        self.meant = meant
        super().__init__(f"wants {wanted}")


class SettingsTable(BaseModel):
    # Build a validator only when it is used: one for each table would double the import time.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


def key(default: Any, description: str) -> Any:
    name = "default_factory" if callable(default) else "default"
    return Field(**{name: default}, description=description)


def closest(word: str, words: Iterable[str]) -> str | None:
    return next(iter(get_close_matches(word, list(words), 1)), None)


def wants(text: str) -> WrapValidator:
    """Return a validator that replaces each error of the annotated type with a message."""

    def read(value: Any, inner: Any) -> Any:
        try:
            return inner(value)
        except ValidationError:
            raise InvalidValueError(text) from None

    return WrapValidator(read)


def seconds_of(value: Any) -> int | None:
    if value is None or value == "never":
        return None
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if not match:
        raise InvalidValueError('a whole number above 0 with s, m, h, d or w ("24h"), or "never"')
    seconds = int(match[1]) * _UNITS[match[2]]
    if seconds > CENTURY:
        raise InvalidValueError('at most 100 years, or "never"')
    return seconds


def _wait(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= CENTURY:
        return value
    try:
        seconds = 0 if value in ("0s", "0") else seconds_of(value)
    except InvalidValueError:
        seconds = None
    if seconds is None:
        raise InvalidValueError('seconds (90), or "90s" (units s, m, h, d, w), at most 100 years')
    return seconds


def _interval(value: Any) -> int:
    seconds = _wait(value)
    if not 1 <= seconds <= 365 * 86_400:
        raise InvalidValueError('from "1s" to "365d"')
    return seconds


def _duration_text(seconds: int | None) -> str:
    if seconds is None:
        return "never"
    if seconds == 0:
        return "0s"
    unit, size = next(
        (unit, size) for unit, size in reversed(_UNITS.items())
        if seconds % size == 0 and (seconds != size or unit not in "wd")
    )  # fmt: skip
    return f"{seconds // size}{unit}"


def _size(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST:
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    if not match:
        raise InvalidValueError('bytes, or a number with KB, MB or GB ("64KB")')
    return int(match[1]) * _SIZES[(match[2] or "").upper()]


def _reclaim(value: Any) -> float | int:
    """Return a float for a percentage (0.01 for `1%`), an integer for a number of bytes."""
    if isinstance(value, str) and (match := _SHARE.fullmatch(value)):
        if (share := float(match[1]) / 100) > 1:
            raise InvalidValueError("at most 100%")
        return share
    try:
        return _size(value)
    except InvalidValueError:
        raise InvalidValueError('a percentage ("1%") or bytes ("64KB")') from None


def _threshold(value: Any) -> Any:
    shares = value if isinstance(value, dict) else {"": value}
    fit = all(type(share) in (int, float) and 0 < share <= 1 for share in shares.values())
    if value is None or (fit and shares.keys() <= {"", *TIERS}):
        return value if value is None or isinstance(value, dict) else float(value)
    raise InvalidValueError(
        "a share of the window, above 0 and up to 1 (0.75), or a table of shares for frontier, mid "
        "and small"
    )


def _cron(value: Any) -> str | None:
    if value is not None:
        cron_numbers(value if isinstance(value, str) else "")
    return value  # type: ignore[no-any-return]


def _absolute(value: Any) -> str:
    path = os.path.expanduser(value) if isinstance(value, str) else ""
    if not os.path.isabs(path) or "\0" in path:
        raise InvalidValueError("an absolute path (~ is allowed)")
    return os.path.normpath(path)


def _root(value: Any) -> str:
    path = _absolute(value)
    if os.path.realpath(path) == os.sep:
        raise InvalidValueError("a directory of sessions, not the whole file system")
    return path


def _excluded(value: Any) -> str:
    text = value if isinstance(value, str) and "\0" not in value else ""
    kind, _, name = text.partition(":")
    if (kind in _EXCLUDE_KINDS and name) or text[:1] in ("/", "*", "?", "["):
        return text
    meant = closest(kind, _EXCLUDE_KINDS) if name else None
    wanted = "a glob of absolute paths, agent:<id>, session:<id> or tool:<name>"
    raise InvalidValueError(wanted, meant and f"{meant}:{name}")


def _session_glob(value: Any) -> str:
    """Validate a glob of sessions. Without slash and wildcard, it could match no `agent/name`."""
    has_glob = isinstance(value, str) and value.removeprefix(KEY) != ""
    if has_glob and (value.startswith(KEY) or any(mark in value for mark in "/*?[")):
        return str(value)
    raise InvalidValueError(
        'a glob of agent/name with a slash or a wildcard ("main/*"), or key: and a glob of session '
        'keys ("key:agent:main:*")'
    )


def _session_globs(value: Any) -> Any:
    listed = _listed(value)
    if isinstance(listed, list | tuple) and listed:
        return listed
    raise InvalidValueError('at least one glob of sessions ("main/*")')


def _command(value: Any) -> Any:
    """Accept only a list of words. No shell runs the command, so a string would not be split."""
    if value is None or isinstance(value, list | tuple):
        return value or ()
    raise InvalidValueError('a list of words (["/usr/bin/summarise", "--short"])')


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


# The types `_Written…` are for the JSON schema. They describe values as users write them.
_WrittenDuration = Annotated[str, Field(pattern=rf"^({_DURATION.pattern}|never)$")]
_WrittenSize = (
    Annotated[int, Field(ge=0, le=LARGEST)]
    | Annotated[str, Field(pattern=r"^[0-9]{1,15} ?([KMGkmg]?[Bb])?$")]
)
_Share = Annotated[float, Field(gt=0, le=1)]
_WrittenShare = Annotated[str, Field(pattern=rf"^{_SHARE.pattern}$")]

Switch = StrictBool
Count = Annotated[int, Field(strict=True, ge=0, le=LARGEST), wants("a whole number from 0 to 2^53")]
Positive = Annotated[
    int, Field(strict=True, ge=1, le=LARGEST), wants("a whole number from 1 to 2^53")
]
_AS_TEXT = PlainSerializer(_duration_text, return_type=str, when_used="json")
_WrittenWait = (
    Annotated[int, Field(ge=0, le=CENTURY)] | Annotated[str, Field(pattern="^[0-9]{1,12}[smhdw]$")]
)
Wait = Annotated[int, BeforeValidator(_wait, json_schema_input_type=_WrittenWait), _AS_TEXT]
Interval = Annotated[int, BeforeValidator(_interval, json_schema_input_type=_WrittenWait), _AS_TEXT]
Duration = Annotated[
    int | None, BeforeValidator(seconds_of, json_schema_input_type=_WrittenDuration), _AS_TEXT
]
Size = Annotated[int, BeforeValidator(_size, json_schema_input_type=_WrittenSize)]
Reclaim = Annotated[
    float | int,
    BeforeValidator(_reclaim, json_schema_input_type=_WrittenSize | _WrittenShare),
    PlainSerializer(
        lambda value: f"{value * 100:g}%" if isinstance(value, float) else value, when_used="json"
    ),
]
Threshold = Annotated[
    float | dict[Tier, float] | None,
    BeforeValidator(_threshold, json_schema_input_type=_Share | dict[Tier, _Share]),
]
Dollars = Annotated[float, Field(strict=True, gt=0, le=1e6), wants("dollars, above 0")]
Cron = Annotated[str | None, BeforeValidator(_cron, json_schema_input_type=str)]
AbsolutePath = Annotated[str, BeforeValidator(_absolute)]
RootPath = Annotated[str, BeforeValidator(_root)]
Pattern = Annotated[str, BeforeValidator(_excluded)]
Names = Annotated[
    tuple[Annotated[str, wants("a name, or a glob of names")], ...],
    BeforeValidator(_listed, json_schema_input_type=str | list[str]),
]
SessionGlobs = Annotated[
    tuple[Annotated[str, BeforeValidator(_session_glob)], ...],
    BeforeValidator(_session_globs, json_schema_input_type=str | list[str]),
]
Command = Annotated[
    tuple[Annotated[str, Field(pattern="^[^\0]+$"), wants("a word of a command")], ...],
    BeforeValidator(_command),
]
