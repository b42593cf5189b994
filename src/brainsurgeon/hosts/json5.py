"""Read JSON as people write it: with comments, bare keys, single quotes and trailing commas.

OpenClaw's own configuration is read that way by its program (JSON5). Each piece is turned into
its plain form and the whole is given to the standard parser, so that what is understood here is
understood as it was meant, or not at all.
"""

from __future__ import annotations

import json
import re

_PIECE = re.compile(
    r"""
      (?P<space>[\s\ufeff]+)
    | (?P<comment>//[^\n]*|/\*.*?\*/)
    | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    | (?P<word>[A-Za-z_$][\w$]*)
    | (?P<number>[+-]?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))
    | (?P<mark>[{}\[\]:,])
    """,
    re.VERBOSE | re.DOTALL,
)
_INNER = re.compile(r"\\(\r\n|.)|[\"\t]", re.DOTALL)
"""What cannot stand in a plain string as it is: an escape, a quote, a tab."""
_PLAIN = {"'": "'", "0": "\\u0000", "v": "\\u000b", "\n": "", "\r\n": "", "\r": ""}
_WORDS = ("true", "false", "null")


def loads(text: str) -> object:
    """Parse a text; raise ValueError for what is no JSON5, and for its Infinity and NaN."""
    pieces: list[str] = []
    at = 0
    while at < len(text):
        match = _PIECE.match(text, at)
        if match is None:
            raise ValueError("not JSON5")
        at = match.end()
        if match.lastgroup in ("space", "comment"):
            continue
        if match[0] in ("}", "]") and pieces and pieces[-1] == ",":
            pieces.pop()
        pieces.append(_plain(str(match.lastgroup), match[0]))
    return json.loads(" ".join(pieces))


def _plain(kind: str, piece: str) -> str:
    if kind == "string":
        return f'"{_INNER.sub(_escape, piece[1:-1])}"'
    if kind == "word":
        return piece if piece in _WORDS else f'"{piece}"'
    if kind == "number":
        return _number(piece)
    return piece


def _escape(match: re.Match[str]) -> str:
    letter = match[1]
    if letter is None:
        return '\\"' if match[0] == '"' else "\\t"
    if letter in _PLAIN:
        return _PLAIN[letter]
    if letter == "x":
        return "\\u00"
    return match[0] if letter in '"\\/bfnrtu' else letter


def _number(piece: str) -> str:
    sign = "-" if piece.startswith("-") else ""
    digits = piece.lstrip("+-")
    if digits[:2] in ("0x", "0X"):
        return f"{sign}{int(digits, 16)}"
    whole, dot, rest = digits.partition(".")
    if dot and not rest[:1].isdigit():
        rest = f"0{rest}"
    return sign + (whole or "0") + dot + rest
