"""What is due is found without a look at every row, and nothing is missed."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from brainsurgeon.decide import retention as decide
from brainsurgeon.model.records import Confirmation
from brainsurgeon.store import due as due_module
from brainsurgeon.store import open_store
from brainsurgeon.store.due import PAGE
from building.rows import begin, count, cut, put, session

NOW = 1_000_000.0
EVER = (None, 0.0, 100.0, 1000.0)
moments = st.sampled_from((NOW - 1100, NOW - 1000, NOW - 999.5, NOW - 100, NOW - 50, NOW, NOW + 70))
rows = st.fixed_dictionaries({
    "session": st.integers(0, 2),
    "state": st.sampled_from(("standing", "restored", "expired", "pending")),
    "extracted_at": moments, "sighted_at": moments, "seen_again": st.none() | moments,
    "restored_at": st.none() | moments, "marked_at": st.none() | moments,
})  # fmt: skip
EVERYWHERE = ({}, {"session": "two"}, {"agent": "other"})


def fill(store, given_rows):
    """Write rows as given; return them with their ids and sessions."""
    sessions = [session(store, **where) for where in EVERYWHERE]
    for table in ("extractions", "ages", "loose", "blobs"):
        store._connection.execute(f"DELETE FROM {table}")
    for number, row in enumerate(given_rows):
        at = sessions[row["session"]]
        with store.transaction():
            blob = put(store, at.agent_id, b"%d" % number)[0]
            store._connection.execute(
                "INSERT INTO extractions (session_id, entry_id, stub, path, kind, block, exact,"
                " chars, size, digest, blob_id, state, extracted_at, sighted_at, restored_at,"
                " marked_at) VALUES (?, 'e', 's', '[]', 'k', 0, 0, 1, 1, x'00', ?, ?, ?, ?, ?, ?)",
                (at.id, blob, row["state"], row["extracted_at"], row["sighted_at"],
                 row["restored_at"], row["marked_at"]),
            )  # fmt: skip
            if row["state"] == "expired":
                store._connection.execute("UPDATE extractions SET blob_id = NULL WHERE entry_id ="
                                          " 'e' AND state = 'expired'")  # fmt: skip
    return [one.path for one in sessions]


def by_every_row(store, keep, standing, now, changed):
    """Name what is due by a look at all that is held."""
    due = set()
    held = store._connection.execute(
        "SELECT e.id, e.extracted_at, e.sighted_at, e.restored_at, e.marked_at, s.path"
        " FROM extractions e JOIN sessions s ON s.id = e.session_id"
        " WHERE e.blob_id IS NOT NULL AND e.state IN ('standing', 'restored')"
    ).fetchall()
    for *moments, marked_at, path in held:
        for stands in (False, True):
            one = decide.Held(*moments, marked_at, stands, changed(os.fsdecode(path)))
            end = decide.expires_at(one, keep, standing)
            if marked_at is not None or (end is not None and end[0] <= now):
                due.add(one.id)
    return due


def gathered(store, *terms):
    """Name what the store finds, and have it remember how old what it looked at is."""
    with store.expiry.due() as due:
        due.gather(*terms)
        found = {value.id for page in due.values() for value, _ in page}
        ages = list(due.ages())
    with store.transaction():
        store.expiry.note_ages(ages, terms[2])
    return found


@settings(
    max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    given_rows=st.lists(rows, max_size=8), keep=st.sampled_from(EVER),
    standing=st.sampled_from(EVER), later=st.sampled_from((0.0, 60.0, 5000.0)),
    files=st.lists(st.sampled_from((0.0, NOW - 1000, NOW - 10)), min_size=3, max_size=3),
)  # fmt: skip
def test_all_that_is_due_is_found_and_nothing_else(
    store, given_rows, keep, standing, later, files
):  # fmt: skip
    """Whatever is held, the store finds what a look at every row finds, now and later again."""
    paths = fill(store, given_rows)
    changed = dict(zip(paths, files, strict=True)).__getitem__

    for now in (NOW, NOW + later):
        assert gathered(store, keep, standing, now, changed) == by_every_row(
            store, keep, standing, now, changed
        )
        ids = [row[0] for row in store._connection.execute("SELECT id FROM extractions")]
        with store.transaction():
            for number, row in zip(ids, given_rows, strict=False):
                if row["seen_again"] is not None:
                    store.extractions.sight([number], row["seen_again"])


def kept(store, entries, value=None):
    """Have a rewrite happen that cut values out of entries, one second after the epoch."""
    row = session(store)
    done = begin(store, row, [cut(one) for one in entries], value or b"value")
    with store.transaction():
        store.journal.confirm(done, row.id, Confirmation())
        store.journal.close(done)
    return row


def test_what_is_added_while_a_run_looks_is_found_by_the_next(store):
    """A session to which something was added meanwhile is not taken for looked at."""
    kept(store, ["e1"])
    terms = 10.0, None, 5.0, lambda _: 0.0
    with store.expiry.due() as due:
        due._look_at(1, {"keep": 10.0, "standing": None, "now": 5.0, "silent": False})
        ages = list(due.ages())
        kept(store, ["e2"])
        with store.transaction():
            store._connection.execute("UPDATE extractions SET extracted_at = 0.5, sighted_at = 0.5")
            store.expiry.note_ages(ages, 5.0)

    assert gathered(store, *terms) == set()
    assert len(gathered(store, 10.0, None, 10.6, lambda _: 0.0)) == 2


def test_a_page_is_no_longer_than_promised(store):
    """However much is due, it comes in pages of a bounded length, and each value once."""
    kept(store, [f"e{number}" for number in range(2 * PAGE + 7)])
    with store.expiry.due() as due:
        due.gather(10.0, None, 100.0, lambda _: 0.0)
        pages = [[value.id for value, _ in page] for page in due.values()]

    assert [len(page) for page in pages] == [PAGE, PAGE, 7]
    assert len({one for page in pages for one in page}) == 2 * PAGE + 7


@pytest.mark.parametrize(("most", "sizes"), [(25, [2, 2, 1]), (1, [1] * 5), (100, [5])])
def test_a_page_holds_no_more_bytes_than_promised(store, monkeypatch, most, sizes):
    """Large values come in shorter pages; one that is larger than that comes alone."""
    monkeypatch.setattr(due_module, "LARGE", most)
    kept(store, [f"e{number}" for number in range(5)], b"ten bytes.")
    with store.expiry.due() as due:
        due.gather(10.0, None, 100.0, lambda _: 0.0)

        assert [len(page) for page in due.values()] == sizes


def test_a_session_without_values_is_forgotten(store):
    """When nothing of a session is held any more, no later run looks at it."""
    kept(store, ["e1"])
    with store.transaction():
        store.expiry.mark([1], 1.0)
        assert store.expiry.delete([(1, "for the test")], 50.0) == ([1], 1)

    assert gathered(store, 10.0, None, 100.0, lambda _: 0.0) == set()
    assert count(store, "ages") == 0


def test_what_is_marked_is_counted_without_a_look_at_what_is_not(store):
    """The count costs what is marked, however much is held."""
    kept(store, [f"e{number}" for number in range(5000)])
    with store.transaction():
        store.expiry.mark([1, 2], 1.0)
    steps = []
    store._connection.set_progress_handler(lambda: steps.append(1), 100)
    marked = store.expiry.count_marked()
    store._connection.set_progress_handler(None, 0)

    assert (marked, len(steps) < 5) == (2, True)


# --- what nothing names --------------------------------------------------------------------------


def test_a_value_that_no_row_names_is_an_orphan_until_one_does(store):
    """It is one when it is shelved, none when its row is written, and one when that is gone."""
    row = session(store)
    with store.transaction():
        blob = put(store, row.agent_id, b"value")[0]
    assert store.expiry.orphans(10**6) == [blob]
    entry = begin(store, row, [cut()])
    assert store.expiry.orphans(10**6) == []
    with store.transaction():
        store.journal.abandon(entry)
    assert store.expiry.orphans(10**6) == [blob]
    with store.transaction():
        assert store.expiry.sweep([blob], 10**6) == 1
    assert count(store, "blobs") == count(store, "loose") == 0


def test_an_orphan_that_is_named_in_time_is_not_swept(store):
    """Between the look for orphans and their deletion a rewrite may take one up."""
    row = session(store)
    with store.transaction():
        blob = put(store, row.agent_id, b"value")[0]
    orphans = store.expiry.orphans(10**6)
    kept(store, ["e1"])
    with store.transaction():
        assert (orphans, store.expiry.sweep(orphans, 10**6)) == ([blob], 0)
    assert count(store, "blobs") == 1


@pytest.mark.parametrize("stored", [1.0, 10**6])
def test_a_store_from_before_knows_its_orphans_and_ages_when_it_is_migrated(
    directory, stored
):  # fmt: skip
    """What an older program left is found as if it had been noted from the beginning."""
    with open_store(directory) as store:
        row = kept(store, ["e1", "e2"])
        with store.transaction():
            orphan = store.blobs.put(row.agent_id, b"orphan", stored)[0]
        store._connection.execute("UPDATE blobs SET stored_at = ?", (stored,))
        for statement in (
            "DROP TRIGGER extractions_seen_earlier", "DROP TRIGGER extractions_added",
            "DROP TRIGGER extractions_gone", "DROP INDEX extractions_held",
            "DROP INDEX extractions_marked", "DROP TABLE ages", "DROP TABLE loose",
            "DELETE FROM _sqlite_migrations WHERE name = 'm006_find_what_is_due'",
        ):  # fmt: skip
            store._connection.execute(statement)
    with open_store(directory) as store:
        terms = 10.0, None, 100.0, lambda _: 0.0
        assert gathered(store, *terms) == by_every_row(store, *terms) == {1, 2}
        assert store.expiry.orphans(86_400.0 + 50.0) == ([orphan] if stored == 1.0 else [])
        assert store.expiry.count_held() == 2
