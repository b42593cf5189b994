"""Our answers in a session, and the calls of our tool that they answer, to be shortened.

A call is recognised by its answer, since hosts name the tool differently. The request records the
answer's random id and digest, by which it is found even inside a longer output.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator

from brainsurgeon.formats import splice
from brainsurgeon.formats.base import ParsedLine, dict_or_empty
from brainsurgeon.model.entries import REDACTED, KeyPath, Kind, placeholder_id, value_at
from brainsurgeon.model.plans import Edit, Removal
from brainsurgeon.model.records import PrintedAnswer
from brainsurgeon.model.transcript import Entry
from brainsurgeon.planning.snapshot import Snapshot

_ACTIONS = ("restore", "restore_remote")  # a tuple also allows `in` for unhashable values


class OwnCalls:
    """Our answers in a session, and the calls that they answer."""

    def __init__(self, session: Snapshot) -> None:
        # By entry id and path: a shorter text (JSON), and the number of characters left out.
        self.answers: dict[str, dict[KeyPath, tuple[bytes, int]]] = {}
        self.calls: dict[str, str] = {}  # requested entries by ids of calls
        self.requests: set[int | None] = set()  # ids of the requests whose answer was found
        self._form = form = session.form
        redactions = session.records.requested("redact")
        asked = {request.answer: request for request in redactions if request.answer}
        self._parsed, self._drafted = session.parsed, dict[int, list[Edit]]()
        last_call = None
        shortens = bool(asked) and form.has_fields
        for index, entry in enumerate(session.transcript.entries if shortens else ()):
            for made in entry.calls:
                last_call = made.call_id or entry.ident
            if entry.ident is None or not entry.results:
                continue
            parsed = session.parsed(index)
            here = [printed for printed in asked if printed.ident.encode() in parsed.raw]
            answers = [*form.read(parsed.entry).result_texts] if here else []
            if not answers:
                continue
            paths = {answer.path for answer in answers}
            paths |= {value.path for value in session.transcript.values(index)}
            listed, whole = _shortened(
                parsed, paths, {printed: asked[printed].entry_id or "" for printed in here}
            )
            if listed:
                self.answers[entry.ident] = listed
            for printed in whole:
                request = asked.pop(printed)
                self.requests.add(request.id)
                for answer in answers:
                    # An answer without a call id belongs to the last call before it.
                    call_id = answer.call_id or last_call
                    if call_id and printed.ident in answer.text:
                        self.calls[call_id] = request.entry_id or ""

    def concerns(self, entry: Entry) -> bool:
        if not (self.answers or self.calls) or entry.ident is None:
            return False
        calls = (call.call_id or entry.ident for call in entry.calls)
        return entry.ident in self.answers or any(call in self.calls for call in calls)

    def edits(self, index: int) -> list[Edit]:
        """Return the edits that shorten what the entry has of ours. Raises UntouchableError."""
        if index not in self._drafted:
            self._drafted[index] = list(self._draft(self._parsed(index)))
        return self._drafted[index]

    def paths(self, index: int) -> list[KeyPath]:
        """Return where these edits replace values; nothing if the line cannot be edited."""
        try:
            edits = self.edits(index)
        except (splice.UntouchableError, RecursionError):
            return []
        return [edit.path for edit in edits if isinstance(edit, Removal)]

    def _draft(self, parsed: ParsedLine) -> Iterator[Edit]:
        ident = parsed.ident or ""
        shorter: dict[KeyPath, tuple[Kind, bytes, int]] = {
            path: ("tool_result", *text) for path, text in self.answers.get(ident, {}).items()
        }
        for call in self._form.read(parsed.entry).calls:
            short = {"action": "restore", "entry": self.calls.get(call.call_id or ident)}
            redactable = dict_or_empty(call.arguments).get("action") in _ACTIONS and not call.signed
            if short["entry"] is not None and redactable and call.arguments != short:
                text = json.dumps(short, separators=(",", ":"))
                token = (json.dumps(text) if call.as_text else text).encode()
                shorter[call.path] = ("tool_call", token, len(str(call.arguments)))
        # `offsets_of` leaves out what this line lacks: another entry may have the same id.
        for path, (start, end) in splice.offsets_of(parsed, shorter).items():
            kind, token, chars = shorter[path]
            yield Removal(
                ident, placeholder_id(ident), path, kind, None, chars,
                block=False, call=None, parent=None, rest=parsed.rest, tokens=0, start=start,
                end=end, new=token, forced=True, reason="the agent's own restore call",
                how="redact",
            )  # fmt: skip
        yield from splice.set_field(parsed, REDACTED, b"true")


def _shortened(
    parsed: ParsedLine, paths: Iterable[KeyPath], wanted: dict[PrintedAnswer, str]
) -> tuple[dict[KeyPath, tuple[bytes, int]], set[PrintedAnswer]]:
    """Return the texts of an entry without the complete answers in them, and these answers."""
    cuts: dict[KeyPath, list[tuple[int, int, str]]] = defaultdict(list)
    whole = set[PrintedAnswer]()
    for path in paths:
        text = value_at(parsed.entry, path)
        for printed, entry_id in wanted.items() if isinstance(text, str) else ():
            for span in printed.spans(text):
                cuts[path].append((*span, f"Restored {entry_id}."))
                whole.add(printed)
    try:
        tokens = splice.locate(parsed.raw, cuts)
    except splice.UntouchableError:
        return {}, set()
    return {
        path: (
            splice.splice_string(parsed.raw[start:end], cuts[path]),
            sum(end - start for start, end, _ in cuts[path]),
        )
        for path, (start, end) in tokens.items()
    }, whole
