"""The open wishes to put something back: which values they mean, and which can go back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brainsurgeon.decide.seals import UNFIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from brainsurgeon.decide.findings import Findings
    from brainsurgeon.model.records import Extraction, Records, Wish

_NO_TURN = "only its text went back: the turn itself does not stand in this session"


class Restores:
    """The wishes of one session to put values back; hand it every id that is met on the walk.

    `everything` says that one of them means the whole session, `pristine` that all of it is to be
    as the agent wrote it, seals included. Taking a pass back is neither.
    """

    def __init__(self, records: Records, found: Findings) -> None:
        self.wishes = [wish for wish in records.wishes if wish.action == "restore"]
        whole = [one for one in self.wishes if one.entry_id is None and not one.rolls_back]
        self.everything = bool(whole)
        self.pristine = any(wish.pristine and wish.paths is None for wish in whole)
        self.named = {wish.entry_id for wish in self.wishes}
        self._found = found
        self._continued = {one.anchor for one in records.extractions if one.links}
        self._met: set[str] = set()
        self._archives = {
            (one.entry_id, one.path) for one in records.extractions if one.archive_id is not None
        }

    def meet(self, ident: str) -> None:
        """Remember that an entry stands that the closing entry of an archive once continued."""
        if ident in self._continued:
            self._met.add(ident)

    def back(
        self, standing: list[Extraction], unfit_of: Callable[[list[Extraction]], list[Extraction]]
    ) -> list[Extraction]:
        """Give the values of an entry that are to go back, without seals that fit no more.

        `unfit_of` tells which of values that go back are such seals.
        """
        if not standing:
            return []
        back = [one for one in standing if self.wants(one)]
        unfit = unfit_of(back)
        if self.pristine:
            return back
        self._found.missed += [(one.entry_id, UNFIT) for one in unfit if one.entry_id in self.named]
        return [one for one in back if one not in unfit]

    def wants(self, one: Extraction) -> bool:
        """Tell whether a value is to go back, and can.

        The link of an archive can only where the entry that was continued stands: a fork has no
        more than the active branch.
        """
        asked = any(self._means(wish, one) for wish in self.wishes)
        if asked and one.links and one.anchor not in self._met:
            if one.entry_id in self.named:
                self._found.missed.append((one.entry_id, _NO_TURN))
            return False
        lost = "expired" if one.blob_id is None else "damaged in the store" if one.damaged else ""
        if asked and lost:
            self._found.missed.append((one.entry_id, lost))
        return asked and not lost

    def _means(self, wish: Wish, one: Extraction) -> bool:
        """Tell whether a wish means a value; the two of an archive only go back together."""
        if one.archive_id is None or wish.paths is None:
            return wish.wants(one)
        return wish.speaks_of(one.entry_id) and any(
            (one.entry_id, path) in self._archives for path in wish.paths
        )
