"""Bars are drawn of what the terminal can show, and never hide what is more than nothing."""

import io
import sys

import pytest

from brainsurgeon.render import bar


class Stream(io.TextIOWrapper):
    """A stream that writes in an encoding."""

    def __init__(self, encoding):
        super().__init__(io.BytesIO(), encoding=encoding)


@pytest.fixture
def written(monkeypatch):
    """Give a bar as it is drawn in a locale, on a stream of an encoding."""

    def written(share, *, encoding="utf-8", **locale):
        for name in ("LC_ALL", "LC_CTYPE", "LANG"):
            monkeypatch.delenv(name, raising=False)
        for name, value in locale.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "stdout", Stream(encoding))
        return bar(share, 8)

    return written


@pytest.mark.parametrize(
    ("share", "drawn"),
    [(0, ""), (1e-9, "▏"), (0.5, "████"), (0.55, "████▍"), (1, "████████"), (7, "████████")],
)
def test_a_bar_is_as_long_as_its_share(written, share, drawn):
    """Eighths of a character, from nothing to the whole room and no further."""
    assert written(share, LANG="en_GB.UTF-8") == drawn


@pytest.mark.parametrize(
    "locale",
    [{"LANG": "C"}, {}, {"LANG": "C", "LC_CTYPE": "C.UTF-8"}, {"LC_ALL": "C", "LANG": "de.UTF-8"}],
)
def test_a_plain_locale_gets_plain_characters(written, locale):
    """In the locale C there are number signs, also where Python made its LC_CTYPE another."""
    assert (written(0.5, **locale), written(1e-9, **locale), written(0, **locale)) == (
        "####", "#", "",
    )  # fmt: skip


def test_a_stream_without_blocks_gets_none(written):
    """Where the stream writes Latin-1 the locale alone does not do."""
    assert written(0.5, encoding="latin-1", LANG="de_DE.UTF-8") == "####"
