"""Moments: seconds since 1970 in UTC, written as ISO 8601 for people, programs and agents."""

from __future__ import annotations

from datetime import UTC, datetime


def iso(moment: float) -> str:
    """Write a moment as ISO 8601 in UTC with a Z."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment_said(text: object) -> float | None:
    """Read an ISO 8601 time (UTC without a zone); None where it is not one."""
    if not isinstance(text, str):
        return None
    try:
        read = datetime.fromisoformat(text)
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
