"""Bars of characters: blocks where the terminal is known to show them, else number signs."""

from __future__ import annotations

import os
import sys

_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bar(share: float, room: int) -> str:
    """Draw a share (0 to 1) of so many characters; what is more than nothing is seen."""
    share = min(1.0, max(0.0, share))
    if not blocks():
        return "#" * (max(1, round(share * room)) if share else 0)
    eighths = max(1, round(share * room * 8)) if share else 0
    return _EIGHTHS[8] * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


def blocks() -> bool:
    """Tell whether the locale and the stream have block characters.

    LC_CTYPE says nothing: Python itself sets it to UTF-8 where the locale is C.
    """
    locale = os.environ.get("LC_ALL") or os.environ.get("LANG") or ""
    said = locale.upper().replace("-", "")
    return "UTF8" in said and (sys.stdout.encoding or "").lower() == "utf-8"
