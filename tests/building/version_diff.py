"""What differs between two versions of a session, found without any help of the program."""

import json

BLOCK = b'{"type":"text","text":'
PLACEHOLDER = b'"[[extracted-'
# What stands where signed thinking stood: no placeholder, since a model would imitate it.
EMPTY_THINKING = b'{"type":"thinking","thinking":"","thinkingSignature":""}'


def parse(line):
    try:
        return json.loads(line.decode(), parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError):
        return None


def token_end(raw, at):
    """Give where the JSON value that starts at `at` ends."""
    decoder = json.JSONDecoder(parse_int=str, parse_float=str)
    return decoder.raw_decode(raw.decode("latin-1"), at)[1]


def extracted_tokens(old, new):
    """Walk two versions of a line side by side.

    Give (placeholder, bytes that it stands for) in order.

    This knows nothing of the program: every byte must be equal, except that a placeholder's token
    (or a text block that holds nothing else) may stand where any JSON value stood, and an empty
    block where thinking stood, which has no placeholder: its name is "".
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
    """Give the paths of the values in which two parsed lines differ; a whole block is one."""
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
    """Give every swap between two versions of a file, after checking that nothing else differs."""
    lines, fresh = old.split(b"\n"), new.split(b"\n")
    assert len(lines) == len(fresh)
    found = []
    for line, after in zip(lines, fresh, strict=True):
        if line == after:
            continue
        cuts = extracted_tokens(line, after)
        assert len(differing_paths(parse(line), parse(after))) == len(cuts) > 0
        found += cuts
    return found


def differences(one, other, place=()):
    """Give the places where two values differ, with what stands in the first."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            yield from differences(one.get(key), other.get(key), (*place, key))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from differences(left, right, (*place, index))
    elif one != other:
        yield place, one
