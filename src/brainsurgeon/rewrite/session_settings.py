"""Which settings hold for one session: those of the profile that its name or its key has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brainsurgeon.hosts import openclaw, openclaw_signs

if TYPE_CHECKING:
    from brainsurgeon.config import Settings
    from brainsurgeon.model.sessions import SessionFile


def settings_for(settings: Settings, file: SessionFile) -> Settings:
    """Give the settings that hold for a session; without any profile in use, those that there are.

    Its names are `agent/id`, its keys those under which its agent lists it.
    """
    if not settings.use:
        return settings
    titles = [f"{agent}/{file.session}" for agent in openclaw.agent_names(file.agent)]
    keys = _keys(file) if settings.asks_for_keys else []
    return settings.under(settings.profile_of(titles, keys))


def _keys(file: SessionFile) -> list[str]:
    """Give the keys of a session; none where its agent's list cannot be read."""
    if file.key is not None:
        return [file.key]
    if openclaw.owner(file.directory) is None:
        return []
    return openclaw_signs.keys_of(file.directory, file.name)


def context_tokens(file: SessionFile) -> int | None:
    """Give how many tokens the model of a session takes, as OpenClaw noted beside its file."""
    if file.in_database or openclaw.owner(file.directory) is None:
        return None
    return openclaw_signs.context_tokens(file.directory, file.name)
