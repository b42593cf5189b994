"""Leases, maintenance and agents in OpenClaw's state database, with malformed values."""

import os

import pytest

from brainsurgeon.agents.openclaw import database as openclaw_database
from building.claw import LATER, Claw, start_time

MINE = os.getpid()
SINCE = int(LATER * 1000)
# Malformed leases: path, pid, start of the process, opening time.
MALFORMED = {
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
    """Return a state directory whose leases and maintenance accept any values."""
    claw = Claw(tmp_path / "claw")
    claw.sql("DROP TABLE agent_database_leases", state=True)
    claw.sql("CREATE TABLE agent_database_leases (path, owner_pid, owner_start_time, opened_at)",
            state=True)  # fmt: skip
    claw.sql("DROP TABLE state_leases", state=True)
    claw.sql("CREATE TABLE state_leases (scope, expires_at)", state=True)
    return claw


def lease(claw, *row):
    values = [value.format(path=claw.path) if isinstance(value, str) else value for value in row]
    claw.sql("INSERT INTO agent_database_leases VALUES (?, ?, ?, ?)", values, state=True)


def state_presence(claw):
    return openclaw_database.presence(str(claw.path))


def test_lease_of_a_living_process_gives_an_owner(claw):
    """The owner is given by the time at which it opened the database."""
    lease(claw, "{path}", MINE, start_time(MINE), SINCE)

    assert state_presence(claw).opened_at == (SINCE,)


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_lease_makes_the_owners_unknown(claw, case):
    """A malformed lease makes the owners unknown; maintenance is read all the same."""
    lease(claw, "{path}", MINE, start_time(MINE), SINCE)
    lease(claw, *MALFORMED[case])
    claw.sql("INSERT INTO state_leases VALUES ('core:agent-database-maintenance', ?)",
             (SINCE,), state=True)  # fmt: skip

    presence = state_presence(claw)

    assert presence.opened_at is None
    assert not presence.is_closed
    assert presence.maintained == LATER


def test_malformed_lease_of_another_database_is_ignored(claw):
    """A malformed lease is ignored if it clearly belongs to another database."""
    lease(claw, "/elsewhere.sqlite", "many", None, None)

    assert state_presence(claw).opened_at == ()


@pytest.mark.parametrize("until", ["soon", None, b"x", 1e300])
def test_maintenance_with_a_malformed_end_never_ends(claw, until):
    """The database stays closed, even if another maintenance has ended."""
    claw.sql("INSERT INTO state_leases VALUES ('core:agent-database-maintenance', ?)", (until,),
             state=True)  # fmt: skip
    claw.sql("INSERT INTO state_leases VALUES ('core:agent-database-maintenance', 5)", state=True)

    assert state_presence(claw).maintained > LATER * 100


@pytest.mark.parametrize("row", [("main", 5), (b"x", "a"), ("main", "a\0b"), (None, None)])
def test_malformed_list_of_databases_is_unknown(claw, row):
    """A malformed list of databases counts like one that cannot be read."""
    claw.sql("DROP TABLE agent_databases", state=True)
    claw.sql("CREATE TABLE agent_databases (agent_id, path)", state=True)
    claw.sql("INSERT INTO agent_databases VALUES (?, ?)", row, state=True)

    assert openclaw_database.registered(str(claw.base)) is None
