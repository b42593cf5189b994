"""OpenClaw."""
