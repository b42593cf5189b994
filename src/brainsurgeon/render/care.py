"""What was done to the store as a whole."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from brainsurgeon.model.texts import readable as safe
from brainsurgeon.render import bytes_, count, printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.model.reports import StoreCopy
    from brainsurgeon.operations.store_care import Compaction, Purge, Replacement
    from brainsurgeon.operations.stubs_left import StubsLeft

_MOST = 20


def backup_json(done: StoreCopy) -> dict[str, Any]:
    """Give a backup as other programs read it."""
    told = {"path": done.path, "size_bytes": done.size, "values_held": done.values}
    return printable(told)  # type: ignore[no-any-return]


def backup(done: StoreCopy) -> str:
    """Say where a backup is, and that it was read back."""
    return f"{safe(done.path)}: {_holding(done.size, done.values)}, read back whole"


def before_replacing(found: Replacement) -> str:
    """Say what a backup holds, and which stubs are newer than it."""
    lines = [f"{safe(found.source)}: {_holding(found.size, found.values)}, read whole"]
    return "\n".join(lines + _newer(found))


def replacement_json(done: Replacement) -> dict[str, Any]:
    """Give a restored backup as other programs read it."""
    return printable({  # type: ignore[no-any-return]
        "path": done.source, "size_bytes": done.size, "values_held": done.values,
        "newer": [_stubs_json(one) for one in done.newer], "kept_store": done.kept,
    })  # fmt: skip


def replacement(done: Replacement) -> str:
    """Say that a backup took the place of the store, and where the old one is."""
    lines = [f"{safe(done.source)} is the store now: {_holding(done.size, done.values)}"]
    lines += _newer(done)
    if done.kept:
        lines.append(f"the store as it was stays as {safe(done.kept)}; remove it when all is well")
    return "\n".join(lines)


def compaction_json(done: Compaction) -> dict[str, Any]:
    """Give a compaction as other programs read it."""
    return {"bytes_before": done.before, "bytes_after": done.after}


def compaction(done: Compaction) -> str:
    """Say what a compaction brought."""
    return f"store: {bytes_(done.before)} -> {bytes_(done.after)}"


def purge_json(done: Purge) -> dict[str, Any]:
    """Give what became of the store as other programs read it."""
    return printable({  # type: ignore[no-any-return]
        "removed": done.removed, "store_path": done.directory,
        "in_the_way": [_stubs_json(one) for one in done.stubs], "left": list(done.left),
    })  # fmt: skip


def purge(done: Purge) -> str:
    """Say that the store is gone, or what it is still needed for."""
    if done.removed:
        stays = f"; not ours, so it stays: {safe(', '.join(done.left))}" if done.left else ""
        return f"{safe(done.directory)}: the store is gone{stays}"
    lines = [f"{safe(done.directory)}: the store stays, since stubs of it stand"]
    lines += _listed(done.stubs)
    lines.append(
        "`brainsurgeon restore --all` puts them back; --even-so removes the store all the same"
    )
    return "\n".join(lines)


def _newer(found: Replacement) -> list[str]:
    if not found.newer:
        return ["no stub in any session is newer than it"]
    stubs = sum(one.orphans for one in found.newer)
    told = (
        f"{count(stubs, 'stub')} in {count(len(found.newer), 'session')} newer than it: their "
        "values are only in the store of now (`brainsurgeon restore --all` puts them back first)"
    )
    return [told, *_listed(found.newer)]


def _listed(stubs: Iterable[StubsLeft]) -> list[str]:
    listed = list(stubs)
    lines = []
    for one in listed[:_MOST]:
        number = count(one.stubs, "stub") if one.sure else "there may be stubs"
        lines.append(f"  {safe(one.session)}: {number}{f', {safe(one.note)}' if one.note else ''}")
    if len(listed) > _MOST:
        lines.append(f"  … and {len(listed) - _MOST} more, with --json")
    return lines


def _stubs_json(one: StubsLeft) -> dict[str, Any]:
    told = asdict(one)
    return {"session": told["session"], "stubs": one.stubs, "orphans": one.orphans,
            "reason": one.note, "sure": one.sure}  # fmt: skip


def _holding(size: int, values: int) -> str:
    return f"{bytes_(size)} with {count(values, 'value')}"
