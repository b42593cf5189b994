"""What the entries of a session mean together: which are sent, and where the last turn is."""

from array import array
from collections.abc import Container, Mapping
from types import MappingProxyType

from msgspec import Struct

from brainsurgeon.model.entries import OLD, Kind
from brainsurgeon.model.session_files import BEFORE_COMPACTION
from brainsurgeon.model.transcript import Entry


class Around(Struct, frozen=True):
    """What other entries say about the values of an entry."""

    in_last_turn: bool = True
    before_compaction: bool = False
    tools: Mapping[str, str] = MappingProxyType({})  # names of tools by ids of calls
    beside: str | None = None  # the id of the call whose pictures are in the entry
    replaced: Container[str] = ()  # ids of calls whose results the agent replaces
    thinks: bool = True  # the next request contains its thinking
    is_dead: bool = False  # no request contains the entry; not told by every format

    def omits(self, kind: Kind, call: str | None) -> bool:
        """Check whether the next request contains the entry without a value of this kind."""
        if kind == "thinking":
            return not self.thinks
        return kind == "tool_result" and call in self.replaced


class Chain:
    """What the entries of a session mean together. Indexes are those of entries.

    `counts[i]` is the number of live messages up to entry `i`. `dead` has the reason why the next
    request does not contain an entry.
    """

    def __init__(self) -> None:
        self.counts = array("q")
        self.off: set[int] = set()  # entries without a position
        self.dead: dict[int, str] = {}
        self.open_turn: str | None = None  # why the last turn is open
        self.keeps_length = False  # offsets point into the session: edits keep the length of lines
        self.quiet = 0.0  # seconds without a change after which the last turn counts as finished
        self.last_user: int | None = None  # the prompt of the last turn
        self.tools: Mapping[str, str] = {}  # names of tools by ids of calls
        # Ids of calls by the ids of entries that hold the pictures of their results.
        self.beside: Mapping[str, str] = {}
        # Ids of calls whose results the agent or its provider replaces with a short text.
        self.replaced: frozenset[str] = frozenset()

    def position(self, index: int, entry: Entry) -> int:
        """Return the number of live messages after an entry; OLD if it has no position."""
        if index in self.off:
            return OLD
        after = self.counts[-1] - self.counts[index]
        return after if entry.is_message else max(after - 1, 0)

    def around(self, index: int, entry: Entry) -> Around:
        in_last_turn = self.last_user is None or index >= self.last_user
        before_compaction = self.dead.get(index) == BEFORE_COMPACTION
        beside = self.beside.get(entry.ident or "")
        return Around(
            in_last_turn, before_compaction, self.tools, beside, self.replaced,
            self.thinks(index, entry),
        )  # fmt: skip

    def thinks(self, index: int, entry: Entry) -> bool:  # noqa: ARG002
        """Check whether the model of the next request gets the thinking of an entry.

        Agents and providers leave out what another model, or another account, has thought. After a
        return to the former model, requests contain it again, so it is not dead.
        """
        return True

    def count(self, index: int, entry: Entry, *, live: bool) -> None:
        """Count the next entry. Positions are counted from the end, so no other entry changes."""
        before = self.counts[-1] if self.counts else 0
        self.counts.append(before + (live and entry.is_message))
        if not live:
            self.off.add(index)
