"""Stored context loads and calibrations of sessions."""

import os

from brainsurgeon.model.reports import Loads
from brainsurgeon.model.turns import Calibration, Fullness
from building import store_rows

LINE = Calibration(0.3, 900.0, 12, "session", 0.02)
FULL = Fullness(90, 100, 0.75, LINE, "m-1", "mid", step=2)


def test_newer_context_load_replaces_the_stored_one(store):
    """A context load is stored with all fields, and replaced by a newer one."""
    session = store_rows.store_session(store)
    with store.transaction():
        store.calibrations.remember(session.id, Fullness(1, 2, 0.5, LINE))
        store.calibrations.remember(session.id, FULL)

    assert store.calibrations.of(session.id) == FULL
    assert store_rows.count_rows(store, "calibration") == 1


def test_loads_sums_sessions_and_counts_those_above_threshold(store):
    """Loads are summed; a session exactly at its threshold is not counted as above it."""
    assert store.calibrations.loads() == Loads()
    for tokens in (90, 75, 10):
        session = store_rows.store_session(store, session=f"s{tokens}")
        with store.transaction():
            store.calibrations.remember(session.id, Fullness(tokens, 100, 0.75, LINE))

    assert store.calibrations.loads() == Loads(3, 175, 300, 1)


def test_of_agent_lists_fitted_lines_of_its_other_sessions(store):
    """Default lines, other agents and the session itself are left out."""
    guess = Calibration(0.33, 0.0, 0, "default")
    first, second = store_rows.store_session(store), store_rows.store_session(store, session="two")
    guessed, other = (
        store_rows.store_session(store, session="3"),
        store_rows.store_session(store, agent="other"),
    )
    with store.transaction():
        for record, line in ((first, LINE), (second, LINE), (guessed, guess), (other, LINE)):
            store.calibrations.remember(record.id, Fullness(1, 2, 0.5, line))
    home = os.fsencode(first.agent_directory)

    assert store.calibrations.of_agent(home, first.id) == [LINE]
    assert store.calibrations.of_agent(home, None) == [LINE, LINE]
