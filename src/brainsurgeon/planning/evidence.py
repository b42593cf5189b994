"""Show the results of tool calls, extracted or not, within a budget of bytes.

Between the results are lines of our own. Each begins with a mark, so that no result can contain
such a line. The mark depends on the bytes that are shown, and does not occur in them.
"""

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import repeat, takewhile
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from brainsurgeon.formats.base import Format, number_in
from brainsurgeon.model.entries import JsonObject, KeyPath, placeholder_in, with_value
from brainsurgeon.model.records import Extraction
from brainsurgeon.model.text import boundary, iso, readable
from brainsurgeon.model.turns import ToolResult

LEAST = 2048  # minimum bytes of each long result, while the budget lasts
HEAD = 1024  # maximum bytes of the beginning of a shortened result
SHORTEST = 256  # a result is left out rather than cut to fewer bytes
# Stands for the mark until all texts are put together. UTF-8 never contains this byte.
_UNMARKED = b"\xff" * 8
OURS = _UNMARKED + b" "  # the beginning of a line of our own


class Evidence(Struct, frozen=True):
    """A tool call, and its result of `size` bytes. The result is in the entry at `index`.

    `source` is the index of its session, and `session` the name of any but the first one.
    """

    number: int
    tool: str
    call_id: str | None
    result: ToolResult | None = None
    index: int | None = None
    size: int = 0
    known: bool = True  # neither expired nor damaged
    source: int = 0
    session: str = ""

    @property
    def failed(self) -> bool:
        return self.result is not None and self.result.failed

    @property
    def line(self) -> str:
        name, result = f"{self.number}. {readable(self.tool)}", self.result
        name = f"{readable(self.session)} {name}" if self.session else name
        if result is None:
            return f"{name} [no result]"
        facts = (
            None if result.exit_code is None else f"exit={result.exit_code}",
            None if result.took_ms is None else f"{result.took_ms:,} ms",
            f"{self.size:,} B" if self.known else "not available",
        )
        return f"{name} [{', '.join(filter(None, facts))}]{' FAILED' if result.failed else ''}"


class Filled(Struct, frozen=True):
    """An entry with values in place of placeholders. The values at the paths `gone` are lost."""

    entry: JsonObject
    gone: frozenset[KeyPath] = frozenset()

    def answer(self, form: Format, call_id: str | None) -> tuple[bytes, bool]:
        found = form.read(self.entry).result_texts
        answers = [answer for answer in found if answer.call_id == call_id]
        known = self.gone.isdisjoint(answer.path for answer in answers)
        texts = (
            (OURS if answer.path in self.gone else b"") + as_bytes(answer.text)
            for answer in answers
        )
        return b"\n".join(texts), known


def as_bytes(text: str) -> bytes:
    return text.encode(errors="replace")


def filled(
    entry: JsonObject,
    standing: Iterable[Extraction],
    token_of: Callable[[Extraction], bytes | None],
) -> Filled:
    gone = []
    for value in standing:
        if value.replacement is not None:
            continue
        token = token_of(value)
        if token is None:
            gone.append(value.path)
        content = notice(value) if token is None else json.loads(token.decode(errors="replace"))
        entry = with_value(entry, value.path, content if value.path or token else {"text": content})
    return Filled(entry, frozenset(gone))


def notice(value: Extraction) -> str:
    when = f"expired {iso(value.tombstone.at)}" if value.tombstone else "damaged"
    return f"[evidence no longer available: {value.name}, {value.size:,} B, {when}]"


def gather(form: Format, entries: Iterable[tuple[int, Filled]]) -> list[Evidence]:
    """`entries` are pairs of index and entry. A call or its result may be missing."""
    calls: list[Evidence] = []
    at: dict[str, int] = {}
    without_id: deque[int] = deque()
    for index, filled_entry in entries:
        step = form.read(filled_entry.entry).step
        for call in step.calls:
            before = at.get(call.call_id or "")
            if before is not None and (form.repeats or calls[before].result is None):
                continue  # repeated: else an agent reuses an id only after the result
            if call.call_id is None:
                without_id.append(len(calls))
            else:
                at[call.call_id] = len(calls)
            calls.append(Evidence(len(calls) + 1, call.tool, call.call_id))
        for result in step.results:
            ident = result.call_id
            nth = at.get(ident) if ident else without_id.popleft() if without_id else None
            if nth is None:
                nth = len(calls)
                calls.append(Evidence(nth + 1, "unknown call", ident))
                if ident:
                    at[ident] = nth
            text, known = filled_entry.answer(form, ident)
            calls[nth] = replace(
                calls[nth], result=result, index=index, size=len(text), known=known
            )
    return calls


def shares(
    sizes: Sequence[int], budget: int, heading_sizes: Iterable[int] = repeat(0), *, failed: int = 0
) -> list[int]:
    """Divide a budget of bytes among texts. A text that gets no bytes needs no heading.

    Each text gets an equal part of what is left for it and the following ones. What short texts
    leave goes to the long ones in equal parts: first to the `failed` ones at the beginning.
    """
    left, given = budget, []
    for index, (size, heading) in enumerate(zip(sizes, heading_sizes, strict=False)):
        room, waiting = max(0, left - heading), len(sizes) - index
        share = min(size, room, max(LEAST, room // waiting))
        share = 0 if share < min(size, SHORTEST) else share
        left -= share + heading if share else 0
        given.append(share)
    for some in (range(min(failed, len(given))), range(failed, len(given))):
        shortest_first = sorted(
            (index for index in some if given[index]), key=lambda index: sizes[index] - given[index]
        )
        for done, index in enumerate(shortest_first):
            more = min(sizes[index] - given[index], left // (len(shortest_first) - done))
            given[index] += more
            left -= more
    return given


def shortened(data: bytes, room: int, ours: bytes = b"") -> bytes:
    """Cut out the middle of longer UTF-8 text; return b"" if `room` cannot hold the marker.

    `ours` is the beginning of the marker's line.
    """
    size = len(data)
    if size <= room:
        return data

    def marker(start: int, end: int) -> bytes:  # the bytes from `start` to before `end`
        text = f"[... {end - start:,} bytes left out: {start}-{end} ...]\n".encode()
        return b"\n" + ours + text

    spare = room - len(marker(0, size))
    if spare <= 0:
        return b""
    head = boundary(data, min(HEAD, spare * 3 // 4))
    longest = len(marker(0, size)) + len(str(head)) - 1
    tail = boundary(data, size - (room - longest - head), upwards=True)
    tail -= longest - len(marker(head, tail))  # the real marker may be shorter
    tail = boundary(data, tail, upwards=True)
    return data[:head] + marker(head, tail) + data[tail:]


def mark_for(shown: bytes) -> bytes:
    """Return eight hexadecimal digits that do not occur in the bytes: the same for equal bytes."""
    number = 0
    while (mark := blake2b(b"%d " % number + shown, digest_size=4).hexdigest().encode()) in shown:
        number += 1
    return mark


def marked(text: bytes, mark: bytes) -> bytes:
    # A marker may have cut off a part of the line at its end.
    return re.sub(rb"\xff+", lambda part: mark[: len(part[0])], text)


class Occurrence(Struct, frozen=True):
    path: KeyPath
    text: str
    failed: bool


def placeholders(value: Any, path: KeyPath = (), *, failed: bool = False) -> Iterator[Occurrence]:
    if isinstance(value, dict):
        failed = failed or _failed(value)
        for key, inner in value.items():
            yield from placeholders(inner, (*path, key), failed=failed)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from placeholders(inner, (*path, index), failed=failed)
    elif text := placeholder_in(value):
        yield Occurrence(path, text, failed)


def _failed(holder: dict[str, Any]) -> bool:
    codes = (number_in(one, "exitCode", "exit_code") for one in (holder, holder.get("details")))
    return holder.get("isError") is True or holder.get("is_error") is True or any(codes)


def nearest(path: KeyPath, values: Sequence[Extraction]) -> Extraction:
    """Return the first value whose path shares the most last steps with `path`."""

    def equal_steps(value: Extraction) -> int:
        pairs = zip(reversed(path), reversed(value.path), strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    return max(values, key=equal_steps)


def by_priority(calls: Iterable[Evidence]) -> list[Evidence]:
    with_result = (call for call in calls if call.result is not None and call.size)
    return sorted(
        with_result,
        key=lambda one: (not one.failed, one.source, -(one.index or 0), -one.size),
    )


def evidence_text(
    calls: Iterable[Evidence], budget: int, text_of: Callable[[Evidence], bytes]
) -> bytes:
    """Return the results, with `_UNMARKED` in place of the mark."""
    waiting = by_priority(calls)
    heads = [OURS + f"{call.line}\n".encode() for call in waiting]
    given = shares(
        [call.size for call in waiting], budget, [len(head) + 1 for head in heads],
        failed=sum(call.failed for call in waiting),
    )  # fmt: skip
    return b"".join(
        head + shortened(text_of(call), room, OURS) + b"\n"
        for call, head, room in zip(waiting, heads, given, strict=True) if room
    )  # fmt: skip


def index_lines(calls: Sequence[Evidence], budget: int) -> list[str]:
    left, lines = budget, []
    for number, call in reversed([*enumerate(calls, 1)]):
        left -= len(call.line.encode()) + 1
        if left < 0:
            lines.append(f"[... {number:,} older calls ...]")
            break
        lines.append(call.line)
    return lines[::-1]
