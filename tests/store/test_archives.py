"""What the store says of archives: made, standing, and what was said of their turns."""

from building.turns import conversation_of_turns
from building.world import sql


def test_only_what_is_archived_now_stands(world):
    """After everything went back nothing stands, and the rows stay."""
    talk, ends = conversation_of_turns(4)
    world.put("s.jsonl", talk.bytes())
    world.scan(archive={"enabled": True})
    (session,) = {row[0] for row in sql(world, "SELECT session_id FROM archives")}
    archives = world.store.archives

    assert [one.entry_id for one in archives.standing(session)] == [ends[0][1], ends[1][1]]
    assert {one.depth for one in archives.standing(session)} == {1}
    world.restore_all()
    assert archives.standing(session) == []
    assert len(archives.of_session(session)) == 2


def test_what_a_command_said_is_kept_by_the_digest_of_its_turn(world):
    """The text is held like any value; another digest has none."""
    talk, _ = conversation_of_turns(4)
    world.put("s.jsonl", talk.bytes())
    world.scan()

    with world.store.transaction():
        world.store.archives.keep_summary(b"one", "what came of it: ü")
    assert world.store.archives.summary(b"one") == "what came of it: ü"
    assert world.store.archives.summary(b"other") is None
