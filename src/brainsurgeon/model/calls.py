"""What a session says of the requests that its agent made: what they carried and what they took."""

from __future__ import annotations

from dataclasses import dataclass


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


TOO_LONG, SEAL = "too long", "seal"
"""What a provider may refuse a prompt for, as far as we can help."""
