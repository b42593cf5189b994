"""The names to which a session answers; whatever we print or have ever printed is one of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from brainsurgeon.hosts import openclaw, openclaw_signs
from brainsurgeon.model.texts import readable
from brainsurgeon.sessions.opening import identity_of

if TYPE_CHECKING:
    from brainsurgeon.lookup.sessions import Session

_AFTER_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9-]+Z?_(.+)"
    r"|rollout-[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}-[0-9]{2}-[0-9]{2}-(.+)",
    re.DOTALL,
)
"""How pi and Codex name their files: when a session began, and its id."""


def is_called(session: Session, name: str) -> bool:
    """Tell whether a session is called so: by its file, or by what follows the time in it."""
    return name in _said(session, _of_file(session.name))


def calls_itself(session: Session, name: str) -> bool:
    """Tell whether a session's own header says this id; reads it where nobody has yet."""
    bare = name.rpartition("/")[2]
    if not bare:
        return False
    identity = session.record.identity if session.record else None
    identity = identity or (identity_of(session.file) if session.file else None)
    return identity is not None and name in _said(session, [identity])


def begins_with(session: Session, name: str) -> bool:
    """Tell whether one of a session's names begins so."""
    ids = [*_of_file(session.name)]
    identity = session.record.identity if session.record else None
    if identity:
        ids.append(identity)
    return bool(name) and any(
        one.startswith(name) for one in _said(session, ids) if ("/" in one) == ("/" in name)
    )


def _of_file(name: str) -> list[str]:
    after = _AFTER_TIME.fullmatch(name)
    return [name, after[1] or after[2]] if after else [name]


def _said(session: Session, ids: list[str]) -> set[str]:
    """Give ids alone and behind their agent, as they are and as they are printed."""
    agents = openclaw.agent_names(session.agent)
    said = {*ids, *(f"{agent}/{one}" for agent in agents for one in ids)}
    return said | {readable(one) for one in said}


class ByKey:
    """Tells whether a session has a session key; each `sessions.json` is read once."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._keyed: dict[str, list[dict[str, Any]]] = {}

    def fits(self, session: Session, _name: str) -> bool:
        """Tell whether the `sessions.json` beside the session's file gives it the key."""
        file = session.file
        if file is None:
            return False
        if file.in_database:
            return file.key == self._key
        if file.directory not in self._keyed:
            self._keyed[file.directory] = openclaw_signs.keyed(file.directory, self._key)
        return any(
            openclaw_signs.names_session(entry, file.name) for entry in self._keyed[file.directory]
        )
