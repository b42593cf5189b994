"""Begin a change of rows, report it under the lock, and hold the lock for 0.3 seconds.

python lock_holder.py DATABASE SESSION
"""

import sys
import time
from pathlib import Path

from brainsurgeon.agents.openclaw.database import plain
from brainsurgeon.agents.rows import RowEdit
from brainsurgeon.files.reading import RefusedError
from brainsurgeon.model.session_files import Root
from brainsurgeon.sessions.discovery import open_session
from brainsurgeon.sessions.row_listing import list_rows_at


def main():
    path, session = sys.argv[1:]
    with open_session(row_session(path, session)) as opened:
        place = opened.lines.index[6]
        before = opened.lines.row(place)
    placeholder = before.line().replace(b"exec", b'[[extracted-x]]"')
    edit = RowEdit(place.key, before, plain(placeholder, compressing=True))

    def fence(_):
        print("holding", flush=True)
        time.sleep(0.3)

    try:
        with opened.writing():
            opened.change([edit], fence, time.time, durable=False)
    except RefusedError as error:
        print(error)


def row_session(path, session):
    """Return a session of a database below a directory of agents."""
    (session_rows,) = list_rows_at([Root(str(Path(path).parents[2]))], f"{path}/{session}")
    return session_rows


if __name__ == "__main__":
    main()
