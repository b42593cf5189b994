"""Turns and archives, the calls of models with their tokens and costs, and the context load."""

from typing import Any, Literal, get_args

from msgspec import Struct

from brainsurgeon.model.entries import KeyPath, placeholder_in
from brainsurgeon.model.text import counted

MARK = "[archived turn]"  # the first line of the text of every archive
LINK: KeyPath = ("parentId",)  # the field that an archive in the linked form changes
GAVE_UP = "[Max turns reached]"  # the text of an agent that was stopped after too many steps

# An archive removes the entries between the prompt and the last answer of a turn from the active
# branch (linked), or extracts their thinking and results (flat).
ArchiveForm = Literal["linked", "flat"]
# The role of an entry in its turn. An `aside` is sent to the model, but is no step of the turn (for
# example, a message of an extension). A `note` is not sent and may leave the active branch. A
# `fixed` entry must stay on the branch.
Role = Literal["prompt", "reply", "result", "aside", "note", "fixed"]


class ToolCall(Struct, frozen=True):
    call_id: str | None
    tool: str
    path: KeyPath = ()  # of the arguments
    arguments: Any = None
    as_text: bool = False  # the entry contains the arguments as a text in JSON
    signed: bool = False  # the arguments must not be changed

    @property
    def files(self) -> tuple[str, ...]:
        return files_in(self.arguments)


def files_in(arguments: Any) -> tuple[str, ...]:
    keys = ("path", "file_path", "filePath", "notebook_path")
    named = (arguments.get(key) for key in keys) if isinstance(arguments, dict) else ()
    return tuple(
        name for name in named if isinstance(name, str) and name and not placeholder_in(name)
    )


class ToolResult(Struct, frozen=True):
    call_id: str | None
    failed: bool = False
    finding: str = ""  # the first line of the result of a failed call
    exit_code: int | None = None
    took_ms: int | None = None


class TurnStep(Struct, frozen=True):
    role: Role
    parent: str | None = None  # an id
    names: tuple[str, ...] = ()  # other ids to which the entry refers
    text: str = ""  # the last block of text of a reply
    text_path: KeyPath | None = None
    closes: bool = False  # the reply has a text, calls no tool, and is complete
    cut_short: bool = False  # the reply was stopped before its end
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()


class Verdict(Struct, frozen=True):
    """The decision whether to archive a turn. The passage of time may change it at `until`."""

    number: int  # the turn's place among the turns that are still sent to the model, from 1 on
    prompt_id: str
    closing_id: str | None  # the last answer
    archived: bool
    reason: str
    until: float | None = None
    middle: int = 0  # number of entries between prompt and last answer
    tokens: int = 0  # of these entries
    calls: int = 0
    depth: int = 0  # 0 for a live turn, 1 for an archive, 2 for an archive of archives …
    requested: bool = False
    dead: str | None = None  # why the turn is no longer sent to the model


class Archive(Struct, frozen=True):
    """One or more archived turns, from the prompt `prompt_id` to the last answer `entry_id`."""

    entry_id: str
    prompt_id: str
    entries: int  # between prompt and last answer
    tokens_before: int
    tokens_after: int
    depth: int
    note: str | None
    turns: int  # this count and the next two include nested archives
    calls: int
    failed: int  # calls


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


# Tokens of a picture, of any size in bytes: providers scale pictures down to about so many tokens.
PICTURE = 1500
RATE = 0.33  # tokens per character if recorded calls allow no estimate


class Sent(Struct, frozen=True):  # the size of a request or a part of it
    chars: int = 0
    pictures: int = 0

    def __add__(self, more: "Sent") -> "Sent":
        return Sent(self.chars + more.chars, self.pictures + more.pictures)

    def __sub__(self, less: "Sent") -> "Sent":
        return Sent(self.chars - less.chars, self.pictures - less.pictures)

    def tokens(self, rate: float = RATE) -> int:
        return round(rate * self.chars + PICTURE * self.pictures)


class ModelCall(Struct, frozen=True):
    ident: str | None  # of the API message, which may be written as several entries
    model: str | None
    tokens: int = 0  # of the whole prompt, cached or not; 0: not recorded, as for most failed calls
    at: float | None = None  # the time of the answer
    complaint: str | None = None  # TOO_LONG or SIGNATURE if the provider refused the prompt
    limit: int | None = None  # the most tokens that the provider allows, by its error message
    cached: int = 0  # tokens of the prompt that were read from the cache
    written: int = 0  # tokens of the prompt that were written to the cache
    hour: bool = False  # the tokens were written to the cache of an hour
    output: int = 0  # tokens of the answer
    cost: float | None = None  # recorded dollars for the prompt
    dollars: float | None = None  # recorded dollars for prompt and answer


class Spent(Struct, frozen=True):
    model: str
    priced: bool  # the agent recorded the costs of these calls
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


class Compaction(Struct, frozen=True, rename={"tokens": "tokens_before"}):
    at: float | None = None
    tokens: int = 0  # of prompt and answer of the last call before the compaction; 0 if unknown


class Savings(Struct, frozen=True):
    """Savings in a session so far, estimated from its recorded calls."""

    until: float = 0.0  # the time of the last call or a later compaction
    prompt: int = 0  # the tokens that the last prompt would have without extractions
    off: int = 0  # tokens saved in each next request
    broken_at: float | None = None  # when an extraction broke the cache; None after the next call
    tokens: int = 0  # saved in the prompts of all calls
    paid: float = 0.0  # the saved cost of all calls in uncached input tokens
    dollars: float | None = None  # the saved cost of all calls, if the price is known


# Why a provider refused a prompt. A relief can remove both causes.
TOO_LONG, SIGNATURE = "too long", "signature"
Tier = Literal["frontier", "mid", "small"]
TIERS: tuple[Tier, ...] = get_args(Tier)
LAST_STEP = 6  # the highest step of relief


class Calibration(Struct, frozen=True):
    """The estimate of a request's tokens: `fixed` tokens, and `rate` for each character."""

    rate: float
    fixed: float
    calls: int
    # From calls of the session, from the median of the agent's other sessions, or a guess.
    method: Literal["session", "agent", "default"]
    error: float | None = None  # the mean relative error for the calls of the session

    def tokens(self, sent: Sent) -> int:
        return max(0, round(self.fixed) + sent.tokens(self.rate))


class Fullness(Struct, frozen=True):
    """The load of a session's next request and the window of its model, both in tokens."""

    load: int
    window: int
    threshold: float  # the share of the window above which the session is too full
    calibration: Calibration
    model: str | None = None
    tier: Tier | None = None
    recorded: bool = False  # the agent itself recorded the window
    step: int = 0  # the highest step of relief taken
    waits: bool = False  # once the cache is cold, postponed extractions will make the session fit

    @property
    def pressure(self) -> float:
        return self.load / self.window

    @property
    def is_unrelieved(self) -> bool:
        return self.pressure > self.threshold and not self.waits


class Fit(Struct, frozen=True):
    """The load of a session before and after a plan (None if it was not estimated)."""

    before: Fullness | None = None
    after: Fullness | None = None
    room: int = 0  # the load (tokens) up to which the session fits
    # If the session would fit once its protected restored values are extracted again: the bytes
    # that this saves, and when their protection ends.
    protected: tuple[int, float] | None = None
    least: int | None = None  # the least possible load, if no step can make the session fit

    @property
    def load(self) -> int:
        return self.after.load if self.after else 0

    @property
    def fits(self) -> bool:
        return self.after is not None and self.load <= self.room
