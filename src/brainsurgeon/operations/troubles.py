"""The one list of troubles for `status --check`, `doctor`, the metrics and the report page.

No session is read, unless there is no store.
"""

import os
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator

from brainsurgeon.config import RootSettings, Settings
from brainsurgeon.lookup.opening import lost_without_store
from brainsurgeon.lookup.sessions import EMPTY
from brainsurgeon.model.reports import Expiring, LostValues, Trouble
from brainsurgeon.model.session_files import SessionFile, Unreadable
from brainsurgeon.model.text import bytes_, counted, iso
from brainsurgeon.operations.pause import LONG, pauses
from brainsurgeon.planning.retention import MISSING, SILENT
from brainsurgeon.sessions.discovery import any_format, discover
from brainsurgeon.sessions.row_listing import list_rows
from brainsurgeon.store import Store, database
from brainsurgeon.store.catalogue import FAILED

LINKED = "the root is a symbolic link: configure its target instead"
BLOCKED = 86_400.0  # seconds after which a waiting session is called blocked
_LOST = (
    "if another store has the values, set state_dir to its directory or restore its backup (store"
    " restore FILE); otherwise only a backup of the session has them"
)
_BESIDE = "compare both files: add the lines that the session lacks, then remove the old file"
# The sessions whose values expire, and what to do.
_EXPIRING = {
    MISSING: (
        "missing sessions",
        "move the sessions back, or add roots that were removed from the configuration",
    ),
    SILENT: (
        "sessions without activity",
        'restore them, or set retention_standing = "never" to keep them',
    ),
}


def troubles(
    settings: Settings, store: Store, now: float, problems: Iterable[Unreadable],
    lost: LostValues, expiring: Iterable[Expiring],
) -> list[Trouble]:  # fmt: skip
    """Return the troubles. `problems` are the paths below the roots that could not be read."""
    return [
        *of_surroundings(settings),
        *_of_sessions(store, now),
        *(
            Trouble("roots", f"{root}: {why}")
            for root, why in root_problems(settings, store, problems).items()
        ),
        *_of_pauses(store, now),
        *_of_rewrites(store),
        *_of_values(settings, store, lost),
        *map(_of_expiring, expiring),
    ]


def _of_expiring(group: Expiring) -> Trouble:
    (sessions, advice), day = _EXPIRING[group.reason], iso(group.expires_at)[:10]
    what = f"{counted(group.values, 'value')} of {sessions} expire from {day} (UTC) on: {advice}"
    return Trouble("expiring_values", what, number=group.values, harmless=group.is_short)


def of_surroundings(settings: Settings) -> Iterator[Trouble]:
    """Yield the troubles of the configuration and of the disks, which do not concern the store."""
    yield from _of_configuration(settings)
    yield from _of_disks(settings)


def _of_configuration(settings: Settings) -> Iterator[Trouble]:
    if not settings.enabled:
        yield Trouble(
            "disabled", "nothing is extracted: enabled = false",
            "set enabled = true in the configuration, or leave out the key",
        )  # fmt: skip
    profiles = {f"profiles.{name}.": table for name, table in settings.profiles.items()}
    tables = {"": settings, **profiles}
    commands = {f"{at}archive.command": table.archive.command for at, table in tables.items()}
    for key, command in {**commands, "signals.on_signal": settings.signals.on_signal}.items():
        if command and not shutil.which(command[0]):
            yield Trouble(
                "programs", f"{key}: {command[0]} cannot be found or executed",
                "correct the key, or make the program executable for this user",
            )  # fmt: skip


def _of_sessions(store: Store, now: float) -> Iterator[Trouble]:
    if failed := dict(store.sums.outcomes()).get(FAILED):
        yield Trouble(
            "failed_sessions", f"{counted(failed, 'session')} failed",
            "`status` lists the reasons", failed,
        )  # fmt: skip
    for path, why in store.files.blocked(now - BLOCKED).items():
        yield Trouble("blocked_sessions", f"{path}: blocked for more than a day, {why}")


def _of_pauses(store: Store, now: float) -> Iterator[Trouble]:
    for one in pauses(store, now).listed():
        if one.ends_at is None and now - one.paused_at >= LONG:
            yield Trouble(
                "pauses", f"{one.session or 'every session'}: paused for more than seven days",
                "`brainsurgeon pause --end` ends it",
            )  # fmt: skip


def _of_rewrites(store: Store) -> Iterator[Trouble]:
    for rewrite in store.interrupted_rewrites():
        if rewrite.stays:
            advice = _BESIDE if rewrite.ended_at else "the next scan tries again"
            what = f"{rewrite.path}: its old file {rewrite.temporary} remains: {rewrite.stays}"
            yield Trouble("kept_files", what, advice)
        else:
            what = f"{rewrite.path}: a rewrite is unfinished; the next run finishes or undoes it"
            advice = "`doctor --repair` does so now"
            yield Trouble("interrupted_rewrites", what, advice, harmless=True)


def _of_values(settings: Settings, store: Store, lost: LostValues) -> Iterator[Trouble]:
    for path, why in held_back(store).items():
        yield Trouble("held_back", f"{path}: nothing expires there, {why}")
    if damaged := store.blobs.count_damaged():
        what = f"{counted(damaged, 'stored value')} damaged or lost: see `doctor`"
        yield Trouble("damaged_values", what, number=damaged)
    if lost.values:
        have = "placeholder in sessions has", "placeholders in sessions have"
        what = f"{counted(lost.values, *have)} no stored value"
        where, advice = "see `doctor`", _LOST
        if not store.exists:  # `status --check` prints no advice
            where, advice = f"there is no store in {settings.state_dir}. {database.NO_STORE}", ""
        yield Trouble("lost_values", f"{what}: {where}", advice, lost.values)


def _of_disks(settings: Settings) -> Iterator[Trouble]:
    roots = [os.path.realpath(root.path) for root in settings.root_directories()]
    for path in dict.fromkeys((settings.state_dir, *roots)):
        left = database.free(path)
        if left is not None and left < database.SCARCE:
            yield Trouble(
                "disks", f"{path}: {bytes_(left)} of disk are left",
                "make room: new files and values are written before old ones are removed",
            )  # fmt: skip


def held_back(store: Store) -> dict[str, str]:
    return dict((store.facts.get("retention") or {}).get("held_back", {}))


def doubtful_roots(settings: RootSettings) -> list[Unreadable]:
    doubtful = []
    for root in settings.root_directories():
        why = LINKED if os.path.islink(root.path.rstrip("/")) else None
        try:
            with os.scandir(root.path) as items:
                why = why if any(True for _ in items) else EMPTY
        except FileNotFoundError:
            why = why or ("no such directory" if root.required else None)
        except OSError as error:
            why = error.strerror or "cannot be opened"
        if why:
            doubtful.append(Unreadable(os.path.realpath(root.path), root.path, why, failed=False))
    return doubtful


def root_problems(
    settings: RootSettings, store: Store, problems: Iterable[Unreadable]
) -> dict[str, str]:
    """Return what is wrong with each root, or with what is below it."""
    reasons: dict[str, list[str]] = defaultdict(list)
    doubts = (
        doubt for doubt in doubtful_roots(settings)
        if doubt.reason != EMPTY or knows(store, doubt.root)
    )  # fmt: skip
    missing = (one for one in problems if one.failed or knows(store, one.root) or settings.roots)
    for place in (*missing, *doubts):
        is_root = place.path == place.root
        reasons[place.root].append(place.reason if is_root else f"{place.path}: {place.reason}")
    found = {}
    for root, listed in reasons.items():
        first, *others = dict.fromkeys(listed)
        found[root] = f"{first} (and {len(others)} more)" if others else first
    return found


def knows(store: Store, root: str) -> bool:
    """Check whether there were sessions below a root: if not, it may well be empty."""
    return store.sessions.any_at_or_below(root) or store.files.any_below(root)


def everything_below(settings: RootSettings, store: Store) -> Iterator[SessionFile | Unreadable]:
    """Yield all sessions below the roots and all paths that cannot be read. Opens no session."""
    roots = settings.root_directories()
    recorded = store.sessions.any_at_or_below
    yield from discover(roots, format_of=any_format, was_recorded=recorded)
    yield from list_rows(roots)


def problems_below(settings: RootSettings, store: Store) -> list[Unreadable]:
    found = everything_below(settings, store)
    return [item for item in found if isinstance(item, Unreadable)]


def lost_values(settings: RootSettings, store: Store) -> LostValues:
    """Count the placeholders without a stored value, as the last scan found them.

    Without a store, read all sessions.
    """
    if store.exists:
        return LostValues(store.files.count_lost() + store.extractions.count_expired())
    return lost_without_store(settings)
