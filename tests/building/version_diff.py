"""Differences between two versions of a session, found without the program."""

import json

BLOCK = b'{"type":"text","text":'
PLACEHOLDER = b'"[[extracted-'
# Replaces signed thinking: a model would imitate a placeholder.
EMPTY_THINKING = b'{"type":"thinking","thinking":"","thinkingSignature":""}'


def parse(line):
    return json.loads(line.decode(), parse_int=str, parse_float=str, parse_constant=str)


def token_end(raw, at):
    """Return the end of the JSON value that starts at `at`."""
    decoder = json.JSONDecoder(parse_int=str, parse_float=str)
    return decoder.raw_decode(raw.decode("latin-1"), at)[1]


def extracted_tokens(old, new):
    """Return (placeholder, replaced bytes) of each difference between two versions of a line.

    All other bytes must be equal. A placeholder, or a text block with nothing else, may replace any
    JSON value. An empty block may replace thinking; its placeholder is returned as "".
    """
    cuts, at, there = [], 0, 0
    while (
        placeholder := min(
            new.find(mark, at) % (len(new) + 1) for mark in (PLACEHOLDER, EMPTY_THINKING)
        )
    ) < len(new):
        end = token_end(new, placeholder)
        if new.startswith(EMPTY_THINKING, placeholder):
            assert old.startswith(new[at:placeholder], there), (
                "bytes outside a swapped value changed"
            )
            start = there + placeholder - at
            at, there = end, token_end(old, start)
            if old[start:there] != EMPTY_THINKING:
                cuts.append(("", old[start:there]))
            continue
        before = new[at:placeholder]
        if old.startswith(before, there) and old[there + len(before) :].startswith(
            new[placeholder:end]
        ):
            at, there = end, there + len(before) + end - placeholder
            continue
        if not old.startswith(before, there):
            assert before.endswith(BLOCK)
            before, end = before[: -len(BLOCK)], end + 1
            assert new[end - 1 : end] == b"}"
        assert old.startswith(before, there), "bytes outside a swapped value changed"
        start = there + len(before)
        there = token_end(old, start)
        cuts.append((json.loads(new[placeholder : token_end(new, placeholder)]), old[start:there]))
        at = end
    assert old[there:] == new[at:], "bytes outside a swapped value changed"
    return cuts


def differing_paths(old, new, path=()):
    """Return the paths at which two parsed lines differ; a whole block is one path."""
    if new == json.loads(EMPTY_THINKING):
        return [] if old == new else [path]
    if isinstance(new, dict) and isinstance(old, dict) and list(old) == list(new):
        pairs = [(key, old[key], new[key]) for key in old]
    elif isinstance(new, list) and isinstance(old, list) and len(old) == len(new):
        pairs = [(index, *pair) for index, pair in enumerate(zip(old, new, strict=True))]
    else:
        return [] if old == new else [path]
    differ = [hit for key, *pair in pairs for hit in differing_paths(*pair, (*path, key))]
    if isinstance(new, dict) and new.keys() == {"type", "text"} and old["type"] != new["type"]:
        return [path]
    return differ


def replaced_values(old, new):
    """Return every replaced value of a file, after checking that nothing else differs."""
    lines, fresh = old.split(b"\n"), new.split(b"\n")
    assert len(lines) == len(fresh)
    replaced = []
    for line, after in zip(lines, fresh, strict=True):
        if line == after:
            continue
        cuts = extracted_tokens(line, after)
        assert len(differing_paths(parse(line), parse(after))) == len(cuts) > 0
        replaced += cuts
    return replaced


def differences(first, second, place=()):
    """Yield each path at which two values differ, with the first's value there."""
    if isinstance(first, dict) and isinstance(second, dict):
        for key in sorted(first.keys() | second.keys()):
            yield from differences(first.get(key), second.get(key), (*place, key))
    elif isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        for index, (left, right) in enumerate(zip(first, second, strict=True)):
            yield from differences(left, right, (*place, index))
    elif first != second:
        yield place, first
