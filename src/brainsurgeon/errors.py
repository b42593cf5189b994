"""The errors of brainsurgeon, with exit codes and with facts for the calling program."""

from collections.abc import Sequence


class BrainsurgeonError(Exception):
    """An error that is reported with its message only, without a traceback."""

    exit_code = 1
    fact_names: tuple[str, ...] = ()

    def __init__(self, reason: str, subject: str = "") -> None:
        """Precede the reason by the subject, if there is one."""
        self.reason = reason
        super().__init__(f"{subject}: {reason}" if subject else reason)

    def facts(self) -> dict[str, object]:
        return {name: list(getattr(self, name)) for name in self.fact_names}


class StoppedError(Exception):
    """The program was asked to stop."""


class UsageError(BrainsurgeonError):
    """The command cannot be carried out with these arguments."""

    exit_code = 2


class ConfigError(BrainsurgeonError):
    """The configuration is invalid. The message lists every problem."""

    exit_code = 2
    fact_names = ("problems",)

    def __init__(self, source: str, problems: Sequence[str]) -> None:
        self.source = source
        self.problems = tuple(problems)
        plural = "problem" if len(self.problems) == 1 else "problems"
        listed = "\n".join(f"  {problem}" for problem in self.problems)
        super().__init__(f"{source}: {len(self.problems)} {plural}, nothing was run:\n{listed}")


class NotFoundError(BrainsurgeonError):
    """The session, entry or run does not exist, or nothing is extracted from the entry."""

    exit_code = 3


class NoSuchKeyError(NotFoundError):
    """The entry has extracted values, but no value with this key. The message lists the keys."""


class GoneError(NotFoundError):
    """The file of the session is gone or cannot be seen. Its record is still in the store."""


class AmbiguousError(BrainsurgeonError):
    """A name has several matches, all in `candidates`. The message lists the first 20."""

    exit_code = 4
    fact_names = ("candidates",)

    def __init__(self, what: str, candidates: Sequence[str], hint: str) -> None:
        self.candidates = tuple(candidates)
        super().__init__(f"{what} matches {len(self.candidates)}: {hint}\n{_some(self.candidates)}")


class UnnamedError(AmbiguousError):
    """The call names no session, and it is unknown which session made the call."""

    def __init__(self, candidates: Sequence[str]) -> None:
        self.candidates = tuple(candidates)
        text = "it is unknown which session makes this call; give `session`, one of:"
        BrainsurgeonError.__init__(self, f"{text}\n{_some(self.candidates)}")


def _some(candidates: Sequence[str]) -> str:
    shown = "\n".join(f"  {candidate}" for candidate in candidates[:20])
    more = len(candidates) - 20
    return shown + (f"\n  … and {more} more" if more > 0 else "")


class ExpiredError(BrainsurgeonError):
    """The value expired. Its tombstone contains the time, the reason and the size."""

    exit_code = 5
    fact_names = ("tombstones",)

    def __init__(self, entry: str, tombstones: Sequence[dict[str, object]]) -> None:
        self.tombstones = tuple(tombstones)
        first = self.tombstones[0]
        super().__init__(
            f"{entry}: the value expired at {first['expired_at']} ({first['reason']}); "
            f"it was {first['size_bytes']} bytes. The file was left as it is."
        )


class FailedError(BrainsurgeonError):
    """The session cannot be read or changed, or the configuration forbids it."""


class BusyError(BrainsurgeonError):
    """Another process uses the store or the file. A retry may succeed."""

    exit_code = 6


class ChangedError(BrainsurgeonError):
    """The session differs from its record, or the entry cannot be edited. It was left as it is."""

    exit_code = 3


class MovedError(BrainsurgeonError):
    """The agent does not use this session's file any more, so the file is not changed."""

    exit_code = 3


class StoreUnusableError(BrainsurgeonError):
    """The store or a backup is damaged, missing, not accessible, or of another version."""

    exit_code = 7


class StoreDamagedError(StoreUnusableError):
    """The database of the store is damaged. Its readable values can be saved into a new one."""


class StoreAccessError(StoreUnusableError):
    """The store cannot be opened, read or written now. Its disk may fail, or have no free inode."""


class DamagedError(StoreUnusableError):
    """A stored value is missing or does not match its digest, so it is not returned."""


class StoreFullError(BrainsurgeonError):
    """The disk has no room for the store or for its copy."""
