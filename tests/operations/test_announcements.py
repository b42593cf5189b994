"""Values that may be wanted do not expire unannounced."""

import json
import os
from datetime import UTC, datetime

import pytest
from freezegun import freeze_time

from brainsurgeon.files import processes
from brainsurgeon.operations.doctor import doctor
from brainsurgeon.operations.retention import expiring, retention
from brainsurgeon.operations.status import check, metrics, status
from brainsurgeon.render import runs
from building.world import Clock, Conversation

DAY = 86_400.0


@pytest.fixture
def session(world, monkeypatch):
    """Return the path of a session with an extracted value, beside another session."""
    world.clock = Clock(1_800_000_000.0)
    monkeypatch.setattr(processes, "boot_clock", world.clock)
    world.put("other.jsonl", Conversation("22222222-0000-4000-8000-000000000002").bytes())
    conversation = Conversation()
    conversation.turn("x" * 3000)
    path = world.put("s.jsonl", conversation.bytes())
    os.utime(path, (world.clock.now - DAY,) * 2)
    assert world.scan(keep_recent=0).values_extracted == 1
    retention(world.settings(), world.store, clock=world.clock)
    return path


def live(world, days, **settings):
    """Scan and run retention every day."""
    for _ in range(days):
        world.clock.now += DAY
        world.scan(**settings)
        retention(world.settings(**settings), world.store, clock=world.clock)


def announced(world, **settings):
    """Return the number of announced values, and the announcements that are no trouble."""
    now, chosen = world.clock.now, world.settings(**settings)
    with freeze_time(datetime.fromtimestamp(now, UTC)):
        state = status(chosen, world.store, now)
        findings = doctor(chosen, world.store)
        [number] = [one.value for one in metrics(chosen, world.store)
                    if one.name == "expiring_values"]  # fmt: skip
    troubles = [trouble for trouble in check(state, now) if " expire from " in trouble]
    lines = [one.what for one in findings if " expire from " in one.what and one.level == "note"]
    errors = [one.what for one in findings if " expire from " in one.what and one.level == "error"]

    assert troubles == errors
    assert [trouble.partition(" ")[0] for trouble in troubles] == ([str(number)] if number else [])
    assert all(line in runs.status(state, now, "config.toml") for line in lines)
    return number, lines


def day(world, days):
    return datetime.fromtimestamp(world.clock.now + days * DAY, UTC).date().isoformat()


def test_values_of_missing_sessions_are_announced_a_week_before(world, session):
    """A month after the session was first missed, they expire; a week before, this is a trouble."""
    session.unlink()
    live(world, 23)
    assert announced(world) == (0, [])
    live(world, 2)
    assert announced(world) == (1, [])
    [trouble] = check(status(world.settings(), world.store, world.clock.now), world.clock.now)
    assert trouble.startswith(f"1 value of missing sessions expire from {day(world, 6)} (UTC) on: ")
    assert "move the sessions back" in trouble
    live(world, 7)
    assert announced(world) == (0, [])
    assert world.store.expiry.count_held() == 0


def test_values_are_announced_while_their_root_is_held_back(world, session):
    """The next run that can read the root may delete them."""
    session.unlink()
    live(world, 28)
    world.root.rename(world.base / "away")
    live(world, 20)
    assert announced(world) == (1, [])
    (world.base / "away").rename(world.root)
    live(world, 1)
    assert world.store.expiry.count_held() == 0


def test_nothing_due_costs_nearly_nothing(world, session):
    """Without a value that may expire soon, no search is read or copied."""
    connection, steps = world.store._connection, []
    connection.executemany(
        "INSERT INTO searches VALUES (?, ?, 0, 0, 0, 0, 0, 1, 0, ?)",
        ((number, b"/%d" % number, json.dumps([f"{number}-{one}" for one in range(100)]))
         for number in range(1000, 2000)),
    )  # fmt: skip
    connection.set_progress_handler(lambda: steps.append(None), 100)
    assert expiring(world.settings(), world.store, world.clock.now) == []
    connection.set_progress_handler(None, 0)

    assert len(steps) < 100


def test_standing_values_are_announced_if_the_user_sets_a_term(world, session):
    """By default they stay; with a term they are announced seven days before they expire."""
    live(world, 40)
    assert announced(world) == (0, [])
    term = {"retention_standing": "60d"}
    live(world, 10, **term)
    assert announced(world, **term) == (0, [])
    live(world, 5, **term)
    assert announced(world, **term) == (1, [])


@pytest.mark.parametrize("missing", [True, False])
def test_a_term_below_a_week_is_a_line_and_no_trouble(world, session, missing):
    """What the user set is named from the start, without an alarm."""
    term = {"retention_standing": "5d"}
    if missing:
        session.unlink()
    live(world, 1, **term)
    number, [line] = announced(world, **term)

    assert number == 0
    assert line.startswith("1 value of ")


def test_restored_values_are_not_announced(world, session):
    """A value whose original is back in its session expires without a word."""
    assert announced(world, retention="5d") == (0, [])
    world.restore_all()
    live(world, 1, retention="5d")
    assert world.store.expiry.count_held() == 1
    assert announced(world, retention="5d") == (0, [])
