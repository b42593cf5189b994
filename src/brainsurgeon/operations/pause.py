"""Pause extraction for all sessions or some, until a time or until the pause is ended.

While paused, scans extract and archive nothing. They still carry out requests and recover
interrupted rewrites, and values still expire.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct, convert, to_builtins

from brainsurgeon.agents import part_of
from brainsurgeon.config import Settings
from brainsurgeon.errors import UsageError
from brainsurgeon.lookup.sessions import session_named
from brainsurgeon.model.reports import Pause
from brainsurgeon.store import Store

ALL = ""  # instead of the path of a session
LONG = 7 * 86400.0  # seconds after which a pause without an end is a trouble
_FACT = "pauses"


class Pauses(Struct, frozen=True):
    """The pauses that have not ended, by the places of sessions."""

    by_path: Mapping[str, Pause]

    def covers(self, path: str) -> bool:
        places = (ALL, path, _place(path)) if self.by_path else ()
        return any(place in self.by_path for place in places)

    def key(self) -> str:
        """Return a text that differs if other sessions are paused."""
        return ",".join(sorted(self.by_path)) if ALL not in self.by_path else "*"

    def listed(self) -> tuple[Pause, ...]:
        return tuple(self.by_path[path] for path in sorted(self.by_path))


def _place(path: str) -> str:
    """Return the path of a session, or the name of one that may get more files."""
    part = part_of(path)
    return part[0] if part else path


def pauses(store: Store, now: float) -> Pauses:
    kept = convert(store.facts.get(_FACT) or {}, dict[str, Pause])
    return Pauses({
        path: one for path, one in kept.items() if one.ends_at is None or now < one.ends_at
    })  # fmt: skip


def pause(
    settings: Settings, store: Store, now: float, *, until: float | None = None,
    sessions: Iterable[str] = (),
) -> tuple[Pause, ...]:  # fmt: skip
    """Begin or change a pause, of all sessions if none is named. Return all pauses.

    `until` is a Unix time, or None if the pause ends only when it is ended. Raises UsageError if
    it is in the past.
    """
    if until is not None and until <= now:
        raise UsageError("--until: this time is in the past; nothing was paused")
    named = [session_named(settings, store, name) for name in sessions]
    chosen = {_place(one.path): one.title for one in named} or {ALL: ""}
    with store.transaction():
        kept = dict(pauses(store, now).by_path)
        for path, title in chosen.items():
            since = kept[path].paused_at if path in kept else now
            kept[path] = Pause(title, since, until)
        store.facts.put(_FACT, to_builtins(kept))
    return Pauses(kept).listed()


def end(
    settings: Settings, store: Store, now: float, *, sessions: Iterable[str] = ()
) -> tuple[Pause, ...]:
    """End the pauses of some sessions, or every pause. Return those that remain."""
    named = (session_named(settings, store, name) for name in sessions)
    paths = {
        place for one in named for part in one.parts for place in (part.path, _place(part.path))
    }
    with store.transaction():
        kept = {
            path: one for path, one in pauses(store, now).by_path.items()
            if paths and path not in paths
        }  # fmt: skip
        store.facts.put(_FACT, to_builtins(kept))
    return Pauses(kept).listed()
