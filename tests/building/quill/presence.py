"""While quill is at work on a talk, a file `<talk>.jsonl.ink` is beside it."""

import os

from brainsurgeon.agents.agent import Presence
from brainsurgeon.model.session_files import BusyCheck


class QuillPresence(Presence):
    def busy_check(self, directory, path, clock, quiet, abandoned_after):
        name = f"{os.path.basename(path)}.ink"

        def wet():
            return name in os.listdir(directory)

        return BusyCheck("its ink", lambda: "its ink is wet" if wet() else None, wet)

    def calling_session(self):
        return os.environ.get("QUILL_TALK")
