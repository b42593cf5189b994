"""The two words of OpenClaw's configuration that decide whether its databases may be written.

`session.store` moves the sessions elsewhere, and `plugins.slots.contextEngine` selects another
engine that may keep turns of its own (openclaw 2026.9.6, `dist/slots-*.mjs`,
`dist/session-sqlite-target-*.mjs`). A value that is brought in from another file is not looked up.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from brainsurgeon.hosts import json5
from brainsurgeon.hosts.openclaw_state import state_database

OWN_ENGINE = "legacy"
"""The context engine that OpenClaw brings along."""
_INCLUDE = "$include"
_LARGEST = 16 << 20


@dataclass(frozen=True, slots=True)
class Selected:
    """What the configuration selects; None stands for OpenClaw's own way.

    `unreadable` says why the configuration could not be read for certain, or None.
    """

    store: str | None = None
    engine: str | None = None
    unreadable: str | None = None


def selected(state_directory: str) -> Selected:
    """Read the configuration of a state directory; without one nothing is selected.

    Where not even OpenClaw's state database stands, as in a container that was given the agents
    alone, the configuration may be anything.
    """
    try:
        with open(path(state_directory), encoding="utf-8") as handle:
            configured = json5.loads(handle.read(_LARGEST))
    except FileNotFoundError:
        known = os.path.exists(state_database(state_directory))
        return Selected(unreadable=None if known else "its configuration is out of sight")
    except (OSError, ValueError, RecursionError):
        return Selected(unreadable="its configuration cannot be read")
    if not isinstance(configured, dict):
        return Selected(unreadable="its configuration cannot be read")
    plugins = _table(configured, "plugins")
    places = (configured, _table(configured, "session"), plugins, _table(plugins, "slots"))
    if any(_INCLUDE in place for place in places):
        return Selected(unreadable="its configuration includes other files")
    engine = _word(places[3].get("contextEngine"))
    own = engine is None or engine.lower() in (OWN_ENGINE, "none")
    return Selected(_word(places[1].get("store")), None if own else engine)


def path(state_directory: str) -> str:
    """Return the configuration's path; an environment that names one speaks of its own home."""
    named = os.environ.get("OPENCLAW_CONFIG_PATH", "").strip()
    home = os.environ.get("OPENCLAW_STATE_DIR", "").strip() or "~/.openclaw"
    if named and os.path.realpath(os.path.expanduser(home)) == os.path.realpath(state_directory):
        return os.path.abspath(os.path.expanduser(named))
    return os.path.join(state_directory, "openclaw.json")


def _table(value: dict[str, Any], name: str) -> dict[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _word(value: object) -> str | None:
    return value.strip() or None if isinstance(value, str) else None
