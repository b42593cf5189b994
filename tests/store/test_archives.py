"""What the store says of archives: asked for, made, standing, and what was said of their turns."""

from brainsurgeon.model.turns import Archive
from building.turns import turns
from building.world import sql

ONE = Archive("c", "p", 3, 900, 90, 1, "so", b"digest")


def test_what_is_asked_for_waits_until_it_is_made(world):
    """A later note replaces an earlier one, and the archive that is made ends the waiting."""
    talk, _ = turns(4)
    world.put("s.jsonl", talk.bytes())
    world.scan(archive={"enabled": True})
    archives = world.store.archives
    (session,) = {row[0] for row in sql(world, "SELECT session_id FROM archives")}

    with world.store.transaction():
        archives.ask(session, "p", "first", 1.0)
        archives.ask(session, "p", "second", 2.0)
    waiting = [one for one in archives.of_session(session) if one.state == "asked"]
    assert [(one.prompt_id, one.note) for one in waiting] == [("p", "second")]
    assert archives.asked(session)

    with world.store.transaction():
        made = archives.add(session, [ONE], 3.0)
        archives.confirm(session, [*made.values()], [])
    assert not archives.asked(session)


def test_only_what_is_archived_now_stands(world):
    """After everything went back nothing stands, and the rows stay and say so."""
    talk, ends = turns(4)
    world.put("s.jsonl", talk.bytes())
    world.scan(archive={"enabled": True})
    (session,) = {row[0] for row in sql(world, "SELECT session_id FROM archives")}
    archives = world.store.archives

    assert [one.entry_id for one in archives.standing(session)] == [ends[0][1], ends[1][1]]
    assert {one.depth for one in archives.standing(session)} == {1}
    world.restore_all()
    assert archives.standing(session) == []
    assert [one.state for one in archives.of_session(session)] == ["undone", "undone"]


def test_what_a_command_said_is_kept_by_the_digest_of_its_turn(world):
    """The text is held like any value; another digest has none."""
    talk, _ = turns(4)
    world.put("s.jsonl", talk.bytes())
    world.scan()

    with world.store.transaction():
        world.store.archives.keep_summary(b"one", "what came of it: ü", 1.0)
    assert world.store.archives.summary(b"one") == "what came of it: ü"
    assert world.store.archives.summary(b"other") is None
