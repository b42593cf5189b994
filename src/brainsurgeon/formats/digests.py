"""Digests of what an entry says, with what we changed in it undone.

The digest of a list or an object is made of the digests of what is in it, so that a value that
was cut out can be put into the reckoning by its own digest, without the value. Numbers count by
what they are worth and keys in no order: an agent that writes its history anew may write `1.0`
as `1`.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from brainsurgeon.model.entries import value_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from brainsurgeon.formats.base import Format
    from brainsurgeon.model.entries import Entry, KeyPath
    from brainsurgeon.model.records import Extraction

SIZE = 16
"""Bytes of a digest."""
_SHORT = 64
"""Characters up to which the digest of a key is kept."""
_NOTHING: Mapping[KeyPath, bytes] = MappingProxyType({})


def digest_of(
    value: Any, undone: Mapping[KeyPath, bytes] = _NOTHING, path: KeyPath = ()
) -> bytes | None:
    """Give the digest of a parsed value that stands at `path`; None where it is nested too deeply.

    `undone` gives the digests of what really belongs to places of it.
    """
    try:
        return _digest(value, undone, path)
    except RecursionError:
        return None


def undone_by(standing: Iterable[Extraction]) -> dict[KeyPath, bytes] | None:
    """Give what undoes what stands in an entry; None where an older record does not say it."""
    undone = {}
    for one in standing:
        if one.said is None:
            return None
        undone[one.path] = one.said
    return undone


def known(
    said: Mapping[KeyPath, bytes | None], undone: Mapping[KeyPath, bytes] | None
) -> Mapping[KeyPath, bytes] | None:
    """Add the digests that were just made of some places to what is undone.

    A digest of more than they then need not be made of the values once more.
    """
    if undone is None:
        return None
    return {**undone, **{path: digest for path, digest in said.items() if digest is not None}}


def whole_of(form: Format, entry: Entry, undone: Mapping[KeyPath, bytes] | None) -> bytes | None:
    """Give the digest of all that the agent said in an entry."""
    return None if undone is None else digest_of(form.payload(entry), undone)


def said_at(entry: Entry, path: KeyPath, undone: Mapping[KeyPath, bytes] | None) -> bytes | None:
    """Give the digest of what the agent said at one place of an entry."""
    return None if undone is None else digest_of(value_at(entry, path), undone, path)


def _digest(value: Any, undone: Mapping[KeyPath, bytes], path: KeyPath) -> bytes:
    if undone and path in undone:
        return undone[path]
    if isinstance(value, str):
        digest = blake2b(b"s", digest_size=SIZE)
        digest.update(value.encode("utf-8", "surrogatepass"))  # not joined: it may be long
        return digest.digest()
    if isinstance(value, dict):
        said = b"o" + b"".join(
            _key(key) + _digest(item, undone, (*path, key)) for key, item in sorted(value.items())
        )
    elif isinstance(value, list):
        said = b"l" + b"".join(
            _digest(item, undone, (*path, index)) for index, item in enumerate(value)
        )
    elif isinstance(value, bool) or value is None:
        said = repr(value).encode()
    else:
        said = b"n" + _worth(value)
    return blake2b(said, digest_size=SIZE).digest()


def _key(key: str) -> bytes:
    """Give the digest of a key; those of a format come again in every entry."""
    return _short_key(key) if len(key) <= _SHORT else _digest(key, _NOTHING, ())


@lru_cache(maxsize=1024)
def _short_key(key: str) -> bytes:
    return _digest(key, _NOTHING, ())


def _worth(number: float) -> bytes:
    """Write what a number is worth to those that know only floating point."""
    try:
        return repr(float(number)).encode()
    except OverflowError:
        return b"inf" if number > 0 else b"-inf"
