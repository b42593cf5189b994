"""Moments as people and programs read them."""

from __future__ import annotations

from datetime import UTC, datetime


def iso(moment: float) -> str:
    """Write a moment as ISO 8601 in UTC with a Z."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
