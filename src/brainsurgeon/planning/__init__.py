"""Pure decisions: which values are extracted, which stay, and why. No disk, no clock, no logger."""
