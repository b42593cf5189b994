"""What every dialect shares that says what its entries are in their turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from brainsurgeon.model.entries import stub_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.model.entries import Entry

FILE_KEYS = ("path", "file_path", "filePath", "notebook_path")
"""Arguments that name a file, whatever the tool is called."""
_REFERENCES = (
    "targetId", "appendParentId", "firstKeptEntryId", "fromId", "logicalParentUuid", "leafUuid",
)  # fmt: skip
"""Fields that name another entry, beside its parent."""


def references(entry: Entry) -> tuple[str, ...]:
    """Give the ids of other entries that an entry names, but for the one that it continues."""
    return tuple(name for key in _REFERENCES if isinstance(name := entry.get(key), str))


def files_in(arguments: Any) -> tuple[str, ...]:
    """Give the files that the arguments of a call name."""
    named = (arguments.get(key) for key in FILE_KEYS) if isinstance(arguments, dict) else ()
    return tuple(name for name in named if isinstance(name, str) and name and not stub_in(name))


def first_line(texts: Iterable[object]) -> str:
    """Give the first line of some texts that says something and was not cut out."""
    for text in texts:
        if isinstance(text, str) and not stub_in(text):
            for line in text.splitlines():
                if line.strip():
                    return line.strip()
    return ""


def number_in(record: Any, *keys: str) -> int | None:
    """Give the first whole number that a record has under one of some keys."""
    values = (record.get(key) for key in keys) if isinstance(record, dict) else ()
    return next((value for value in values if type(value) is int), None)


def texts_in(content: Any) -> list[tuple[int | None, str]]:
    """Give the texts of a content with the index of their block, None where it is one string."""
    if isinstance(content, str):
        return [(None, content)] if content.strip() else []
    blocks = enumerate(content if isinstance(content, list) else [])
    return [
        (index, block["text"])
        for index, block in blocks
        if isinstance(block, dict)
        and block.get("type") == "text"
        and isinstance(block.get("text"), str)
        and block["text"].strip()
    ]
