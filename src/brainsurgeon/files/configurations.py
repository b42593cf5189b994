"""Read configuration files, ours and those of agents."""

import errno
import json
import os
import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

MEGABYTE = 1_000_000  # bytes
LARGEST = 16 * MEGABYTE  # bytes of an agent's file; Claude Code's grows with every project
# Strings, and what JSON does not have: comments, and commas before a closing bracket.
_REMARK = r"(?>//[^\n]*|/\*.*?\*/)"  # atomic: many in a row would be split in many ways
_COMMENT = re.compile(rf'(?s)("(?:[^"\\]|\\.)*")|{_REMARK}')
_PIECE = re.compile(rf"{_COMMENT.pattern}|,(?=(?:\s|{_REMARK})*+[\]}}])")


def _blank(match: re.Match[str]) -> str:
    return match[1] or " " * len(match[0].encode())


def as_json(text: str) -> str:
    """Return JSON with comments as JSON of the same number of bytes."""
    return _PIECE.sub(_blank, text)


def loads(text: str) -> Any:
    """Parse JSON with comments. Raises ValueError."""
    return json.loads(as_json(text))


def without(text: str, keys: Sequence[str]) -> str:
    """Return JSON, perhaps with comments, without the value at some keys. The rest stays as it is.

    An object that has only this value leaves with it. Raises ValueError if there is none, or if a
    comment stands where the value would be cut out.
    """
    from brainsurgeon.formats import splice  # noqa: PLC0415  not needed to read a configuration

    raw, path = as_json(text).encode(), tuple(keys)
    try:
        start, end = splice.locate(raw, [path])[path]
    except (LookupError, TypeError, splice.UntouchableError) as error:
        raise ValueError(path[-1]) from error
    whole, bare = text.encode(), _COMMENT.sub(_blank, text).encode()
    start = raw.rindex(json.dumps(path[-1]).encode(), 0, start)
    behind, before = bare[end:].lstrip(), bare[:start].rstrip()
    if behind.startswith(b","):
        comma = len(bare) - len(behind)
        gap, end = whole[end:comma], len(whole) - len(whole[comma + 1 :].lstrip())
    elif before.endswith(b","):
        gap, start = whole[len(before) : start], len(before) - 1
    else:
        gap, start = whole[len(before) : start], len(before)
    if gap.strip():
        raise ValueError(path[-1])
    left, right = whole[:start], whole[end:]
    is_empty = left.rstrip().endswith(b"{") and right.lstrip().startswith(b"}")
    result = (left + right).decode()
    return without(result, path[:-1]) if is_empty and len(path) > 1 else result


def forbidding(path: str) -> str:
    """Return what this user may not read: the file, or a directory above it."""
    above = path
    while (above := os.path.dirname(above)) != "/":
        with suppress(OSError):
            os.stat(above)  # this needs no permission of `above` itself
            name = path if os.access(above, os.X_OK, effective_ids=True) else above
            return f"this user may not {'read' if name == path else 'enter'} {name}"
    return f"this user may not read {path}"


def read(path: str, largest: int = LARGEST) -> bytes:
    """Return a file's content. Raises OSError if it is too large, a device or a pipe.

    `/dev/null` is an empty configuration.
    """
    kind = os.stat(path).st_mode  # before it is opened: opening some devices does something
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind) or os.path.samefile(path, os.devnull)):
        raise OSError(errno.EINVAL, "not a regular file")
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise OSError(errno.EFBIG, f"larger than {largest // MEGABYTE} MB")
    return content
