"""Values that a later entry supersedes: results, attached files, reminders and failed calls."""

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping

from brainsurgeon.formats.transcript import Transcript
from brainsurgeon.model.entries import Kind
from brainsurgeon.model.transcript import CallFacts

# Values of a call: the id of their entry, their kind and the id of the call.
CallValues = tuple[str | None, Kind, str | None]
_Reads = defaultdict[int, defaultdict[str, list[CallValues]]]  # results by file and tool


def superseded(transcript: Transcript) -> Mapping[CallValues, str]:
    """Map live values that are superseded to the id of the entry that supersedes them.

    A result is superseded by a later result of an equal call, or with the same text and images. The
    result of a read is also superseded by a later change of the file, or if the same tool reads the
    whole file later. A failed result supersedes only the arguments of its call. An attached file
    counts as a result of `Read`, a reminder as a result without a call.
    """
    newer: dict[CallValues, str] = {}
    calls: dict[str | None, tuple[str, CallFacts]] = {}  # with the ids of their entries
    same: dict[object, CallValues] = {}
    reads: _Reads = defaultdict(lambda: defaultdict(list))
    for index, entry in transcript.live():
        if entry.ident is None:
            continue
        calls.pop(None, None)  # a call without an id has its result in the same entry
        calls |= {call.call_id: (entry.ident, call) for call in entry.calls}
        failed = {result.call_id for result in entry.results if result.failed}
        for call_id in failed & calls.keys():
            newer[calls[call_id][0], "tool_call", call_id] = entry.ident
        for values, shown in _shown(transcript, index, failed).items():
            known = calls.get(values[2])
            call = known[1] if known else entry.attached if values[2] is None else None
            for key in filter(None, (shown, call.digest if call else b"")):
                if (older := same.get(key)) is not None:
                    newer[older] = entry.ident
                same[key] = values
            if call:
                newer.update(dict.fromkeys(_outdated(call, values, reads), entry.ident))
    return newer


def _outdated(call: CallFacts, values: CallValues, reads: _Reads) -> Iterator[CallValues]:
    """Yield the reads that the result of a call supersedes. Note the result if it is a read."""
    for by_tool in map(reads.__getitem__, call.files):
        for tool in list(by_tool):
            if call.writes or (call.whole and tool == call.tool):
                yield from by_tool.pop(tool)
        if not call.writes:
            by_tool[call.tool].append(values)


def _shown(
    transcript: Transcript, index: int, failed: Container[str | None]
) -> dict[CallValues, tuple[int, ...]]:  # fmt: skip
    """Return the hashes of what a model sees of the results and notes in an entry."""
    shown: dict[CallValues, tuple[int, ...]] = defaultdict(tuple)
    for value in transcript.values(index):
        if value.hashed is not None and not value.dead and value.call not in failed:
            shown[transcript.entries[index].ident, value.kind, value.call] += (value.hashed,)
    return shown
