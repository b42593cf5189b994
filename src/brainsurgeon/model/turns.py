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
    """A tool's result. `finding` is the first line of a failure. Facts not recorded are None."""

    call_id: str | None
    failed: bool = False
    finding: str = ""
    exit_code: int | None = None
    took_ms: int | None = None


class TurnStep(Struct, frozen=True):
    """One entry as a part of its turn. `parent` and `names` are the ids to which it refers.

    `text` is the last block of text of a reply. A reply `closes` its turn if it has stopped, calls
    no tool and has a text. It was `cut_short` if the model stopped before it was done.
    """

    role: Role
    parent: str | None = None
    names: tuple[str, ...] = ()
    text: str = ""
    text_path: KeyPath | None = None
    closes: bool = False
    cut_short: bool = False
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()


class Verdict(Struct, frozen=True):
    """Whether a turn is archived, and why; at `until`, time alone may change that.

    `number` counts live turns from 1. `closing_id` is the id of the last answer, `middle` the
    number of entries between it and the prompt, with their `tokens` and `calls`. `depth` is 0 if
    the turn is no archive. `dead` is why requests no longer contain the turn, or None.
    """

    number: int
    prompt_id: str
    closing_id: str | None
    archived: bool
    reason: str
    until: float | None = None
    middle: int = 0
    tokens: int = 0
    calls: int = 0
    depth: int = 0
    requested: bool = False
    dead: str | None = None


class Archive(Struct, frozen=True):
    """An archive: one or more turns, from the prompt `prompt_id` to the last answer `entry_id`.

    `entries` counts the entries between these two. `turns`, `calls` and `failed` (calls) include
    those of the archives in it.
    """

    entry_id: str
    prompt_id: str
    entries: int
    tokens_before: int
    tokens_after: int
    depth: int
    note: str | None
    turns: int
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
    """A call of a model, as its answer records it.

    `ident` is the id of the API message, which may be written as several entries. `tokens` counts
    the whole prompt, cached or not; 0 means not recorded, as for most failed calls. `at` is when
    the call was answered. `complaint` is TOO_LONG or SIGNATURE if the provider refused the prompt,
    `limit` the maximum tokens in its error message. `cost` is the recorded price of the prompt in
    dollars, `dollars` that of prompt and answer.
    """

    ident: str | None
    model: str | None
    tokens: int = 0
    at: float | None = None
    complaint: str | None = None
    limit: int | None = None
    cached: int = 0
    written: int = 0
    hour: bool = False
    output: int = 0
    cost: float | None = None
    dollars: float | None = None


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
    """A compaction: later requests contain nothing from before.

    `tokens` counts the prompt and answer of the last call before it, 0 if that was not read.
    """

    at: float | None = None
    tokens: int = 0


class Savings(Struct, frozen=True):
    """Savings in a session so far, estimated from the calls that it recorded.

    The prompts of these calls were `tokens` smaller. They cost `paid` uncached input tokens less,
    or `dollars` if the price is known. `until` is the time of the last call or a later compaction.
    `prompt` is the size of the last prompt (tokens) had nothing been extracted. Each next request
    is `off` tokens smaller. `broken_at` is when an extraction last broke the cache, None after the
    next call.
    """

    until: float = 0.0
    prompt: int = 0
    off: int = 0
    broken_at: float | None = None
    tokens: int = 0
    paid: float = 0.0
    dollars: float | None = None


# The reasons for refusing a prompt that a relief can remedy.
TOO_LONG, SIGNATURE = "too long", "signature"
Tier = Literal["frontier", "mid", "small"]
TIERS: tuple[Tier, ...] = get_args(Tier)
# The highest step of relief.
LAST_STEP = 6


class Calibration(Struct, frozen=True):
    """An estimate of a request's tokens: `fixed`, plus `rate` for each character.

    `method` is the source: the recorded usage of the session's own calls, the median of its agent's
    other sessions, or a default. `error` is the mean relative error over its own `calls`.
    """

    rate: float
    fixed: float
    calls: int
    method: Literal["session", "agent", "default"]
    error: float | None = None

    def tokens(self, sent: Sent) -> int:
        return max(0, round(self.fixed) + sent.tokens(self.rate))


class Fullness(Struct, frozen=True):
    """The load of a session's next request and the window of its model, both in tokens.

    Above `threshold` (a share of the window), the session is too full. `recorded` means that the
    agent itself recorded the window. `step` is the highest step of relief taken.
    """

    load: int
    window: int
    threshold: float
    calibration: Calibration
    model: str | None = None
    tier: Tier | None = None
    recorded: bool = False
    step: int = 0

    @property
    def pressure(self) -> float:
        return self.load / self.window


class Loads(
    Struct, frozen=True,
    rename={"sessions": "sessions_weighed", "load": "load_tokens", "window": "window_tokens",
            "too_full": "sessions_too_full"},
):  # fmt: skip
    sessions: int = 0
    load: int = 0
    window: int = 0
    too_full: int = 0
