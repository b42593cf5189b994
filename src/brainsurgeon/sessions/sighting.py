"""Where stubs stand: a plain search for their text in an agent's files, archives included."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from brainsurgeon.model import STUB, Found
from brainsurgeon.sessions.discover import Root, discover, is_archive_name
from brainsurgeon.sessions.reading import Refused, open_session, read_range

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_LONGEST = 160
"""Bytes: more than any stub, so that none is missed where two chunks meet."""


def sessions_and_archives(roots: Iterable[Root]) -> Iterator[Found]:
    """Yield the files below the roots in which a stub may stand: sessions and their archives."""
    for item in discover(roots, wanted=is_archive_name):
        if isinstance(item, Found):
            yield item


def stubs_in(found: Found, check: Callable[[], None]) -> set[str]:
    """Give the texts of all stubs that stand anywhere in a file; raise OSError where it hides."""
    stubs: set[bytes] = set()
    try:
        with open_session(found, check) as session:
            tail = b""
            for chunk in read_range(session.descriptor, 0, session.fingerprint.size):
                check()
                text = tail + chunk
                stubs.update(STUB.findall(text))
                tail = text[-_LONGEST:]
    except Refused as why:
        raise OSError(errno.EINVAL, str(why)) from why
    return {os.fsdecode(stub) for stub in stubs}
