"""Open a directory of a walk and say what stands in it, without listing it anew in vain.

What stands in a directory can change only together with the time at which the directory itself
changed, which nobody can set. So a directory that is as it was at the last pass is not listed
again, nor opened in the sense of the kernel, which would tell everybody who watches it, ourselves
among them. Its files are looked at, each of them, as ever.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from brainsurgeon.model.sessions import Fingerprint, Listing
from brainsurgeon.sessions.filesystems import unproven

if TYPE_CHECKING:
    from brainsurgeon.model.sessions import Resting

_DIRECTORY = os.O_DIRECTORY | os.O_CLOEXEC
_PATH = getattr(os, "O_PATH", os.O_RDONLY)
SETTLED = 3.0
"""Seconds for which a directory must have been as it is when it is listed: until then a further
change may leave it with the same time, as filesystems count in steps."""


def open_listed(
    path: str, name: str, above: int | None, resting: Resting | None
) -> tuple[int, Listing]:
    """Open the directory `name`, which is `path`, and give what stands in it.

    Below a directory that is open as `above` a link is refused. Raise OSError where it cannot be
    opened or listed. The caller closes the descriptor, which may be good for looking at names only.
    """
    known = resting.listings.get(path) if resting else None
    follow = 0 if above is None else os.O_NOFOLLOW
    if resting and known:
        descriptor = os.open(name, _PATH | _DIRECTORY | follow, dir_fd=above)
        if Fingerprint.of(os.fstat(descriptor)) == known.mark:
            resting.listed[path] = known
            return descriptor, known
        os.close(descriptor)
    descriptor = os.open(name, os.O_RDONLY | _DIRECTORY | follow, dir_fd=above)
    try:
        listing = _list(descriptor)
        if resting and _lasts(listing.mark, descriptor):
            resting.listed[path] = listing
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, listing


def _list(descriptor: int) -> Listing:
    mark = Fingerprint.of(os.fstat(descriptor))  # before: what changes meanwhile shows in the next
    names: list[str] = []
    inner: list[str] = []
    links: list[str] = []
    with os.scandir(descriptor) as listing:
        for item in listing:
            if item.is_symlink():
                links.append(item.name)
            else:
                (inner if item.is_dir(follow_symlinks=False) else names).append(item.name)
    return Listing(mark, names, inner, links)


def _lasts(mark: Fingerprint, descriptor: int) -> bool:
    """Tell whether the next change of a directory is certain to show in its mark.

    On other filesystems nobody knows who gives a directory its times.
    """
    now = time.clock_gettime(time.CLOCK_REALTIME)  # the kernel's, as are the times of files
    return mark.ctime_ns / 1e9 < now - SETTLED and unproven(descriptor) is None
