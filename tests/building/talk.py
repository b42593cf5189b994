"""Talks with quill, the small agent of the tests."""

import uuid

from building.world import dump


class Talk:
    """Builds a talk line by line."""

    def __init__(self, name="talk"):
        self.lines = [{"quill": 1, "talk": name}]
        self.name = name

    def add(self, who, text, **fields):
        ident = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self.name}/{len(self.lines)}"))
        self.lines.append({"id": ident, "who": who, "say": text, **fields})
        return ident

    def turn(self, text):
        """Add a prompt, a call, its result and an answer; return the result's id."""
        call = f"call-{len(self.lines)}"
        self.add("user", "read it")
        self.add("quill", "", call=call, tool="read", use={"page": f"page {call}"})
        ident = self.add("tool", text, call=call, tool="read")
        self.add("quill", "it is read")
        return ident

    def bytes(self):
        return b"".join(map(dump, self.lines))
