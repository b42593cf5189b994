"""An edit of no kind that the program knows: what hands are tried with."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Swap:
    """An edit that puts some bytes in the place of others."""

    start: int
    end: int
    new: bytes

    @property
    def gain(self):
        return self.end - self.start - len(self.new)

    def bytes_after(self, _):
        return self.new


def know_nothing(_):
    """Say nothing, and object to nothing."""
