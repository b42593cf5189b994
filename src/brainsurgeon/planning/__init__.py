"""Pure decisions: what is cut and what stays, and why. No disk, no clock, no logger."""

from __future__ import annotations
