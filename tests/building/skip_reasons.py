"""The reason that each command reports for a session that cannot be replaced."""

from brainsurgeon.operations.doctor import doctor
from brainsurgeon.operations.sessions import sessions
from brainsurgeon.operations.status import status


def skip_reasons(world):
    """Return the reasons reported for the only session of a world, by command.

    Checks that a run skips the session twice and stores nothing.
    """
    keys = {"keep_recent": 0}
    now = world.settings(**keys)
    reports = {"dry run": world.scan(dry_run=True, **keys)}
    reports["scan"], reports["scan again"] = world.scan(**keys), world.scan(**keys)
    reasons = {}
    for command, report in reports.items():
        (session,) = report.sessions
        reasons[command] = session.reason
        assert (command, session.outcome) == (command, "skipped")
        assert not report.failed
    (listed,) = sessions(now, world.store, world.clock())
    findings = [finding for finding in doctor(now, world.store) if reasons["scan"] in finding.what]
    reasons["sessions"] = listed.reason
    reasons["status"] = "".join(status(now, world.store, world.clock()).reasons)
    reasons["doctor"] = (
        reasons["scan"] if [finding.level for finding in findings] == ["warning"] else findings
    )

    assert listed.state == "skipped"
    assert world.store.blobs.check_all() == (0, [])
    return reasons
