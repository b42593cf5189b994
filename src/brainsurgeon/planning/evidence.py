"""Show the results of tool calls, extracted or not, within a budget of bytes."""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat, takewhile
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from brainsurgeon.formats.base import Format, number_in
from brainsurgeon.model.entries import Entry, KeyPath, placeholder_in, value_at
from brainsurgeon.model.records import Extraction
from brainsurgeon.model.text import boundary, iso, readable
from brainsurgeon.model.turns import ToolResult

LEAST = 2048  # minimum bytes of each long result, while the budget lasts
HEAD = 1024  # maximum bytes of the beginning of a shortened result
SHORTEST = 256  # a result is left out rather than cut to fewer bytes


class Evidence(Struct, frozen=True):
    """A tool call, and its result of `size` bytes. The result is in the entry at `offset`."""

    number: int
    tool: str
    call_id: str | None
    result: ToolResult | None = None
    offset: int | None = None
    size: int = 0
    known: bool = True  # neither expired nor damaged

    @property
    def line(self) -> str:
        name, result = f"{self.number}. {readable(self.tool)}", self.result
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

    entry: Entry
    gone: frozenset[KeyPath] = frozenset()

    def answer(self, form: Format, call_id: str | None) -> tuple[bytes, bool]:
        answers = [answer for answer in form.result_texts(self.entry) if answer.call_id == call_id]
        known = self.gone.isdisjoint(answer.path for answer in answers)
        return as_bytes("\n".join(answer.text for answer in answers)), known


def as_bytes(text: str) -> bytes:
    return text.encode(errors="replace")


def filled(
    entry: Entry, standing: Iterable[Extraction], token_of: Callable[[Extraction], bytes | None]
) -> Filled:
    gone = []
    for value in standing:
        if value.replacement is not None:
            continue
        token = token_of(value)
        if token is None:
            gone.append(value.path)
        content = notice(value) if token is None else json.loads(token.decode(errors="replace"))
        value_at(entry, value.path[:-1])[value.path[-1]] = content
    return Filled(entry, frozenset(gone))


def notice(value: Extraction) -> str:
    when = f"expired {iso(value.tombstone.at)}" if value.tombstone else "damaged"
    return f"[evidence no longer available: {value.name}, {value.size:,} B, {when}]"


def gather(form: Format, entries: Iterable[tuple[int, Filled]]) -> list[Evidence]:
    """`entries` are pairs of offset and entry. A call or its result may be missing."""
    calls: list[Evidence] = []
    at: dict[str, int] = {}
    without_id: deque[int] = deque()
    for offset, filled_entry in entries:
        step = form.turn_step(filled_entry.entry)
        for call in step.calls if step else ():
            before = at.get(call.call_id or "")
            if before is not None and calls[before].result is None:
                continue  # repeated: an agent reuses an id only after the result
            if call.call_id is None:
                without_id.append(len(calls))
            else:
                at[call.call_id] = len(calls)
            calls.append(Evidence(len(calls) + 1, call.tool, call.call_id))
        for result in step.results if step else ():
            ident = result.call_id
            index = at.get(ident) if ident else without_id.popleft() if without_id else None
            if index is None:
                index = len(calls)
                calls.append(Evidence(index + 1, "unknown call", ident))
                if ident:
                    at[ident] = index
            text, known = filled_entry.answer(form, ident)
            calls[index] = replace(
                calls[index], result=result, offset=offset, size=len(text), known=known
            )
    return calls


def shares(
    sizes: Sequence[int], budget: int, heading_sizes: Iterable[int] = repeat(0)
) -> list[int]:
    """Divide a budget of bytes among texts. A text that gets no bytes needs no heading."""
    left, given = budget, []
    for index, (size, heading) in enumerate(zip(sizes, heading_sizes, strict=False)):
        room, waiting = max(0, left - heading), len(sizes) - index
        share = min(size, room, max(LEAST, room // waiting))
        share = 0 if share < min(size, SHORTEST) else share
        left -= share + heading if share else 0
        given.append(share)
    return given


def shortened(data: bytes, room: int) -> bytes:
    """Cut out the middle of longer UTF-8 text; return b"" if `room` cannot hold the marker."""
    size = len(data)
    if size <= room:
        return data
    spare = room - len(_marker(0, size))
    if spare <= 0:
        return b""
    head = boundary(data, min(HEAD, spare * 3 // 4))
    longest = len(_marker(0, size)) + len(str(head)) - 1
    tail = boundary(data, size - (room - longest - head), upwards=True)
    tail -= longest - len(_marker(head, tail))  # the real marker may be shorter
    tail = boundary(data, tail, upwards=True)
    return data[:head] + _marker(head, tail) + data[tail:]


def _marker(start: int, end: int) -> bytes:  # the bytes from `start` to before `end`
    return f"\n[... {end - start:,} bytes left out: {start}-{end} ...]\n".encode()


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
        key=lambda one: (not (one.result and one.result.failed), -(one.offset or 0), -one.size),
    )


def evidence_text(
    calls: Iterable[Evidence], budget: int, text_of: Callable[[Evidence], bytes]
) -> bytes:
    waiting = by_priority(calls)
    heads = [f"{call.line}\n".encode() for call in waiting]
    given = shares([call.size for call in waiting], budget, [len(head) + 1 for head in heads])
    return b"".join(
        head + shortened(text_of(call), room) + b"\n"
        for call, head, room in zip(waiting, heads, given, strict=True) if room
    )  # fmt: skip


def index_lines(calls: Sequence[Evidence], budget: int) -> list[str]:
    left, lines = budget, []
    for call in reversed(calls):
        left -= len(call.line.encode()) + 1
        if left < 0:
            lines.append(f"[... {call.number:,} older calls ...]")
            break
        lines.append(call.line)
    return lines[::-1]
