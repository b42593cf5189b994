"""How providers refuse a prompt: as too long or too large, for a picture, or for a signature.

Sources: @earendil-works/pi-ai 1.6.0 (`dist/utils/overflow.js`: wordings and exclusions),
@anthropic-ai/claude-code 2.1.112 (`cli.js`) and 2.1.332, openai/codex, and the messages of vLLM,
TGI, SGLang, LM Studio, Ollama, Cohere, Fireworks, Copilot and Amazon Bedrock.
"""

import re

from brainsurgeon.model.turns import BLOCK, BLOCKS, SIGNATURE, TOO_LARGE, TOO_LONG, Refusal

# A number, perhaps in parentheses. Few sessions need these patterns: they are compiled when used.
_N = r"\(?([0-9][0-9,]*)"
_TOO_LONG = (
    r"context_length_exceeded|context[ _-]?(?:length|window) (?:is )?exceeded|context overflow"
    r"|context window exceeds|context_window_exceeded|ContextWindowExceeded|reached its context"
    r"|exceeds? (?:the |this )?(?:model'?s? )?(?:maximum |available |configured )?context"
    r"|exceeds? (?:the )?(?:maximum )?(?:allowed )?(?:input|prompt) length|exceed context limit"
    r"|maximum context length|longer than the model'?s context|greater than the context length"
    r"|exceed_context_size|but the (?:configured )?context size is|context length of only"
    r"|prompt (?:is )?too (?:long|large)|prompt exceeds max|input is too long|code\W{1,4}1261\b"
    r"|maximum (?:prompt|input|allowed input) length|input length should be"
    r"|input token count (?:is|exceeds|\([0-9,]+\) exceeds)|number of input tokens exceed"
    r"|token count of [0-9,]+ exceeds the limit|exceeded model token limit|token limit exceeded"
    r"|reduce the length of (?:the|your) (?:messages|prompt|input)|too many tokens"
    r"|tokens > [0-9,]+ maximum|must have less than [0-9,]+ tokens|string_above_max_length"
    r"|max_new_tokens`? must be <=|ran out of room in the model'?s context"
)
# HTTP 413, whatever the text: the request has too many bytes.
_TOO_LARGE = (
    r"^(?:API Error: )?(?:[\w -]+ API error \(413\):|413(?:\s|:|$))|request_too_large"
    r"|(?:request entity|payload|content) too large|request payload size exceeds"
    r"|request exceeds the maximum (?:allowed )?(?:size|number of bytes)"
)
# One picture or document has too many bytes, pixels or pages.
_BLOCK = (
    r"image exceeds [0-9.]+ ?MB|image dimensions exceed|image was too large|^PDF too large"
    r"|image size exceeds|exceeds the dimension limit|image exceeds the maximum"
    r"|maximum of [0-9,]+ PDF pages|exceeds the supported page limit"
)
_BLOCKS = (
    r"too many images|too much media|at most [0-9]+ (?:image|picture|video|audio)s?\b"
    r"|contains [0-9]+ images, exceeding"
)
# Only Cerebras refuses a prompt that is too long with a status that has other meanings elsewhere.
_NO_BODY = r"^4(?:00|13)\s*(?:status code)?\s*\(no body\)"
# What time heals: limits of a rate, and servers that are busy.
_RATE = (
    r"throttl|rate limit|too many requests|please wait|try again in [0-9]|\btpm\b"
    r"|per (?:minute|min|hour|day)\b|(?:daily|weekly|monthly) token|^service unavailable"
    r"|^(?:API Error: )?429\b"
)
_LIMIT = (
    rf"context length(?:(?: is| of)(?: only)?|:)? {_N}|with {_N} maximum context"
    rf"|> {_N} maximum|context window of {_N}|limit: [0-9]+ \+ [0-9]+ > {_N}"
    rf"|tokens allowed {_N}|only supports up to {_N}|maximum prompt length is {_N}"
    rf"|allowed input length of {_N}|exceeds the limit of {_N}|token limit: {_N}"
    rf"|context size (?:is )?{_N}|\bn_ctx\W{{1,4}}{_N}|should be \[1, ?{_N}|less than {_N} tokens"
    rf"|must be <= {_N}|cannot exceed {_N}"
)
_COUNT = (
    rf"{_N} tokens > [0-9,]+ maximum|(?:resulted in|requested:?)(?: about| a total of)? {_N}"
    rf"|input length {_N}|token count (?:is |of )?{_N}|(?:contains|has|passed) {_N}"
    rf"|(?:input|request) {_N} tokens\)|\bn_prompt_tokens\W{{1,4}}{_N}|the first {_N} tokens"
    rf"|limit: {_N} \+|too long: {_N}(?:, |\.?$)|given: {_N}|received {_N}"
)
_BLOCK_BYTES = rf"> {_N} bytes"
_BLOCK_COUNT = rf"maximum: {_N} bytes"
_MOST_BLOCKS = (
    rf"images(?: and documents: [0-9]+ \+ [0-9]+)? > {_N}|\bat most {_N}"
    rf"|\bmax(?:imum)?(?: allowed)?(?: is| of)? {_N}"
)
_BLOCKS_SENT = rf"{_N} images|documents: {_N}"
_BYTES = rf"exceeds the limit: {_N} bytes|(?:size|number of bytes)[^0-9]{{0,20}}{_N} bytes"
_SIGNATURE = (
    r"bound to a different conversation|invalid `?signature`? in `?thinking"
    r"|thinking[^.]{0,80}cannot be modified|each thinking block must contain|thinking is required"
)


def refusal(text: str, provider: str = "") -> Refusal | None:
    """Return how a provider's message refuses the prompt; None if it means something else."""
    no_body = provider == "cerebras" and _has(_NO_BODY, text)
    if _has(_RATE, text):
        return None
    if no_body or _has(_TOO_LONG, text):
        return Refusal(TOO_LONG, _number(_COUNT, text) or 0, _number(_LIMIT, text))
    if _has(_BLOCKS, text):
        return Refusal(BLOCKS, _number(_BLOCKS_SENT, text) or 0, _number(_MOST_BLOCKS, text))
    if _has(_BLOCK, text):
        return Refusal(BLOCK, _number(_BLOCK_COUNT, text) or 0, _number(_BLOCK_BYTES, text))
    if _has(_TOO_LARGE, text):
        return Refusal(TOO_LARGE, 0, _number(_BYTES, text))
    return Refusal(SIGNATURE) if _has(_SIGNATURE, text) else None


def _has(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.IGNORECASE) is not None


def _number(pattern: str, text: str) -> int | None:
    found = re.search(pattern, text, re.IGNORECASE)
    digits = next(filter(None, found.groups()), "").replace(",", "") if found else ""
    return int(digits) if digits and len(digits) < 12 else None  # noqa: PLR2004  no window is longer
