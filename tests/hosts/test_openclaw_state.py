"""What OpenClaw's state database says, also where it says what no release is known to write."""

import os

import pytest

from brainsurgeon.hosts import openclaw_database
from building.claw import LATER, Claw, start_time

MINE = os.getpid()
SINCE = int(LATER * 1000)
# Leases that cannot be understood: path, pid, start of the process, since when.
ODD = {
    "a pid in words": ("{path}", "many", None, SINCE),
    "no pid": ("{path}", None, None, SINCE),
    "a pid with a fraction": ("{path}", 1.5, None, SINCE),
    "a pid that is a group": ("{path}", -1, None, SINCE),
    "a pid beyond every process": ("{path}", 2**62, None, "soon"),
    "a moment in words": ("{path}", MINE, None, "soon"),
    "no moment": ("{path}", MINE, None, None),
    "no path": (None, MINE, None, SINCE),
    "a path of bytes": (b"agents", MINE, None, SINCE),
    "a path that is none": ("a\0b", MINE, None, SINCE),
}


@pytest.fixture
def claw(tmp_path):
    """Give a state directory whose leases and maintenance take whatever is written."""
    one = Claw(tmp_path / "claw")
    one.sql("DROP TABLE agent_database_leases", state=True)
    one.sql("CREATE TABLE agent_database_leases (path, owner_pid, owner_start_time, opened_at)",
            state=True)  # fmt: skip
    one.sql("DROP TABLE state_leases", state=True)
    one.sql("CREATE TABLE state_leases (scope, expires_at)", state=True)
    return one


def lease(claw, *row):
    values = [one.format(path=claw.path) if isinstance(one, str) else one for one in row]
    claw.sql("INSERT INTO agent_database_leases VALUES (?, ?, ?, ?)", values, state=True)


def ask(claw):
    return openclaw_database.presence(str(claw.path))


def test_a_lease_of_a_living_process_names_an_owner(claw):
    """What is understood is told as it stands."""
    lease(claw, "{path}", MINE, start_time(MINE), SINCE)

    assert ask(claw).opened_at == (SINCE,)


@pytest.mark.parametrize("odd", ODD)
def test_a_lease_that_cannot_be_understood_leaves_the_owners_unknown(claw, odd):
    """Beside it nobody can tell who has the database open: no claim of a run counts as dead."""
    lease(claw, "{path}", MINE, start_time(MINE), SINCE)
    lease(claw, *ODD[odd])
    claw.sql("INSERT INTO state_leases VALUES ('core:agent-database-maintenance', ?)",
             (SINCE,), state=True)  # fmt: skip

    said = ask(claw)

    assert said.opened_at is None
    assert not said.nobody
    assert said.maintained == LATER


def test_a_lease_of_another_database_may_be_odd(claw):
    """Only leases of this database, or of nobody knows which, matter."""
    lease(claw, "/elsewhere.sqlite", "many", None, None)

    assert ask(claw).opened_at == ()


@pytest.mark.parametrize("until", ["soon", None, b"x", 1e300])
def test_maintenance_without_a_known_end_goes_on(claw, until):
    """A doctor at work of whom nobody knows until when keeps us out."""
    claw.sql("INSERT INTO state_leases VALUES ('core:agent-database-maintenance', ?)", (until,),
             state=True)  # fmt: skip
    claw.sql("INSERT INTO state_leases VALUES ('core:agent-database-maintenance', 5)", state=True)

    assert ask(claw).maintained > LATER * 100


@pytest.mark.parametrize("row", [("main", 5), (b"x", "a"), ("main", "a\0b"), (None, None)])
def test_a_list_of_databases_that_cannot_be_understood_is_none(claw, row):
    """It is as good as one that cannot be read."""
    claw.sql("DROP TABLE agent_databases", state=True)
    claw.sql("CREATE TABLE agent_databases (agent_id, path)", state=True)
    claw.sql("INSERT INTO agent_databases VALUES (?, ?)", row, state=True)

    assert openclaw_database.registered(str(claw.base)) is None
