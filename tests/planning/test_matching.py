"""Matching extractions to the places of an entry."""

import json

from brainsurgeon.agents.openclaw.format import EMPTIED, OpenClaw
from brainsurgeon.model.records import Extraction, Records, Tombstone
from building.format_reading import snapshot
from building.world import dump

OWN, OTHER = 1, 2
PATH = ("message", "content", 0)
EMPTY = json.loads(EMPTIED)
ENTRY = {
    "type": "message", "id": "0000000a", "message": {"role": "assistant", "content": [EMPTY]},
}  # fmt: skip


def emptied(ident, session, digest, blob):
    """Return the record of an emptied thinking block: no placeholder names its value."""
    return Extraction(
        "0000000a", "0000000a", PATH, "thinking", None, 9, block=True, call=None, parent=None,
        rest=None, tokens=3, id=ident, session_id=session, replacement=EMPTIED.decode(), size=9,
        digest=digest, blob_id=blob, run_id=None, archive_id=None, extracted_at=0.0,
        restored_at=None, tombstone=None if blob else Tombstone(1.0, "age"), state="standing",
    )  # fmt: skip


def matched_ids(*extractions):
    """Return the ids of the extractions matched to the entry, in the session OWN."""
    session = snapshot(OpenClaw(), dump(ENTRY), Records(extractions=extractions, own=OWN))
    return [extraction.id for extraction in session.found.standing.get(0, ())]


def test_own_tombstone_excludes_a_value_of_another_session():
    """The expired value of this session is not replaced by a different one."""
    assert matched_ids(emptied(1, OWN, b"a", None), emptied(2, OTHER, b"b", 7)) == [1]


def test_expired_value_is_matched_to_another_sessions_copy():
    """A value that expired here can be restored from a session that still holds it."""
    assert matched_ids(emptied(1, OWN, b"a", None), emptied(2, OTHER, b"a", 7)) == [2]


def test_different_values_of_other_sessions_match_nothing():
    """Different values of two other sessions match nothing, even if one has expired."""
    assert matched_ids(emptied(1, 3, b"a", None), emptied(2, OTHER, b"b", 7)) == []
