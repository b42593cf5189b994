"""Words of others on the page: names of sessions, tools and files may be anything."""

from __future__ import annotations

from html import escape

from brainsurgeon.model.texts import readable


def said(text: str) -> str:
    """Make a text fit to stand in HTML, in an attribute, too: shown as it is, never obeyed."""
    return escape(readable(text), quote=True)


def code(text: str) -> str:
    """Give a name or a path as such."""
    return f"<code>{said(text)}</code>"
