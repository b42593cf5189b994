"""Run a command, and record how long each change of rows waited for the lock and held it.

python timed_rows.py FILE COMMAND …
"""

import json
import sys
import time

from brainsurgeon.__main__ import main
from brainsurgeon.agents.rows import OpenRows

change = OpenRows.change


def timed_change(session, edits, fence, clock, **keywords):
    times = [time.monotonic()]

    def locked(database):
        times.append(time.monotonic())
        return fence(database)

    change(session, edits, locked, clock, **keywords)
    started, locked_at = times
    held = time.monotonic() - locked_at
    record = {"rows": len(edits), "waited": locked_at - started, "held": held}
    with open(place, "a") as file:
        print(json.dumps(record), file=file)


if __name__ == "__main__":
    place = sys.argv[1]
    sys.argv = ["brainsurgeon", *sys.argv[2:]]
    OpenRows.change = timed_change
    main()
