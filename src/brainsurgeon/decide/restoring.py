"""The open wishes to put something back: which values they mean, and which can go back."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from brainsurgeon.decide.findings import Findings
    from brainsurgeon.model.records import Extraction, Records, Wish

_NO_TURN = "only its text went back: the turn itself does not stand in this session"


class Restores:
    """The wishes of one session to put values back; hand it every id that is met on the walk."""

    def __init__(self, records: Records, found: Findings) -> None:
        self.wishes = [wish for wish in records.wishes if wish.action == "restore"]
        self.everything = any(wish.entry_id is None for wish in self.wishes)
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

    @property
    def pristine(self) -> bool:
        """Whether everything is to be as the agent wrote it, seals included."""
        whole = (one for one in self.wishes if one.entry_id is None and one.paths is None)
        return any(wish.pristine for wish in whole)

    def wants(self, one: Extraction) -> bool:
        """Tell whether a value is to go back, and can.

        The link of an archive can only where the entry that was continued stands: a fork has no
        more than the active branch.
        """
        asked = any(wish.speaks_of(one.entry_id) and self._means(wish, one) for wish in self.wishes)
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
        if wish.paths is None or one.path in wish.paths:
            return True
        return one.archive_id is not None and any(
            (one.entry_id, path) in self._archives for path in wish.paths
        )
