"""Codex: its files are recognised, and only read.

A running Codex keeps its session open as long as it lives, and continues to write to a file that
was replaced. Versions from 0.146 on store offsets of the file in a database of their own; when the
offsets shift, the conversation disappears from their lists (openai/codex, issues 43744, 35746 and
38341).
"""

from collections.abc import Sequence

from brainsurgeon.formats.base import dict_or_empty
from brainsurgeon.model.entries import Entry

NAME = "codex"
ONLY_READ = (
    "Codex sessions are only read: a running Codex keeps its file open, and newer ones remember"
    " offsets in it"
)


def recognises(entries: Sequence[Entry]) -> bool:
    header = entries[0]
    return header.get("type") == "session_meta" and "id" in dict_or_empty(header.get("payload"))
