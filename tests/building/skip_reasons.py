"""What every verb says of a session that cannot be replaced as it is: one reason, everywhere."""

from brainsurgeon.operations.doctor import doctor
from brainsurgeon.operations.sessions import sessions
from brainsurgeon.operations.status import status


def skip_reasons(world, **settings):
    """Give why nothing is done with the one session of a world, by who says so.

    A run, a dry run, the list of sessions, `status` and the doctor are asked; the run must find
    it skipped twice, and must store nothing.
    """
    keys = {"keep_recent": 0, **settings}
    now = world.settings(**keys)
    said = {"dry run": world.scan(dry_run=True, **keys)}
    said["scan"], said["scan again"] = world.scan(**keys), world.scan(**keys)
    told = {}
    for who, report in said.items():
        (one,) = report.sessions
        told[who] = one.reason
        assert (who, one.outcome) == (who, "skipped")
        assert not report.failed
    (listed,) = sessions(now, world.store, world.clock())
    standing = status(now, world.store, world.clock())
    found = [one for one in doctor(now, world.store) if told["scan"] in one.what]
    told["sessions"] = listed.reason
    told["status"] = "".join(standing.reasons)
    told["doctor"] = told["scan"] if [one.level for one in found] == ["warning"] else found

    assert listed.state == "skipped"
    assert world.store.blobs.check_all() == (0, [])
    return told
