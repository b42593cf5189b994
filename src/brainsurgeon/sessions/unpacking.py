"""Unpack what an agent packed with zstd, piece by piece."""

from __future__ import annotations

from typing import TYPE_CHECKING

import zstandard

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def unpacked(packed: Iterable[bytes]) -> Iterator[bytes]:
    """Yield what frames, one after another, stand for; raise ZstdError where one is damaged."""
    frame = zstandard.ZstdDecompressor().decompressobj()
    for piece in packed:
        rest = piece
        while rest:
            if frame.eof:
                frame = zstandard.ZstdDecompressor().decompressobj()
            yield frame.decompress(rest)
            rest = frame.unused_data if frame.eof else b""
    if not frame.eof:
        raise zstandard.ZstdError("an archive is cut off")
