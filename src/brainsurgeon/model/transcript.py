"""What the lines of a session say: frozen entries, without content beyond ids, names and sizes."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from brainsurgeon.model.entries import KeyPath, Value
from brainsurgeon.model.turns import ModelCall, Role, Sent


class Thoughts(Struct, frozen=True, gc=False):
    """The signed or redacted thinking of one message."""

    models: tuple[str, ...]  # names of the model that wrote the message
    blocks: tuple[tuple[KeyPath, int], ...]  # paths and lengths (characters)
    instead: bytes  # the JSON that replaces a block
    only_content: bool = False  # the message contains nothing else: no block is replaced
    asked_to_drop: bool = False  # the provider was asked to drop blocks with invalid signatures
    bound: bool = False  # by their form, the signatures cover the request before the thinking
    # Why the provider refuses a block, by path.
    unsound: Mapping[KeyPath, str] = field(default_factory=dict)


class Reasoning(Struct, frozen=True, gc=False):
    """The reasoning of one message that its provider keeps encrypted."""

    model: str
    tokens: int


class CallFacts(Struct, frozen=True, gc=False):
    """A tool call. Equal calls have equal digests, of tool and arguments."""

    call_id: str | None
    tool: str
    digest: bytes
    files: tuple[int, ...] = ()  # hashes, in this process, of the files named in the arguments
    writes: bool = False  # it changes these files
    whole: bool = False  # it has one argument: a read of a whole file


class Result(Struct, frozen=True, gc=False):
    call_id: str | None
    failed: bool = False
    exit_code: int | None = None
    took_ms: int | None = None


class Marks(Struct, frozen=True, gc=False):
    """What of ours is in an entry."""

    names: tuple[str, ...] = ()  # ids in placeholders, wherever they are in the line
    archives: tuple[str, ...] = ()  # ids in archives
    # Digests of the values that may stand for extracted ones, by path (see `token_digest`).
    stands: Mapping[KeyPath, bytes] = field(default_factory=dict)
    # Texts that are a placeholder or begin as an archive, by path: the id, and whether an archive.
    named: Mapping[KeyPath, tuple[str, bool]] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)  # our fields and their values


class Entry(Struct, frozen=True, gc=False):
    """What is known about an entry without other entries. An unreadable line is an entry, too.

    `own` is what only the format's chain reads.
    """

    line: int  # the index of its line
    terminated: bool = True  # its line ends with a newline
    ident: str | None = None
    # A digest of parts that are never edited, to tell entries with equal ids apart; None if no
    # two entries have the same id.
    rest: bytes | None = None
    parent: str | None = None
    role: Role | None = None  # None: no part of the conversation
    is_message: bool = False
    time: float | None = None  # seconds since 1970
    names: tuple[str, ...] = ()  # other ids to which it refers
    text_path: KeyPath | None = None  # of the last block of text of a reply
    closes: bool = False  # the reply has a text, calls no tool, is finished, and is sent again
    cut_short: bool = False  # the reply was stopped before its end
    values: tuple[Value, ...] = ()
    calls: tuple[CallFacts, ...] = ()
    attached: CallFacts | None = None  # a file that the agent read without a call
    results: tuple[Result, ...] = ()
    sent: Sent = Sent()  # its size in a request
    call: ModelCall | None = None  # the call of a model that it answers
    asides: tuple[ModelCall, ...] = ()  # calls of other models that were made for this answer
    thoughts: Thoughts | None = None
    reasoning: Reasoning | None = None
    dropped: int = 0  # items of reasoning that the provider left out of the call
    compacts: bool = False  # a compaction by the agent
    switches_model: bool = False  # the next call is to another model, which has its own cache
    cost_so_far: float | None = None  # dollars, of the whole session
    marks: Marks | None = None
    own: Any = None
    at: KeyPath = ()  # its path in the line; the paths in it begin there
    model: str | None = None  # of the calls behind it, if these do not name theirs
