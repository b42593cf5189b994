"""Records of archives, and the summaries of their turns."""

from building.turns import conversation_of_turns
from building.world import sql


def test_restored_archives_are_not_standing(world):
    """A restore leaves no archive standing and keeps the records."""
    conversation, ends = conversation_of_turns(4)
    world.put("s.jsonl", conversation.bytes())
    world.scan(archive={"enabled": True})
    (session,) = {row[0] for row in sql(world, "SELECT session_id FROM archives")}
    archives = world.store.archives

    assert [archive.entry_id for archive in archives.contained_in(session)] == [
        ends[0][1],
        ends[1][1],
    ]
    assert {archive.depth for archive in archives.contained_in(session)} == {1}
    world.restore_all()
    assert archives.contained_in(session) == []
    assert len(archives.of_session(session)) == 2


def test_summary_is_stored_by_the_digest_of_its_turn(store):
    """A stored summary is returned for the digest of its turn, and for no other."""
    with store.transaction():
        store.archives.keep_summary(b"one", "what came of it: ü")

    assert store.archives.summary(b"one") == "what came of it: ü"
    assert store.archives.summary(b"other") is None
