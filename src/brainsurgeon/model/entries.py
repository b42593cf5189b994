"""What one line of a session says: its entry, the parts of it, and the shape of a placeholder."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator


PREFIX, SUFFIX = "[[extracted-", "]]"
# The id in a placeholder; the number behind a tilde tells equal ids of different values apart.
ID = "~?[A-Za-z0-9._-]{1,128}(?:~[0-9]{1,9})?"
WHOLE_PLACEHOLDER = re.compile(rf"{re.escape(PREFIX)}({ID}){re.escape(SUFFIX)}")


def placeholder_named(ident: str) -> str:
    """Return the text of the placeholder in which this very id stands."""
    return f"{PREFIX}{ident}{SUFFIX}"


def unnumbered(name: str) -> str:
    """Return the entry's id in a placeholder's id: all but a number behind a tilde."""
    at = name.rfind("~")
    return name[:at] if at > 0 else name


def id_named(reference: str) -> str:
    """Return the entry id out of what was typed or pasted.

    An id, or a whole placeholder, also in quotes.
    """
    bare = reference.strip(" \t\r\n`")
    match = WHOLE_PLACEHOLDER.fullmatch(bare.strip("'\""))
    return match[1] if match else bare


def is_placeholder(reference: str) -> bool:
    """Check whether what was typed or pasted is a whole placeholder, also in quotes."""
    return WHOLE_PLACEHOLDER.fullmatch(reference.strip(" \t\r\n`'\"")) is not None


def dotted(path: KeyPath) -> str:
    """Write a path as people do: `message.content.0.text`."""
    return ".".join(str(step) for step in path)


KeyPath = tuple[str | int, ...]
Kind = Literal["thinking", "tool_call", "tool_result", "assistant", "user", "system", "custom"]
KINDS: tuple[Kind, ...] = (
    "thinking", "tool_call", "tool_result", "assistant", "user", "system", "custom",
)  # fmt: skip
Entry = dict[str, Any]

# The position of an entry that is beyond every window, or not on the active branch.
OLD = sys.maxsize

# The fields of ours that may stand at the top level of an entry.
EXTRACTABLE, RESTORED, REDACTED = FIELDS = ("_extractable", "_restored", "_redacted")


class Line(NamedTuple):
    """One line of a session file, without its newline; a tuple, since every line becomes one.

    `raw` is None for a line longer than is ever held in memory: it is copied, never looked into.
    The last line is not `terminated` while it has no newline yet.
    """

    number: int
    offset: int
    raw: bytes | None
    terminated: bool = True


class Lines(Protocol):
    """The lines of one file, readable from either end as often as needed."""

    def __iter__(self) -> Iterator[Line]:
        """Yield the lines from the first to the last."""

    def backward(self) -> Iterator[Line]:
        """Yield the lines from the last to the first; their `number` is 0, since it is unknown."""


@dataclass(frozen=True, slots=True)
class Part:
    """One value inside an entry that could be cut.

    `block` says that the whole object at `path` gives way to a text block, because a placeholder
    inside it would be refused by the provider (images, signed thinking). `locked` is the reason why
    the value must stay whatever the rules say, or None. A `dead` part is never sent to a model,
    even where its entry is: only the agent's own screen shows it. `instead` is the token that
    stands there afterwards where that is no placeholder, because a model would imitate it (signed
    thinking).
    """

    path: KeyPath
    kind: Kind
    chars: int
    tool: str | None = None
    block: bool = False
    locked: str | None = None
    dead: bool = False
    instead: bytes | None = None


def value_at(entry: Entry, path: KeyPath) -> Any:
    """Return the value at `path`, or None where there is none."""
    value: Any = entry
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


_REAL_ID = re.compile("[A-Za-z0-9._-]{1,128}")
# How the text of every placeholder begins.
PLACEHOLDER_PREFIX = PREFIX.encode()
# The text of a placeholder, wherever it stands in a file's bytes.
PLACEHOLDER = re.compile(rf"{re.escape(PREFIX)}{ID}{re.escape(SUFFIX)}".encode())
# Bytes of the longest text that is a placeholder.
LONGEST_PLACEHOLDER = len(PREFIX + "~" + SUFFIX) + 128 + len("~999999999")


def is_safe(entry_id: str) -> bool:
    """Check whether an id is URL-safe and short enough to stand in a placeholder as it is."""
    return _REAL_ID.fullmatch(entry_id) is not None


def placeholder_id(entry_id: str) -> str:
    """Return the id that stands in the placeholder.

    The entry's own, or a derived one that starts with ~.

    A tilde cannot start a URL-safe id, so that a derived id never equals a real one.
    """
    if is_safe(entry_id):
        return entry_id
    return "~" + hashlib.blake2b(entry_id.encode(), digest_size=12).hexdigest()


def is_own_placeholder(value: object, entry_id: str) -> bool:
    """Check whether a string is a placeholder that names this entry, with or without a number."""
    if (
        not isinstance(value, str)
        or not value.startswith(PREFIX)
        or len(value) > LONGEST_PLACEHOLDER
    ):
        return False
    named = WHOLE_PLACEHOLDER.fullmatch(value)
    return named is not None and unnumbered(named[1]) == placeholder_id(entry_id)


def placeholder_token(placeholder: str, *, block: bool) -> bytes:
    """Return the placeholder as it is written into a line, as a string or as a whole text block."""
    token = json.dumps(placeholder)
    return (f'{{"type":"text","text":{token}}}' if block else token).encode()


def stands(value: object, placeholder: str, *, block: bool) -> bool:
    """Check whether `value`, as parsed, is exactly this placeholder."""
    return value == ({"type": "text", "text": placeholder} if block else placeholder)


def placeholder_in(value: object) -> str | None:
    """Return the placeholder's text when the whole value has the shape of one."""
    return value if isinstance(value, str) and WHOLE_PLACEHOLDER.fullmatch(value) else None
