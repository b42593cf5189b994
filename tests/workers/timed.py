"""Run a command, and write down how long each change of rows waited for the lock and held it.

python timed.py FILE COMMAND …
"""

import json
import sys
import time

from brainsurgeon.__main__ import main
from brainsurgeon.sessions.row_writing import RowWriter

change = RowWriter.change


def timed(self, session, edits, gate, **keywords):
    times = [time.monotonic()]

    def locked(database):
        times.append(time.monotonic())
        return gate(database)

    done = change(self, session, edits, locked, **keywords)
    begun, taken = times
    told = {"session": session, "rows": len(edits), "waited": taken - begun,
            "held": time.monotonic() - taken}  # fmt: skip
    with open(place, "a") as file:
        print(json.dumps(told), file=file)
    return done


if __name__ == "__main__":
    place = sys.argv[1]
    sys.argv = ["brainsurgeon", *sys.argv[2:]]
    RowWriter.change = timed
    main()
