"""List the passes: what each run of a command changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from brainsurgeon.model.events import Pass
    from brainsurgeon.store import Store

LISTED = 20
"""How many of the newest are listed where nobody asks for all."""


def passes(store: Store | None, *, most: int | None = LISTED) -> list[Pass]:
    """Give the newest passes, the newest last; all of them where `most` is None."""
    return store.passes.newest(most) if store else []
