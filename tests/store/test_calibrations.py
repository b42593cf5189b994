"""How full sessions are, remembered."""

import os

from brainsurgeon.model.turns import Calibration, Fullness, Loads
from building import store_rows

LINE = Calibration(0.3, 900.0, 12, "session", 0.02)
FULL = Fullness(90, 100, 0.75, LINE, "m-1", "mid", step=2)


def test_what_is_remembered_comes_back(store):
    """A context load is stored whole, and replaced by a newer one."""
    one = store_rows.store_session(store)
    with store.transaction():
        store.calibrations.remember(one.id, Fullness(1, 2, 0.5, LINE))
        store.calibrations.remember(one.id, FULL)

    assert store.calibrations.of(one.id) == FULL
    assert store_rows.count_rows(store, "calibration") == 1


def test_loads_are_summed_with_those_that_are_too_full(store):
    """A session at its threshold is not above it."""
    assert store.calibrations.loads() == Loads()
    with store.transaction():
        for number, load in enumerate((90, 75, 10)):
            one = Fullness(load, 100, 0.75, LINE)
            store.calibrations.remember(rows_session(store, number), one)

    assert store.calibrations.loads() == Loads(3, 175, 300, 1)


def rows_session(store, number):
    """Note one more session, as part of a transaction."""
    return store.sessions.note(store_rows.session_file(session=f"s{number}"), "openclaw", None).id


def test_only_lines_through_own_calls_speak_for_an_agents_others(store):
    """A session's own word, and what was only guessed, is left out; other agents say nothing."""
    guess = Calibration(0.33, 0.0, 0, "default")
    one, two = store_rows.store_session(store), store_rows.store_session(store, session="two")
    three, other = (
        store_rows.store_session(store, session="3"),
        store_rows.store_session(store, agent="other"),
    )
    with store.transaction():
        for record, line in ((one, LINE), (two, LINE), (three, guess), (other, LINE)):
            store.calibrations.remember(record.id, Fullness(1, 2, 0.5, line))
    home = os.fsencode(one.agent_directory)

    assert store.calibrations.of_agent(home, one.id) == [LINE]
    assert store.calibrations.of_agent(home, None) == [LINE, LINE]
