"""Turns, archives, calls of models, and the context load."""

import math
from typing import Any, Literal, Self, get_args

from msgspec import Struct

from brainsurgeon.model.entries import KeyPath, placeholder_in
from brainsurgeon.model.text import counted

MARK = "[archived turn]"  # the first line of the text of every archive
ALREADY = "already archived"  # the reason to keep an archive
LINK: KeyPath = ("parentId",)  # the field that an archive in the linked form changes
GAVE_UP = "[Max turns reached]"  # the text of an agent that was stopped after too many steps

# How an archive treats the entries between prompt and last answer: `linked` removes them from the
# active branch, `flat` extracts their thinking and results.
ArchiveForm = Literal["linked", "flat"]
# An `aside` is sent to the model, but is no step of the turn (such as a message of an extension).
# A `note` is not sent and may leave the active branch. A `fixed` entry must stay there.
Role = Literal["prompt", "reply", "result", "aside", "note", "fixed"]


class ToolCall(Struct, frozen=True):
    call_id: str | None
    tool: str
    path: KeyPath = ()  # of the arguments
    arguments: Any = None
    as_text: bool = False  # the arguments are JSON in a string
    signed: bool = False  # the arguments must not be changed

    @property
    def files(self) -> tuple[str, ...]:
        return files_in(self.arguments)


def files_in(arguments: Any) -> tuple[str, ...]:
    keys = ("path", "file_path", "filePath", "notebook_path")
    if not isinstance(arguments, dict):
        return ()
    named = [arguments[key] for key in keys if key in arguments]
    return tuple([
        name for name in named if isinstance(name, str) and name and not placeholder_in(name)
    ])  # fmt: skip


class ToolResult(Struct, frozen=True):
    call_id: str | None
    failed: bool = False
    finding: str = ""  # the first line of the result of a failed call
    exit_code: int | None = None
    took_ms: int | None = None


class TurnStep(Struct, frozen=True):
    role: Role | None  # None: no part of the conversation
    parent: str | None = None  # an id
    names: tuple[str, ...] = ()  # other ids to which the entry refers
    text: str = ""  # the last block of text of a reply
    text_path: KeyPath | None = None
    closes: bool = False  # the reply has a text, calls no tool, is finished, and is sent again
    cut_short: bool = False  # the reply was stopped before its end
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()


class Reason(str):
    """Why a turn is archived or kept. Turns are counted by `kind`, its first part."""

    __slots__ = ("kind",)
    kind: str

    def __new__(cls, kind: str, detail: str = "") -> Self:
        made = super().__new__(cls, f"{kind}: {detail}" if detail else kind)
        made.kind = kind
        return made


class Verdict(Struct, frozen=True):
    """The decision whether to archive a turn."""

    number: int  # among the turns that are still sent to the model, from 1 on
    prompt_id: str
    closing_id: str | None  # the last answer
    archived: bool
    reason: Reason
    until: float | None = None  # when the decision may change by time alone
    middle: int = 0  # number of entries between prompt and last answer
    tokens: int = 0  # of these entries
    calls: int = 0
    depth: int = 0  # 0 for a live turn, 1 for an archive, 2 for an archive of archives …
    requested: bool = False
    dead: str | None = None  # why the turn is no longer sent to the model

    @property
    def is_archive(self) -> bool:
        return self.depth > 0 and not self.middle


class Archive(Struct, frozen=True):
    entry_id: str  # the last answer
    prompt_id: str
    entries: int  # between prompt and last answer
    tokens_before: int
    tokens_after: int
    depth: int
    note: str | None
    # The counts below include nested archives.
    turns: int
    calls: int
    failed: int  # number of failed calls


class PlannedArchive(Archive, frozen=True):
    digest: bytes  # of the last turn
    prompts: tuple[str, ...]  # the ids of the prompts of its turns


class ArchiveRecord(Archive, frozen=True):
    id: int
    session_id: int
    made_at: float


def archived_text(archives: int, turns: int) -> str:
    of_turns = counted(turns, "turn")
    return of_turns if turns == archives else f"{counted(archives, 'archive')} of {of_turns}"


# Tokens of any picture: providers scale large ones down to about this.
PICTURE = 1500
RATE = 0.33  # tokens per character if recorded calls allow no estimate


class Sent(Struct, frozen=True, gc=False):  # the size of a request or a part of it
    chars: int = 0
    pictures: int = 0  # and documents
    data: int = 0  # bytes of the pictures and documents, as base64

    def __add__(self, more: "Sent") -> "Sent":
        return Sent(self.chars + more.chars, self.pictures + more.pictures, self.data + more.data)

    def __sub__(self, less: "Sent") -> "Sent":
        return Sent(self.chars - less.chars, self.pictures - less.pictures, self.data - less.data)

    @property
    def bytes(self) -> int:  # a text of many bytes has too many tokens long before
        return self.chars + self.data

    def tokens(self, rate: float = RATE) -> int:
        return round(rate * self.chars + PICTURE * self.pictures)


NOTHING = Sent()

# Why a provider refused a prompt.
TOO_LONG, TOO_LARGE, SIGNATURE = "too long", "too large", "signature"
BLOCK, BLOCKS = "a picture or document is too large", "too many pictures and documents"


class Refusal(Struct, frozen=True, gc=False):
    """The answer of a provider that did not accept a prompt."""

    # TOO_LONG (in tokens), TOO_LARGE (in bytes), BLOCK (one of them, in bytes), BLOCKS, SIGNATURE.
    why: str
    count: int = 0  # tokens, bytes or blocks of the prompt, as its provider counted; 0: not stated
    limit: int | None = None  # the highest number allowed, if stated


class ModelCall(Struct, frozen=True, gc=False):
    ident: str | None  # of the API message, which may be written as several entries
    model: str | None
    tokens: int = 0  # of the prompt, cached or not; 0 if not recorded, as for failed calls
    at: float | None = None  # the time of the answer
    refusal: Refusal | None = None
    # `cut`: the answer reached its highest length; `failed`: none came, for any other reason;
    # `aside`: the call is no part of a turn: it kept the cache warm, or summarised.
    end: Literal["complete", "cut", "refused", "failed", "aside"] = "complete"
    cached: int = 0  # tokens read from the cache
    written: int = 0  # tokens written to the cache
    hour: bool = False  # the cache keeps them for an hour
    output: int = 0  # tokens of the answer
    cost: float | None = None  # recorded dollars for the prompt
    dollars: float | None = None  # recorded dollars for prompt and answer

    @property
    def load(self) -> int:
        """The tokens of prompt and answer, which the next prompt contains."""
        return self.tokens + self.output

    @property
    def aside(self) -> bool:
        return self.end == "aside"


# Whether the agent recorded the costs of calls; LONG: it did not, and the prompts are so long that
# the model is dearer.
UNPRICED, PRICED, LONG = 0, 1, 2


class Spent(Struct, frozen=True):
    model: str
    priced: int
    calls: int = 0
    tokens: int = 0
    cached: int = 0
    written: int = 0
    output: int = 0
    dollars: float = 0.0

    def plus(self, call: ModelCall) -> "Spent":
        return Spent(
            self.model, self.priced, self.calls + 1, self.tokens + call.tokens,
            self.cached + call.cached, self.written + call.written, self.output + call.output,
            self.dollars + (call.dollars or 0.0),
        )  # fmt: skip


class Compaction(Struct, frozen=True):
    at: float | None = None
    tokens_before: int = (
        0  # of prompt and answer of the last call before the compaction; 0 if unknown
    )


class Savings(Struct, frozen=True):
    """Estimated from the recorded calls of a session."""

    until: float = 0.0  # the time of the last call or a later compaction
    prompt: int = 0  # tokens of the last prompt without extractions
    off: int = 0  # tokens saved in each next request
    broken_at: float | None = None  # when an extraction broke the cache; None after the next call
    tokens: int = 0  # saved in the prompts of all calls
    paid: float = 0.0  # the saved cost of all calls in uncached input tokens
    dollars: float | None = None  # the same, if the price is known


Tier = Literal["frontier", "mid", "small"]
TIERS: tuple[Tier, ...] = get_args(Tier)
Signal = Literal[
    "repeated_tool_call", "cost_ceiling", "refused", "truncated", "pressure", "small_tier_parent"
]
SIGNALS: tuple[Signal, ...] = get_args(Signal)
LAST_STEP = 7  # the highest step of relief
HEAVY = 0.9  # the share of the allowed bytes above which a request is too large
ONE_ROUND = 5  # each later step is a round of its own, which drops half of the messages


class Calibration(Struct, frozen=True):
    rate: float  # tokens per character
    fixed: float  # tokens
    calls: int
    # `agent`: the median of the agent's other sessions; `default`: a guess.
    method: Literal["session", "agent", "default"]
    error: float | None = None  # the mean relative error for the calls of the session
    scale: float = 1.0  # the tokens that a provider counted in a prompt, by those estimated

    def tokens(self, sent: Sent) -> int:
        return max(0, round(self.scale * (self.fixed + sent.tokens(self.rate))))


class Fullness(Struct, frozen=True):
    load: int  # tokens of the next request
    window: int  # tokens
    threshold: float  # the share of the window above which the session is too full
    calibration: Calibration
    model: str | None = None
    tier: Tier | None = None
    recorded: bool = False  # the window is recorded by the agent
    step: int = 0  # the highest step of relief taken
    waits: bool = False  # postponed extractions will make it fit once the cache is cold
    refusal: str = ""  # if the newest answer is a refusal, except for a signature: why
    unfit: int = 0  # number of pictures and documents for which the next request would be refused
    bytes: int = 0  # of the next request
    most_bytes: int | None = None  # that the provider accepts, if known

    @property
    def pressure(self) -> float:
        return self.load / self.window

    @property
    def is_too_large(self) -> bool:
        return self.most_bytes is not None and self.bytes > HEAVY * self.most_bytes

    @property
    def is_too_full(self) -> bool:
        return self.pressure > self.threshold or self.is_too_large or self.unfit > 0

    @property
    def is_unrelieved(self) -> bool:
        return self.is_too_full and not self.waits


class LoadChange(Struct, frozen=True):
    """The load of a session before and after a plan (None if it was not estimated)."""

    before: Fullness | None = None
    after: Fullness | None = None
    room: int = 0  # the highest load (tokens) that fits
    # Set if only the protection of restored values prevents a fit: their bytes, and its end.
    protected: tuple[int, float] | None = None
    least: int | None = None  # the least possible load, if no step makes it fit
    room_bytes: float = math.inf  # the largest request that fits

    @property
    def load(self) -> int:
        return self.after.load if self.after else 0

    @property
    def fits(self) -> bool:
        after = self.after
        if after is None or after.unfit:
            return False
        return after.load <= self.room and after.bytes <= self.room_bytes
