"""quill's talks are in a directory for each desk: `<home>/desks/<desk>/<talk>.jsonl`."""

import os

from brainsurgeon.agents.agent import Home, Owner, directory_named


def home_directory():
    return directory_named("QUILL_HOME", "~/.quill")


class QuillHome(Home):
    side_files = r"\.draft\.jsonl$"
    note = "its talks are short"

    def root(self):
        return os.path.join(home_directory(), "desks")

    def owner(self, path):
        directory, name = os.path.split(path)
        above, desk = os.path.split(directory)
        is_talk = os.path.basename(above) == "desks" and name.endswith(".jsonl")
        return Owner(f"quill:{desk}", directory) if is_talk else None
