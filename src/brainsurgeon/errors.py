"""What may go wrong, as facts, each with its exit code; the doors turn them into one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class BrainsurgeonError(Exception):
    """Something that we understand went wrong; it deserves one line and no traceback."""

    exit_code = 1

    def facts(self) -> dict[str, object]:
        """Return what a program can act on, beside the message."""
        return {}


class StoppedError(Exception):
    """The program was asked to stop; what had begun is finished or undone."""


class UsageError(BrainsurgeonError):
    """The words of a command do not fit together."""

    exit_code = 2


class ConfigError(BrainsurgeonError):
    """The configuration is not understood; every problem is listed with its place."""

    exit_code = 2

    def __init__(self, source: str, problems: Sequence[str]) -> None:
        self.source = source
        self.problems = tuple(problems)
        plural = "problem" if len(self.problems) == 1 else "problems"
        listed = "\n".join(f"  {problem}" for problem in self.problems)
        super().__init__(f"{source}: {len(self.problems)} {plural}, nothing was run:\n{listed}")

    def facts(self) -> dict[str, object]:
        """Return the problems as a list."""
        return {"problems": list(self.problems)}


class NotFoundError(BrainsurgeonError):
    """No such session or entry, or nothing extracted there."""

    exit_code = 3


class NoSuchKeyError(NotFoundError):
    """The entry has extracted values, but none of that name; those that there are, are listed."""


class GoneError(NotFoundError):
    """Only the store still knows the session: its file is not there any more."""


class AmbiguousError(BrainsurgeonError):
    """A name fits more than one thing; the candidates are listed."""

    exit_code = 4

    def __init__(self, what: str, candidates: Sequence[str], hint: str) -> None:
        self.candidates = tuple(candidates)
        super().__init__(f"{what} fits {len(self.candidates)}: {hint}\n{_some(self.candidates)}")

    def facts(self) -> dict[str, object]:
        """Return every candidate."""
        return {"candidates": list(self.candidates)}


class UntoldError(AmbiguousError):
    """No session was named, none or several wait for this very call, and several could be meant."""

    def __init__(self, candidates: Sequence[str]) -> None:
        self.candidates = tuple(candidates)
        told = "it cannot be told which session makes this call; give `session`, one of:"
        BrainsurgeonError.__init__(self, f"{told}\n{_some(self.candidates)}")


def _some(candidates: Sequence[str]) -> str:
    shown = "\n".join(f"  {candidate}" for candidate in candidates[:20])
    more = len(candidates) - 20
    return shown + (f"\n  … and {more} more" if more > 0 else "")


class ExpiredError(BrainsurgeonError):
    """The value is gone; what stays is when it went, why, and how big it was."""

    exit_code = 5

    def __init__(self, entry: str, tombstones: Sequence[dict[str, object]]) -> None:
        self.tombstones = tuple(tombstones)
        first = self.tombstones[0]
        super().__init__(
            f"{entry}: the value expired at {first['expired_at']} ({first['reason']}); "
            f"it was {first['size_bytes']} bytes. The file was left as it is."
        )

    def facts(self) -> dict[str, object]:
        """Return the tombstones."""
        return {"tombstones": list(self.tombstones)}


class FailedError(BrainsurgeonError):
    """The session's file cannot be read or replaced; it was left as it is."""

    exit_code = 1


class BusyError(BrainsurgeonError):
    """The store or the file is in another's hands; trying again will do."""

    exit_code = 6


class ChangedError(BrainsurgeonError):
    """The place no longer looks as it was recorded; nothing was guessed or touched."""

    exit_code = 3


class GuardedError(BrainsurgeonError):
    """The agent keeps its sessions elsewhere now; its files are not written any more."""

    exit_code = 3


class StoreUnusableError(BrainsurgeonError):
    """The store is damaged, newer than this program, or somebody else's; it was not touched."""

    exit_code = 7


class StoreDamagedError(StoreUnusableError):
    """The database of the store is damaged; what it still holds can be saved into a new one."""


class DamagedError(StoreUnusableError):
    """One stored value is not what it was; nothing was put back in its place."""

    def __init__(self, message: str, extraction_id: int | None = None) -> None:
        self.extraction_id = extraction_id
        super().__init__(message)


class StoreFullError(BrainsurgeonError):
    """There is no room for the values that would be cut, so nothing was cut."""

    exit_code = 1
