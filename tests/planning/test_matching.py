"""Which extraction stands at a place of an entry."""

import json

from brainsurgeon.formats.base import ParsedLine
from brainsurgeon.formats.openclaw import OpenClaw
from brainsurgeon.model.records import Extraction, Records
from brainsurgeon.model.sessions import NO_SURVEY
from brainsurgeon.planning.matching import Matcher

OWN, OTHER = 1, 2
PATH = ("message", "content", 0, "thinking")
EMPTY = {"type": "thinking", "thinking": ""}
ENTRY = {
    "type": "message", "id": "0000000a", "message": {"role": "assistant", "content": [EMPTY]},
}  # fmt: skip


def emptied(ident, session, digest, blob):
    """Return the record of a thinking block that was emptied, so that nothing names its value."""
    return Extraction(
        ident, session, "0000000a", "0000000a", PATH, "thinking", None, block=False,
        replacement='""', anchor=None, rest=None, chars=9, size=9, digest=digest, blob_id=blob,
        run_id=None, archive_id=None, tokens=3, extracted_at=0.0, restored_at=None,
        expired_at=None if blob else 1.0, expired_why=None if blob else "age", state="standing",
    )  # fmt: skip


def standing(*extractions):
    """Return the ids of the extractions that stand in the entry, in a session that has OWN."""
    matcher = Matcher(OpenClaw(), NO_SURVEY, Records(extractions=extractions, own=OWN))
    parsed = ParsedLine(0, json.dumps(ENTRY).encode(), ENTRY, ENTRY["id"], terminated=True)
    return [one.id for one in matcher.standing(parsed)]


def test_a_tombstone_of_the_session_itself_decides():
    """Where its own value expired, that of another session is not put in its place."""
    assert standing(emptied(1, OWN, b"a", None), emptied(2, OTHER, b"b", 7)) == [1]


def test_the_same_value_of_another_session_is_as_good():
    """A value that expired here goes back from where it is still held."""
    assert standing(emptied(1, OWN, b"a", None), emptied(2, OTHER, b"a", 7)) == [2]


def test_of_two_other_sessions_neither_decides():
    """Nobody knows which of two values stood there, also where one of them expired."""
    assert standing(emptied(1, 3, b"a", None), emptied(2, OTHER, b"b", 7)) == []
