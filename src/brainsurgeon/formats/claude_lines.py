"""The lines of a Claude Code session, as everything about this format looks at them.

Chained lines have a `uuid` and name their parent; all others (titles, modes, prompts that wait,
records of requests, snapshots) are never edited. Types unknown to us are among the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from brainsurgeon.formats.base import usable_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brainsurgeon.model.entries import Entry

CHAINED = frozenset({"user", "assistant", "attachment", "system", "progress"})
BOUNDARY = "compact_boundary"


@dataclass(frozen=True, slots=True)
class Node:
    """What the chain needs to know of one line.

    `kind` is the entry's type, or its subtype where it is a compaction's boundary. `message` is
    the id of the API message that the line belongs to. `asks` and `answers` are ids of tool
    calls. `side` says that the line is a sub-agent's.
    """

    offset: int
    uuid: str
    kind: str
    parent: str | None
    message: str | None
    asks: tuple[str, ...]
    answers: tuple[str, ...]
    side: bool
    counts: bool


def node(entry: Entry, offset: int) -> Node | None:
    """Give the node of an entry, or None where the entry is not part of the chain."""
    uuid = entry_id(entry)
    if uuid is None:
        return None
    kind = entry["type"]
    parent = entry.get("parentUuid")
    message = message_of(entry)
    ident = message.get("id") if kind == "assistant" else None
    return Node(
        offset, uuid, BOUNDARY if entry.get("subtype") == BOUNDARY else kind,
        parent if isinstance(parent, str) else None,
        (ident if isinstance(ident, str) else uuid) if kind == "assistant" else None,
        tuple(_named(entry, "tool_use", "id")) if kind == "assistant" else (),
        tuple(_named(entry, "tool_result", "tool_use_id")) if kind == "user" else (),
        entry.get("isSidechain") is True,
        counts(entry),
    )  # fmt: skip


def entry_id(entry: Entry) -> str | None:
    """Name a chained entry by its uuid; no other entry has parts, and none is ever edited."""
    uuid = entry.get("uuid")
    kind = entry.get("type")
    chained = isinstance(kind, str) and kind in CHAINED and isinstance(uuid, str)
    return usable_id(uuid) if chained else None


def message_of(entry: Entry) -> dict[str, Any]:
    """Give the API message of an entry, empty where it has none."""
    message = entry.get("message")
    return message if isinstance(message, dict) else {}


def blocks_of(entry: Entry) -> Iterator[tuple[int, Entry]]:
    """Yield the blocks of an entry's message with their index."""
    content = message_of(entry).get("content")
    for index, block in enumerate(content if isinstance(content, list) else []):
        if isinstance(block, dict):
            yield index, block


def counts(entry: Entry) -> bool:
    """Count prompts, results and replies, but not what Claude Code itself adds to them."""
    return entry.get("type") in ("user", "assistant") and not (
        entry.get("isMeta") is True or entry.get("isVisibleInTranscriptOnly") is True
    )


def _named(entry: Entry, kind: str, key: str) -> Iterator[str]:
    for _, block in blocks_of(entry):
        if block.get("type") == kind and isinstance(block.get(key), str):
            yield block[key]
