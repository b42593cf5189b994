"""The entry of a line, put together from what the methods of its format answer one by one."""

from msgspec.structs import replace

from brainsurgeon.formats.base import call_records, result_records, values_sent
from brainsurgeon.formats.marks import marks_in
from brainsurgeon.model.entries import BOM, parse
from brainsurgeon.model.sessions import NO_SURVEY
from brainsurgeon.model.text import parse_time
from brainsurgeon.model.transcript import Entry


def answers(form, line, index):
    """Return the entry, without what of ours is in it."""
    if line.raw.startswith(BOM):  # agents read such a line, but it is never edited
        read = answers(form, replace(line, raw=line.raw.removeprefix(BOM)), index)
        return replace(read, ident=None, values=(), thoughts=None)
    entry = parse(line.raw)
    if entry is None:
        return Entry(index, line.terminated, own=form.own_of_unreadable(line))
    step, sent = form.turn_step(entry), form.sent(entry, NO_SURVEY)
    return Entry(
        index, line.terminated, form.identity(entry, line.raw, line.number), form.rest(entry),
        step and step.parent, step and step.role, form.is_message(entry),
        parse_time(entry.get("timestamp")), step.names if step else (), step and step.text_path,
        step is not None and step.closes, step is not None and step.cut_short,
        values_sent(form.values(entry), sent, entry), call_records(form.calls(entry)),
        form.attached(entry), result_records(step.results if step else ()), sent,
        form.call(entry), tuple(form.asides(entry)), form.thoughts(entry), form.reasoning(entry),
        form.reasoning_dropped(entry), form.starts_context(entry), form.switches_model(entry),
        form.cost_so_far(entry), own=form.own(entry),
    )  # fmt: skip


def marks(form, line):
    """Return what of ours is in a line, wherever something emptied may stand."""
    return marks_in(line.raw, parse(line.raw), form.emptied, has_emptied=True)
