"""Codex's session files."""

import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import chain

from brainsurgeon.agents.agent import Home, Owner, directory_named
from brainsurgeon.formats.base import UUID

_WORKING_DIRECTORY = re.compile(rb'"cwd":("(?:[^"\\]|\\.)*")')


def home_directory() -> str:
    return directory_named("CODEX_HOME", "~/.codex")


ARCHIVED = ".jsonl.zst"  # ends the name of a compressed file
_FILE = re.compile(r"(.*)/(?:sessions|archived_sessions)/(?:.*/)?rollout-[^/]*\.jsonl")
# At the end of a name: the thread's id, and in later files of the thread their own.
_THREAD = re.compile(rf"rollout-[^/]*?(?P<thread>{UUID})(?:_(?P<file>{UUID}))?\.jsonl(?:\.zst)?$")


def thread_of(path: str) -> tuple[str, str] | None:
    """Return the home and the thread's id of a file that Codex would take for a session."""
    at, thread = _FILE.fullmatch(path), _THREAD.search(path)
    return (at[1], thread["thread"]) if at and thread else None


def key_of(path: str) -> str:
    """Return the id by which Codex names a file of a thread, or ""."""
    found = _THREAD.search(path)
    return (found["file"] or found["thread"]) if found else ""


def page_of(path: str) -> str:
    """Return the id of a later file of a thread, which begins with its time, or "" for the first.

    The id of a thread may be of an older kind, without a time.
    """
    found = _THREAD.search(path)
    return (found["file"] or "") if found else ""


@lru_cache(1)
def files_of(home: str, _moment: float) -> Mapping[str, Sequence[str]]:
    """Return the files of each thread in a home, also compressed ones, as they were at a moment."""
    tops = (os.path.join(home, name) for name in ("sessions", "archived_sessions"))
    found = defaultdict[str, list[str]](list)
    for directory, _, names in chain.from_iterable(map(os.walk, tops)):
        for name in names:
            if named := _THREAD.match(name):
                found[named["thread"]].append(f"{directory}/{name}")
    return found


def newest_of(home: str, thread: str, moment: float) -> str:
    """Return the newest file of a thread, in which it goes on, or ""."""
    paths = [one for one in files_of(home, moment).get(thread, ()) if not one.endswith(ARCHIVED)]
    return paths[0] if len(paths) == 1 else max(paths, key=page_of, default="")


class CodexHome(Home):
    name_pattern = rf"rollout-[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}T[0-9-]{{8}}-(.+?)(?:_{UUID})?"
    archives = r"^rollout-.*\.jsonl\.zst$"
    note = "where Codex stores offsets into a file, placeholders save tokens, but no bytes"

    def owner(self, path: str) -> Owner | None:
        at = _FILE.fullmatch(path)
        return Owner("", at[1]) if at else None

    def part(self, path: str) -> tuple[str, str] | None:
        at = thread_of(path)
        return ("/".join(at), page_of(path)) if at else None

    def root(self) -> str:
        return os.path.join(home_directory(), "sessions")

    def named_in(self, head: Callable[[], bytes]) -> str | None:
        found = _WORKING_DIRECTORY.search(head())
        try:  # the directory, encoded roughly as in Claude Code
            return f"codex:{re.sub('[^A-Za-z0-9]', '-', json.loads(found[1]))}" if found else None
        except ValueError:
            return None
