"""The wall clock beside the boot clock, so that a jump of the one shows in the other."""

from __future__ import annotations

import time


def boot_clock() -> float:
    """Give the seconds since boot, sleep included."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def boot_id() -> str:
    """Name this boot, as far as the system tells."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as handle:
            return handle.read().strip()
    except OSError:
        return ""
