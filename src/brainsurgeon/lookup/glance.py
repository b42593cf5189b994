"""Show an entry without looking for its session, where none of the sessions can matter.

The values of an entry that only one session has are the same wherever the file of that one lies
now. An agent waits for this, so that next to nothing is imported; whatever is unusual is left to
`operations.show`, which says what is wrong.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from brainsurgeon.hosts import processes
from brainsurgeon.hosts.homes_named import claude_code_records
from brainsurgeon.lookup.values import as_sent, chosen, contents, newest
from brainsurgeon.model.stubs import id_named
from brainsurgeon.store.glance import glance

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.lookup.values import Contents
    from brainsurgeon.store.glance import Glimpse


def shown_at_once(directory: str, reference: str, keys: Iterable[str]) -> Contents | None:
    """Give the values that `operations.show` would give, or None where it has to be asked.

    Raise what opening a store raises, and DamagedError.
    """
    wanted = list(keys)
    if _an_agent_may_call():
        return None

    def choose(values: list[Glimpse]) -> tuple[Glimpse, ...]:
        return as_sent(chosen(newest(values), wanted), wanted)

    found = glance(directory, id_named(reference), choose)
    return contents(*found) if found else None


def _an_agent_may_call() -> bool:
    """Tell whether Claude Code may have started this: then its own session comes first."""
    records = claude_code_records()
    return os.path.isdir(records) and any(
        os.path.lexists(os.path.join(records, f"{pid}.json")) for pid in processes.ancestors()
    )
