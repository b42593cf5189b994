"""Describe the databases in which agents keep their sessions: whose, and of what version."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

from brainsurgeon.errors import BusyError
from brainsurgeon.hosts import openclaw, openclaw_config
from brainsurgeon.hosts.openclaw_database import databases, misplaced, unwritable
from brainsurgeon.lookup.homes import unused_homes
from brainsurgeon.model.reports import DatabaseStatus
from brainsurgeon.model.sessions import Unreadable
from brainsurgeon.rewrite import recover
from brainsurgeon.sessions.row_listing import layout_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from brainsurgeon.config import Settings
    from brainsurgeon.hosts.openclaw_database import Database
    from brainsurgeon.model.reports import ScanReport
    from brainsurgeon.model.sessions import Root
    from brainsurgeon.store import Store


def describe_machine(settings: Settings, store: Store | None, report: ScanReport) -> None:
    """Say what a dry run finds on the machine, the first one also which homes are not covered."""
    report.databases = describe_databases(settings)
    report.interrupted = recover.waiting(store) if store else []
    if not (store and store.facts.get("last_run_at")):
        report.homes = unused_homes(settings)


def describe_databases(settings: Settings) -> list[DatabaseStatus]:
    """Look at every database below the roots; nothing is left behind."""
    found = []
    for root in settings.root_directories():
        for one in databases(root.path):
            if isinstance(one, Unreadable):
                agent = os.path.basename(os.path.dirname(os.path.dirname(one.path)))
                found.append(DatabaseStatus(agent, one.path, None, None, one.why))
            else:
                found.append(_describe(one, settings))
    return found


def databases_below(roots: Iterable[Root]) -> Iterator[Database]:
    """Yield the databases below some roots that can be looked at."""
    for root in roots:
        for found in databases(root.path):
            if not isinstance(found, Unreadable):
                yield found


def out_of_sight(roots: Iterable[Root]) -> Callable[[str], bool]:
    """Return what tells whether an agent keeps its sessions in a database below none of the roots.

    It is asked with the directory of the agent.
    """
    seen = {database.agent_directory for database in databases_below(roots)}

    @cache
    def hidden(agent_directory: str) -> bool:
        return agent_directory not in seen and openclaw.migrated(agent_directory)

    return hidden


def _describe(one: Database, settings: Settings) -> DatabaseStatus:
    try:
        schema = layout_of(one)
    except (OSError, BusyError) as error:
        return DatabaseStatus(one.agent, one.path, None, None, str(error))
    reasons = (
        'databases = "off"' if settings.databases == "off" else None,
        schema.unknown, misplaced(one), unwritable(one.path), *_of_engine(one, settings),
    )  # fmt: skip
    reason = next((why for why in reasons if why), None)
    return DatabaseStatus(one.agent, one.path, schema.program, schema.version, reason)


def _of_engine(one: Database, settings: Settings) -> Iterator[str | None]:
    if settings.databases == "auto":
        chosen = openclaw_config.selected(one.state_directory)
        yield chosen.unreadable
        yield chosen.engine and f"the context engine {chosen.engine} is selected"
