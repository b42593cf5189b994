"""Run a command, and write down how long each change of rows waited for the lock and held it.

python timed.py FILE COMMAND …
"""

import json
import sys

from brainsurgeon.__main__ import main
from brainsurgeon.sessions.row_writing import RowWriter

change = RowWriter.change


def timed(self, session, edits, *arguments, **keywords):
    done = change(self, session, edits, *arguments, **keywords)
    told = {"session": session, "rows": len(edits), "waited": done.waited, "held": done.held}
    with open(place, "a") as file:
        print(json.dumps(told), file=file)
    return done


if __name__ == "__main__":
    place = sys.argv[1]
    sys.argv = ["brainsurgeon", *sys.argv[2:]]
    RowWriter.change = timed
    main()
