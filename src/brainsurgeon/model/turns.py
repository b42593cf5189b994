"""Turns of a session, the load of its requests, and how full its context is."""

from typing import Any, Literal, get_args

from msgspec import Struct

from brainsurgeon.model.entries import KeyPath, placeholder_in
from brainsurgeon.model.text import counted

# The first line of every archive's text.
MARK = "[archived turn]"
# The field with the id of the entry before: in the linked form, an archive changes it.
LINK: KeyPath = ("parentId",)
# Written by an agent that was stopped after too many steps.
GAVE_UP = "[Max turns reached]"

# How a turn is archived. In the linked form, the entries between prompt and last answer leave the
# active branch. In the flat form, their values are extracted in place.
ArchiveForm = Literal["linked", "flat"]
# The role of an entry in its turn. An `aside` is sent to the model but is no step of its own (a
# message of an extension). A `note` is not sent and may leave the active branch. A `fixed` entry
# has to stay on the branch.
Role = Literal["prompt", "reply", "result", "aside", "note", "fixed"]


class ToolCall(Struct, frozen=True):
    """A tool call. Its `arguments` may be JSON in a text. If it is `signed`, they have to stay."""

    call_id: str | None
    tool: str
    path: KeyPath = ()
    arguments: Any = None
    as_text: bool = False
    signed: bool = False

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
    """A tool's result. Facts not recorded are None."""

    call_id: str | None
    failed: bool = False
    finding: str = ""  # the first line of a failure
    exit_code: int | None = None
    took_ms: int | None = None


class TurnStep(Struct, frozen=True):
    """One entry as a part of its turn. `parent` and `names` are the ids to which it refers."""

    role: Role
    parent: str | None = None
    names: tuple[str, ...] = ()
    text: str = ""  # the last block of text of a reply
    text_path: KeyPath | None = None
    closes: bool = False  # the reply has stopped, calls no tool and has a text
    cut_short: bool = False  # the model stopped before it was done
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()


class Verdict(Struct, frozen=True):
    """The decision about a turn. At `until`, time alone may change it."""

    number: int  # of live turns, from 1
    prompt_id: str
    closing_id: str | None  # the last answer
    archived: bool
    reason: str
    until: float | None = None
    middle: int = 0  # number of entries between prompt and last answer
    tokens: int = 0  # of these entries
    calls: int = 0
    depth: int = 0  # 0 if the turn is no archive
    requested: bool = False
    dead: str | None = None  # why requests no longer contain the turn


class Archive(Struct, frozen=True):
    """An archive: one or more turns, from the prompt `prompt_id` to the last answer `entry_id`."""

    entry_id: str
    prompt_id: str
    entries: int  # between these two
    tokens_before: int
    tokens_after: int
    depth: int
    note: str | None
    turns: int  # `turns`, `calls` and `failed` include those of the archives in it
    calls: int
    failed: int


class PlannedArchive(Archive, frozen=True):
    """An archive to make of the turns with these prompts. `digest` is of the last turn."""

    digest: bytes
    prompts: tuple[str, ...]


class ArchiveRecord(Archive, frozen=True):
    id: int
    session_id: int
    made_at: float


def archived_text(archives: int, turns: int) -> str:
    of_turns = counted(turns, "turn")
    return of_turns if turns == archives else f"{counted(archives, 'archive')} of {of_turns}"


# Tokens of a picture: providers scale a larger one to about this size, whatever its bytes are.
PICTURE = 1500
# Tokens per character if no recorded calls tell the rate.
RATE = 0.33


class Sent(Struct, frozen=True):
    chars: int = 0
    pictures: int = 0

    def __add__(self, more: "Sent") -> "Sent":
        return Sent(self.chars + more.chars, self.pictures + more.pictures)

    def __sub__(self, less: "Sent") -> "Sent":
        return Sent(self.chars - less.chars, self.pictures - less.pictures)

    def tokens(self, rate: float = RATE) -> int:
        return round(rate * self.chars + PICTURE * self.pictures)


NOTHING = Sent()


class ModelCall(Struct, frozen=True):
    """A call of a model, as its answer records it."""

    ident: str | None  # of the API message, which may be written as several entries
    model: str | None
    tokens: int = 0  # of the whole prompt, cached or not; 0: not recorded, as for most failed calls
    at: float | None = None  # when it was answered
    complaint: str | None = None  # TOO_LONG or SIGNATURE if the provider refused the prompt
    limit: int | None = None  # the maximum of tokens in its error message
    cached: int = 0
    written: int = 0
    hour: bool = False  # written to the cache of an hour
    output: int = 0
    cost: float | None = None  # recorded dollars of the prompt
    dollars: float | None = None  # of prompt and answer


class Spent(Struct, frozen=True):
    """The usage of some calls of one model. If `priced`, their agent recorded what they cost."""

    model: str
    priced: bool
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
    """A compaction: later requests contain nothing from before."""

    at: float | None = None
    tokens: int = 0  # of prompt and answer of the last call before it, 0 if that was not read


class Savings(Struct, frozen=True):
    """Savings in a session so far, estimated from the calls that it recorded."""

    until: float = 0.0  # the time of the last call or a later compaction
    prompt: int = 0  # the tokens that the last prompt would have without extractions
    off: int = 0  # tokens saved in each next request
    broken_at: float | None = None  # when an extraction broke the cache, None after the next call
    tokens: int = 0  # saved in the prompts of these calls
    paid: float = 0.0  # their saved cost in uncached input tokens
    dollars: float | None = None  # their saved cost, if the price is known


# The reasons for refusing a prompt that a relief can remedy.
TOO_LONG, SIGNATURE = "too long", "signature"
Tier = Literal["frontier", "mid", "small"]
TIERS: tuple[Tier, ...] = get_args(Tier)
# The highest step of relief.
LAST_STEP = 6


class Calibration(Struct, frozen=True):
    """An estimate of a request's tokens: `fixed`, plus `rate` for each character."""

    rate: float
    fixed: float
    calls: int
    # The source: recorded usage of own calls, the median of the agent's other sessions, or a guess.
    method: Literal["session", "agent", "default"]
    error: float | None = None  # the mean relative error over its own calls

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

    @property
    def pressure(self) -> float:
        return self.load / self.window


class Fit(Struct, frozen=True):
    """The load of a session before and after a plan (None if it was not estimated)."""

    before: Fullness | None = None
    after: Fullness | None = None
    room: int = 0  # the load (tokens) up to which the session fits
    # If only restored values keep it from fitting, their size and when their protection ends.
    protected: tuple[int, float] | None = None
    least: int | None = None  # the least load, if no step can make the session fit

    @property
    def load(self) -> int:
        return self.after.load if self.after else 0

    @property
    def fits(self) -> bool:
        return self.after is not None and self.load <= self.room


class Loads(
    Struct, frozen=True,
    rename={"sessions": "sessions_weighed", "load": "load_tokens", "window": "window_tokens",
            "too_full": "sessions_too_full"},
):  # fmt: skip
    sessions: int = 0
    load: int = 0
    window: int = 0
    too_full: int = 0
