"""Writes a session line by line, as Gemini CLI 0.61.0 does."""

import itertools
import subprocess
from contextlib import contextmanager

from building.world import dump

LONG = "a line of text " * 60
PICTURE = {"inlineData": {"mimeType": "image/png", "data": "A" * 900}}
SESSION = "33333333-0000-4000-8000-000000000001"


@contextmanager
def running(script, place=None, *words):
    """Run a script with a path like that of Gemini CLI, in its directory or another."""
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text("echo; read line")
    with subprocess.Popen(
        ["sh", "-u", script, *words], cwd=place or script.parent, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        process.stdout.readline()  # the kernel shows the words of a process only when it has begun
        yield


class Chat:
    def __init__(self):
        self._numbers = itertools.count(1)
        self.lines = []
        self.history = {}  # what counts
        self.metadata()

    def metadata(self):
        self.lines.append({"sessionId": SESSION, "projectHash": "f" * 64, "startTime": "t",
                           "lastUpdated": "t", "kind": "main"})  # fmt: skip

    def add(self, line):
        self.lines.append(line)

    def message(self, kind, content, ident=None, **fields):
        ident = ident or f"44444444-0000-4000-8000-{next(self._numbers):012}"
        message = {"id": ident, "timestamp": "2026-11-28T18:19:03.652Z", "type": kind,
                   "content": content, **fields}  # fmt: skip
        self.history[ident] = message
        self.add(message)
        return ident

    def user(self, *parts, **fields):
        parts = [{"text": part} if isinstance(part, str) else part for part in parts]
        return self.message("user", parts, **fields)

    def answer(self, text="done.", **fields):
        return self.message("gemini", text, **fields)

    @staticmethod
    def result(call, response, *more):
        name = call.partition("__")[0]
        return [{"functionResponse": {"id": call, "name": name, "response": response}}, *more]

    def under(self, call, response=None, *more, args=None, resultDisplay="shown"):  # noqa: N803
        result = self.result(call, response or {"output": LONG}, *more)
        return {"id": call, "name": call.partition("__")[0], "args": args or {"path": "f"},
                "result": result, "status": "success", "resultDisplay": resultDisplay}  # fmt: skip

    def call(self, call, response, *more, thoughts=(), **fields):
        """Add an answer with a call, first without it, and the result."""
        ident = self.message("gemini", "", thoughts=list(thoughts))
        self.message("gemini", "", ident, thoughts=list(thoughts),
                     toolCalls=[self.under(call, response, *more, **fields)])  # fmt: skip
        self.user(*self.result(call, response, *more))
        return ident

    def turn(self, call, text=LONG):
        """Add a turn with a call; return the id of its prompt."""
        prompt = self.user("go on")
        self.call(call, {"output": text})
        self.answer()
        return prompt

    def begin(self):
        """Add what a process writes first."""
        self.metadata()
        context = {"id": "d" * 32, "type": "user", "content": [{"text": "<session_context>"}]}
        self.add({"$set": {"messages": [context]}})
        self.add({"$set": {"sessionId": SESSION}})

    def resume(self):
        """Add what a resume writes: calls as parts, and each result in a message of its own."""
        self.begin()
        anew = []
        for message in self.history.values():
            calls = message.get("toolCalls", ())
            parts = [{"functionCall": {"id": one["id"], "name": one["name"], "args": one["args"]}}
                     for one in calls]  # fmt: skip
            results = [part for one in calls for part in one["result"]]
            content = message["content"]
            text = [{"text": content}] if content and isinstance(content, str) else content or []
            anew.append({**message, "content": [*text, *parts]})
            if calls:
                anew.append({"id": f"{message['id']}_response", "type": "user",
                             "content": results})  # fmt: skip
        self.history = {message["id"]: message for message in anew}
        self.add({"$set": {"messages": anew, "lastUpdated": "t"}})

    def bytes(self):
        return b"".join(map(dump, self.lines))
