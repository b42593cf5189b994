"""Turns of a session, what its requests carried, and how full it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from brainsurgeon.model.entries import KeyPath


# How the text of every archive begins.
MARK = "[archived turn]"
# Where a closing entry of the linked form says which entry it continues.
LINK: KeyPath = ("parentId",)
# What an agent writes that was stopped after too many steps.
GAVE_UP = "[Max turns reached]"

# How a turn folds: its middle leaves the active branch, or loses its values where it stands.
ArchiveForm = Literal["linked", "flat"]
# What an entry is in its turn.
#
# An `aside` is sent to the model and is no step of its own (a message of an extension), a `note` is
# not sent and may be left behind, a `fixed` one has to stay on the active branch.
Role = Literal["prompt", "reply", "result", "aside", "note", "fixed"]


@dataclass(frozen=True, slots=True)
class Asked:
    """A tool call: its id, the tool, and the files that its arguments name."""

    call_id: str | None
    tool: str
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answered:
    """A tool's result: the call it answers, whether that failed, and its first line.

    `exit_code` and `took_ms`, its time in milliseconds, are those that its agent recorded, if any.
    """

    call_id: str | None
    failed: bool = False
    finding: str = ""
    exit_code: int | None = None
    took_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """What one entry says as a part of its turn.

    `parent` is the id of the entry that it continues, `names` are the other entries that it names.
    Of a reply `text` is its last block of text, at `text_path`; it `closes` its turn where it has
    stopped, calls nothing and says something, and was `cut_short` where it stopped for another
    reason than being done.
    """

    role: Role
    parent: str | None = None
    names: tuple[str, ...] = ()
    text: str = ""
    text_path: KeyPath | None = None
    closes: bool = False
    cut_short: bool = False
    asked: tuple[Asked, ...] = ()
    answered: tuple[Answered, ...] = ()
    model: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """What a turn comes to, as it was said: what a summary is made of.

    `closing` is the text of its last answer, `note` what its agent says of it instead. `failures`
    are the first lines of failed results, oldest first, `files` those touched with the tool that
    touched them, `tools` the calls in order, each with whether it failed. Where not all of it is
    kept, `closing` lacks so many bytes in its middle (`missing`) and `files` so many at the end
    (`more`), and `questions` are those that `closing` asked.
    """

    closing: str
    note: str | None = None
    failures: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    tools: tuple[tuple[str, bool], ...] = ()
    missing: int = 0
    more: int = 0
    questions: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a session, with all that decides about it.

    `number` counts the turns of a session from 1, `after` is how many live turns follow it and
    `position` how many messages stand after its closing entry. `unformed`, `open`, `dead`, `held`
    and `referred` are reasons why it stays, or None; the one that holds it may end by time alone,
    at `until`. `middle` counts the entries between its prompt and its closing entry, `leaves` and
    `grows` are the characters that would leave and those by which the text would grow, `tokens`
    and `calls` are those of the middle. `depth` is 0 where it is no archive.
    """

    number: int
    prompt_id: str
    closing_id: str | None
    after: int = 0
    position: int = 0
    unformed: str | None = None
    open: str | None = None
    dead: str | None = None
    held: str | None = None
    until: float | None = None
    referred: str | None = None
    middle: int = 0
    leaves: int = 0
    grows: int = 0
    depth: int = 0
    tokens: int = 0
    calls: int = 0
    asked: bool = False
    cut_short: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a turn folds, and why; `until` is when time alone may change that."""

    turn: Turn
    folds: bool
    reason: str
    until: float | None = None


@dataclass(frozen=True, slots=True)
class Archive:
    """A turn that is folded: its closing entry's id, its prompt's, and what that changes.

    `entries` counts those that stand between them, tokens are those that the model gets for it.
    `takes_in` are the ids of the archives that it holds, `prompts` those of the prompts of all its
    turns, of which it has `turns`, with `calls` of which so many `failed`; None where that is not
    known of an older archive in it. `digest` is that of the turn as it stood.
    """

    entry_id: str
    prompt_id: str
    entries: int
    tokens_before: int
    tokens_after: int
    depth: int
    style: str
    note: str | None
    digest: bytes
    reason: str = ""
    takes_in: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    turns: int = 1
    calls: int = 0
    failed: int = 0


def folded_text(archives: int, turns: int) -> str:
    """Return what was archived: so many turns, or archives where one stands for several."""
    made = f"{archives:,} archive{'' if archives == 1 else 's'}"
    told = f"{turns:,} turn{'' if turns == 1 else 's'}"
    return told if turns == archives else f"{made} of {told}"


@dataclass(frozen=True, slots=True)
class ArchiveRecord:
    """What the store says of an archive, or of a turn that is to become one.

    `state` is `asked` (it is to fold when it can), `made`, or `undone` where it was taken back.
    Whether it stands is told by the extractions that name it: its agent may write it again.
    `calls` are those of tools, of which some `failed`.
    """

    id: int
    session_id: int
    entry_id: str
    prompt_id: str
    entries: int
    tokens_before: int
    tokens_after: int
    depth: int
    style: str
    note: str | None
    digest: bytes
    run_id: int | None
    state: str
    made_at: float
    turns: int = 0
    calls: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Sent:
    """What of an entry a request carries: characters of text, and how many pictures.

    The length of a picture's data says nothing about how many tokens it takes.
    """

    chars: int = 0
    pictures: int = 0


NOTHING = Sent()


@dataclass(frozen=True, slots=True)
class ModelCall:
    """A call of a model, as its answer records it.

    `ident` names the API message, which may be written as several entries; None where none is
    said. `tokens` are those of the whole prompt, cached or not, and 0 where the call failed, was
    aborted, or records none. `at` is when it was answered (seconds since 1970), None where that
    is not known. `complaint` says what a provider refused the prompt for: `too long` or `seal`.
    `limit` is the most tokens that it would have taken, where it said so. An answer that `begins`
    is written behind what it answers; where it is False, what it says stands before its record.
    """

    ident: str | None
    model: str | None
    tokens: int = 0
    at: float | None = None
    complaint: str | None = None
    limit: int | None = None
    begins: bool = True


# What a provider may refuse a prompt for, as far as we can help.
TOO_LONG, SEAL = "too long", "seal"


Method = Literal["session", "agent", "default"]
Tier = Literal["frontier", "mid", "small"]
# The highest step of the ladder that relieves a session.
LAST_STEP = 6
TIERS: tuple[Tier, ...] = ("frontier", "mid", "small")


@dataclass(frozen=True, slots=True)
class Calibration:
    """How many tokens the characters of a session take: `fixed`, and `rate` for each character.

    `method` says where that comes from: the recorded usage of the session's own calls, the median
    of its agent's other sessions, or what is assumed where nothing is known. `calls` are those of
    the session's own that it was compared with, and `error` by how much of what they took it is
    wrong on the average, None without any.
    """

    rate: float
    fixed: float
    calls: int
    method: Method
    error: float | None = None

    def tokens(self, chars: int, pictures: int) -> int:
        """Estimate the tokens of a request with so many characters and pictures."""
        return max(0, round(self.fixed + self.rate * chars + PICTURE * pictures))


# Tokens of a picture: providers scale what is larger to about so much, whatever its bytes are.
PICTURE = 1500


@dataclass(frozen=True, slots=True)
class Fullness:
    """What the next request of a session carries (`load`) and what its model takes (`window`).

    Both are in tokens. `recorded` tells that the agent itself noted the window. From the
    `threshold` (a share of the window) on it is too full. `step` is the one of the ladder that
    holds in it.
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
        """How much of the window the next request takes."""
        return self.load / self.window


@dataclass(frozen=True, slots=True)
class Loads:
    """What the store remembers of the loads of all sessions: counts, and tokens in all."""

    sessions: int = 0
    load: int = 0
    window: int = 0
    too_full: int = 0


NO_LOADS = Loads()
