"""Prompts that a provider refused: recognised in every wording, believed, relieved, reported.

Most wordings are those that @earendil-works/pi-ai 1.6.0 quotes in `dist/utils/overflow.js`. The
others are messages of vLLM, TGI, Fireworks, Cohere, Vertex AI, Amazon Bedrock and Claude Code.
"""

import json

import pytest

from brainsurgeon.agents import FORMATS
from brainsurgeon.formats.refusals import refusal
from brainsurgeon.model.text import iso
from brainsurgeon.model.turns import BLOCK, BLOCKS, SIGNATURE, TOO_LARGE, TOO_LONG, Refusal
from brainsurgeon.operations.relieve import relieve
from brainsurgeon.operations.sessions import context
from brainsurgeon.operations.signals import find_signals
from brainsurgeon.rewrite.relief import Wanted
from building.claude import ClaudeConversation
from building.format_reading import record
from building.processes import program_for
from building.world import Conversation, dump, pin

# The message, the tokens that the provider counted (0: not stated), and the limit.
TOO_LONG_PROMPTS = [
    ("prompt is too long: 213462 tokens > 200000 maximum", 213_462, 200_000),
    ("prompt is too long: 205,000 tokens > 200,000 maximum", 205_000, 200_000),
    ("Prompt is too long", 0, None),
    (("input length and `max_tokens` exceed context limit: 199211 + 20000 > 200000, decrease input"
     " length or `max_tokens` and try again"), 199_211, 200_000),
    ("Your input exceeds the context window of this model", 0, None),
    ("context_length_exceeded", 0, None),
    (("This model's maximum context length is 8192 tokens. However, your messages resulted in 9000"
     " tokens."), 9000, 8192),
    (("Requested token count exceeds the model's maximum context length of 131072 tokens. You"
     " requested a total of 165000 tokens: 132500 tokens from the input messages."),
     165_000, 131_072),
    ("litellm.ContextWindowExceededError: Context Window exceeded for given call.", 0, None),
    ("Input length (265330) exceeds model's maximum context length (262144).", 265_330, 262_144),
    ("The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)",
     1_196_265, 1_048_575),
    (("Unable to submit request because the input token count is 1500000 but model only supports up"
     " to 1048576."), 1_500_000, 1_048_576),
    ("This model's maximum prompt length is 131072 but the request contains 537812 tokens",
     537_812, 131_072),
    ("Please reduce the length of the messages or completion", 0, None),
    (("This endpoint's maximum context length is 131072 tokens. However, you requested about 140000"
     " tokens (130000 of text input, 10000 in the output)."), 140_000, 131_072),
    ("Input length 140000 exceeds the maximum allowed input length of 131072 tokens.",
     140_000, 131_072),
    ("The input (140000 tokens) is longer than the model's context length (131072 tokens).",
     140_000, 131_072),
    ("the request exceeds the available context size, try increasing it", 0, None),
    ("request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it",
     9000, 8192),
    (('400 {"error":{"code":400,"message":"the request exceeds the available context size.",'
     '"type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":8192}}'), 9000, 8192),
    ("The number of tokens to keep from the initial prompt is greater than the context length.",
     0, None),
    (("Trying to keep the first 10269 tokens when context the overflows. However, the model is"
     " loaded with context length of only 4096 tokens, which is not enough."), 10_269, 4096),
    ("prompt token count of 128500 exceeds the limit of 128000", 128_500, 128_000),
    ("invalid params, context window exceeds limit (2013)", 0, None),
    ("Your request exceeded model token limit: 262144 (requested: 270000)", 270_000, 262_144),
    ("Prompt has 140000 tokens, but the configured context size is 131072 tokens",
     140_000, 131_072),
    (("Prompt contains 140000 tokens and 0 draft tokens, too large for model with 131072 maximum"
     " context length"), 140_000, 131_072),
    ('{"code":"1261","message":"Prompt too long"}', 0, None),
    ('{"code":"1261","message":"Prompt exceeds max length"}', 0, None),
    ("model_context_window_exceeded", 0, None),
    ("400 Range of input length should be [1, 129024]", 0, 129_024),
    ("prompt too long; exceeded max context length by 1234 tokens", 0, None),
    ("Input is too long for requested model.", 0, None),
    ("Input Tokens Exceeded: Number of input tokens exceeds maximum length.", 0, None),
    (("You passed 8193 input tokens and requested 1000 output tokens. However, the model's context"
     " length is only 8192 tokens, resulting in a maximum input length of 7192 tokens."),
     8193, 8192),
    ("The prompt is too long: 140000, model maximum context length: 131071", 140_000, 131_071),
    ("too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000.",
     5000, 4081),
    ("`inputs` must have less than 1024 tokens. Given: 1240", 1240, 1024),
    ("token limit exceeded", 0, None),
    ("Context overflow: prompt too large for the model.", 0, None),
    ("API Error: The model has reached its context window limit.", 0, None),
]  # fmt: skip

TOO_LARGE_REQUESTS = [
    ('413 {"error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}',
     None),
    (("Request too large (max 32MB). Double press esc to go back and try with a smaller file."
     " request_too_large: 413 Request exceeds the maximum size"), None),
    ("API Error: 413 Request Entity Too Large", None),
    ("413 status code (no body)", None),
    ('github-copilot API error (413): {"message":"failed to parse request","code":""}', None),
    ("Request payload size exceeds the limit: 20971520 bytes.", 20_971_520),
]  # fmt: skip

# The message, and the size of the largest picture and the limit (bytes), if stated.
BLOCKS_TOO_LARGE = [
    (("messages.58.content.2.image.source.base64: image exceeds 5 MB maximum: 6500712 bytes >"
      " 5242880 bytes"), 6_500_712, 5_242_880),
    (("messages.7.content.2.image.source.base64.data: At least one of the image dimensions exceed"
      " max allowed size: 8000 pixels"), 0, None),
    (("API Error: 400 At least one of the image dimensions exceed max allowed size for many-image"
      " requests: 2000 pixels"), 0, None),
    (("An image in the conversation exceeds the dimension limit for many-image requests (2000px)."
      " Run /compact to remove old images from context, or start a new session."), 0, None),
    ("Image was too large. Double press esc to go back and try again with a smaller image.",
     0, None),
    ("messages.38.content.0.pdf.source.base64.data: A maximum of 100 PDF pages may be provided.",
     0, None),
    ("PDF too large (max 100 pages, 32MB). Double press esc to go back and try again.", 0, None),
    ("The document contains 1200 pages which exceeds the supported page limit of 1000.", 0, None),
]  # fmt: skip

# The message, the number of pictures and documents, and how many are allowed, if stated.
TOO_MANY_BLOCKS = [
    ("Too much media: 0 document pages + 104 images > 100", 104, 100),
    ("too many images and documents: 104 + 1 > 100", 104, 100),
    (("Too many images in request: 11 images provided, but the model supports a maximum of 10"
      " images."), 11, 10),
    ("Too many images in request. Max is 10.", 0, 10),
    ("request contains 52 images, exceeding the maximum of 50 allowed per request", 52, 50),
    ("too many images in the message, max allowed is 16", 0, 16),
    ("At most 5 image(s) may be provided in one request.", 0, 5),
]  # fmt: skip

# Time heals these, or a setting; or the request had other faults.
OTHER_ERRORS = [
    "ThrottlingException: Too many tokens, please wait before trying again.",
    "Throttling error: Too many tokens, please wait before trying again.",
    "Service unavailable: too many tokens",
    "429 Too many tokens",
    "too many requests, and too many tokens",
    "Too many tokens per day",
    "Rate limit reached on tokens per min (TPM): Limit 30000, Used 29000, Requested 2000.",
    "This request would exceed your organization's rate limit of 40,000 input tokens per minute",
    "max_tokens: 64000 > 32000, which is the maximum allowed number of output tokens",
    "API Error: Claude's response exceeded the 32000 output token maximum.",
    "400 status code (no body)",
    "500 the gateway got 413 from its provider",
    "overloaded_error",
    "Request was aborted.",
    "",
]


def with_pictures(error, *sizes):
    """Return a session with pictures of these sizes (bytes), refused with an error."""
    talk = Conversation()
    for size in sizes:
        talk.user()
        talk.call("screenshot")
        talk.result("")
        picture = {"type": "image", "data": "A" * size, "mimeType": "image/png"}
        talk.lines[-1]["message"]["content"] = [picture]
        talk.assistant("I see.")
    talk.user("and now?")
    talk.assistant([], stop="error")
    talk.lines[-1]["message"]["errorMessage"] = error
    return talk


def pictures(path):
    """Return the sizes of the pictures that are still in a session."""
    lines = map(json.loads, path.read_bytes().splitlines())
    contents = [line["message"]["content"] for line in lines if "message" in line]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    return [len(block["data"]) for block in blocks if block["type"] == "image"]


def refused_conversation(*errors, turns=20, provider="p"):
    """Return a conversation whose last prompt was answered with these errors."""
    talk = Conversation()
    for number in range(turns):
        talk.turn(f"{number:04}" + "x" * 2996)
    for error in errors:
        talk.user("and now?")
        talk.assistant([], stop="error")
        talk.lines[-1]["message"] |= {"errorMessage": error, "provider": provider}
    return talk


def claude_conversation(error, details=None):
    talk = ClaudeConversation()
    for _ in range(20):
        talk.turn("x" * 3000)
    talk.user("and now?")
    text = {"type": "text", "text": error}
    more = {} if details is None else {"errorDetails": details}
    message = {"model": "<synthetic>"}
    talk.assistant(text, isApiErrorMessage=True, message=message, stop="stop_sequence", **more)
    return talk


def relieved(world, to=None, **keys):
    return relieve(world.settings(**keys), world.store, "s", Wanted(to), clock=world.clock)


def fullness(world, **keys):
    return context(world.settings(**keys), world.store, "s", world.clock()).full


@pytest.mark.parametrize(("error", "tokens", "limit"), TOO_LONG_PROMPTS)
def test_refused_prompt_is_relieved_whatever_the_wording(world, clock, error, tokens, limit):
    """The count and the limit are those of the provider, and at most half of the prompt stays."""
    assert refusal(error) == Refusal(TOO_LONG, tokens, limit)
    path = world.put("s.jsonl", refused_conversation(error).bytes())
    before = path.read_bytes()
    relief = relieved(world)

    assert relief.fits
    assert relief.values > 0
    assert relief.before.refusal
    assert len(path.read_bytes()) < 0.7 * len(before)
    if tokens:
        assert relief.before.load == pytest.approx(tokens, rel=0.01)
    if limit:
        assert relief.before.window == min(limit, tokens or limit)
    assert relief.after.load <= relief.before.window / 2
    world.restore_all(pristine=True)
    assert path.read_bytes() == before


@pytest.mark.parametrize(("error", "limit"), TOO_LARGE_REQUESTS)
def test_request_that_was_too_large_is_relieved(world, clock, error, limit):
    """It had too many bytes. Without pictures, values go as for a prompt that is too long."""
    assert refusal(error) == Refusal(TOO_LARGE, 0, limit)
    world.put("s.jsonl", refused_conversation(error).bytes())
    relief = relieved(world)

    assert relief.fits
    assert relief.before.bytes == relief.before.most_bytes
    assert relief.after.bytes <= relief.before.bytes / 2


@pytest.mark.parametrize(("error", "size", "limit"), BLOCKS_TOO_LARGE)
def test_picture_that_was_too_large_leaves_first(world, clock, error, size, limit):
    """Each above the stated limit leaves, else the largest, until half of the bytes are left."""
    assert refusal(error) == Refusal(BLOCK, size, limit)
    other = 5_000_000 if limit else 50_000
    path = world.put("s.jsonl", with_pictures(error, 900, 6_500_712, 700, other, 800).bytes())
    before = path.read_bytes()
    assert fullness(world).is_too_full
    relief = relieved(world)

    assert relief.before.refusal == BLOCK
    assert relief.fits
    assert pictures(path) == [900, 700, other, 800]
    assert fullness(world).unfit == 0
    world.restore_all(pristine=True)
    assert path.read_bytes() == before


@pytest.mark.parametrize(("error", "number", "limit"), TOO_MANY_BLOCKS)
def test_oldest_of_too_many_pictures_leave(world, clock, error, number, limit):
    """Half of what is allowed stays, so that the next picture is not refused again."""
    assert refusal(error) == Refusal(BLOCKS, number, limit)
    sizes = [9_000 + place for place in range(limit + 2)]
    path = world.put("s.jsonl", with_pictures(error, *sizes).bytes())
    relief = relieved(world)

    assert relief.before.refusal == BLOCKS
    assert relief.fits
    assert pictures(path) == sizes[-(limit // 2) :]
    assert fullness(world).unfit == 0


def test_pinned_picture_that_is_too_large_does_not_fit(world, clock):
    """It is never said that the session fits while the refused picture is in it."""
    error = "image exceeds 5 MB maximum: 6500712 bytes > 5242880 bytes"
    talk = with_pictures(error, 6_500_712)
    [result] = [line for line in talk.lines if line.get("message", {}).get("role") == "toolResult"]
    path = world.put("s.jsonl", talk.bytes())
    pin(world, result["id"], False)
    relief = relieved(world)

    assert not relief.fits
    assert pictures(path) == [6_500_712]


ROOM = "Codex ran out of room in the model's context window. Start a new thread or clear"
# What Codex 0.145.0, 0.169.0 and 0.171.0 write at the end of a turn that the provider refused.
CODEX_REFUSALS = {
    "code": ({"message": ROOM, "codex_error_info": "context_window_exceeded"}, TOO_LONG),
    "status 400": ({"message": dump({"error": {
        "message": "Your input exceeds the context window of this model.",
        "type": "invalid_request_error", "code": "context_length_exceeded",
    }}).decode(), "codex_error_info": "other"}, TOO_LONG),
    "status 413": ({
        "message": "unexpected status 413 Payload Too Large: Request exceeds the maximum size,"
        " url: http://127.0.0.1:1/v1/responses",
        "codex_error_info": {"http_connection_failed": {"http_status_code": 413}},
    }, TOO_LARGE),
}  # fmt: skip


@pytest.mark.parametrize("own_event", [False, True])
@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("case", CODEX_REFUSALS)
def test_refusal_of_codex_is_recognised(world, case, own_event, later):
    """A session that is only read shows the refusal, with the load that was recorded before it.

    A later prompt that fails for another reason does not hide it.
    """
    error, why = CODEX_REFUSALS[case]
    event = lambda kind, **payload: {  # noqa: E731
        "type": "event_msg", "payload": {"type": kind, **payload}
    }  # fmt: skip
    count = lambda whole, last: event("token_count", info={  # noqa: E731
        "total_token_usage": whole, "last_token_usage": last, "model_context_window": 258_400,
    })  # fmt: skip
    ended = lambda message, error: event(  # noqa: E731
        "task_complete", turn_id="t", last_agent_message=message, error=error
    )
    context = {"type": "turn_context", "payload": {"model": "gpt-5.3-codex"}}
    none = {"input_tokens": 0, "output_tokens": 0}
    # Codex sets the sum of all calls to the window, and the last call to what that adds.
    filled = count({**none, "total_tokens": 258_400}, {**none, "total_tokens": 207_600})
    refused = event("error", **error) if own_event else ended(None, error)
    other = ended(None, {"message": "stream disconnected", "codex_error_info": "other"})
    entries = [
        {"type": "session_meta", "payload": {"id": "s", "cwd": "/w", "originator": "codex_exec"}},
        context,
        count({"input_tokens": 50_000, "total_tokens": 50_800},
              {"input_tokens": 26_000, "total_tokens": 26_400}),
        ended("done", None),
        {"type": "response_item", "payload": {"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "x" * 3000}]}},
        filled, refused, *([context, filled, other] if later else ()),
    ]  # fmt: skip
    world.put("s.jsonl", b"".join(map(dump, entries)))
    full = fullness(world)

    assert (full.refusal, full.load) == (why, 26_400 + 990)  # with the prompt
    assert full.model == "gpt-5.3-codex"
    assert full.window == (full.load if why == TOO_LONG else 258_400)


@pytest.mark.parametrize("error", OTHER_ERRORS)
def test_other_errors_are_no_refusal(world, clock, error):
    """A limit of a rate or a busy server says nothing about the size: no scan extracts for it."""
    world.put("s.jsonl", refused_conversation(error).bytes())
    full = fullness(world)

    assert refusal(error) is None
    assert not full.refusal
    assert full.pressure < 0.2
    scanned = world.scan(budget={"enabled": True, "max_step": 6}, keep_recent=1000)
    assert scanned.values_extracted == 0


def test_cerebras_refuses_a_prompt_without_a_body():
    """Its status 400 without a body means that the prompt is too long; others mean more by it."""
    for error in ("400 status code (no body)", "400 (no body)", "413 (no body)"):
        assert refusal(error, "cerebras") == Refusal(TOO_LONG)
    [_, entry] = refused_conversation("400 (no body)", turns=0, provider="cerebras").lines[-2:]
    assert record(FORMATS["openclaw"], entry).call.refusal == Refusal(TOO_LONG)


@pytest.mark.parametrize(
    "error",
    ["messages.1.content.0: Invalid `signature` in `thinking` block",
     "The block is bound to a different conversation"],
)  # fmt: skip
def test_refused_signature_is_told_from_a_prompt_that_is_too_long(error):
    """It says nothing about the size."""
    assert refusal(error) == Refusal(SIGNATURE)


@pytest.mark.parametrize(
    ("shown", "details", "tokens"),
    [
        ("Prompt is too long", "400 prompt is too long: 213462 tokens > 200000 maximum", 213_462),
        ("Prompt is too long", None, 0),
        ("API Error: 413 {}", None, 0),
        ("Request too large (max 32MB). Try with a smaller file.", "request_too_large: 413 x", 0),
        (("API Error: 400 The input (140000 tokens) is longer than the model's context length "
         "(131072 tokens)."), None, 140_000),
    ],
)  # fmt: skip
def test_claude_code_refusals_are_relieved(world, clock, shown, details, tokens):
    """Claude Code shows the message, or a text of its own and the message in `errorDetails`."""
    world.put("s.jsonl", claude_conversation(shown, details).bytes())
    relief = relieved(world)

    assert relief.before.refusal
    assert not tokens or relief.before.load == pytest.approx(tokens, rel=0.01)
    assert relief.fits
    assert relief.values > 0


def test_generic_refusal_is_relieved(world, clock):
    """An `error` of an answer, or of an entry of its own, is read as the provider's message."""
    form = FORMATS["generic"]
    error = {"message": "Prompt has 9000 tokens, but the configured context size is 8192 tokens"}
    message = {"role": "assistant", "content": [], "error": error}

    expected = Refusal(TOO_LONG, 9000, 8192)
    assert record(form, {"type": "message", "message": message}).call.refusal == expected
    assert record(form, {"type": "error", "error": error["message"]}).call.refusal == expected
    assert record(form, {"type": "tool_result", "output": "x", "error": error}).call is None


@pytest.mark.parametrize("later", ["429 rate limit", "Request was aborted."])
def test_failed_call_does_not_hide_the_refusal_before_it(world, clock, later):
    """The refusal stands until an answer comes, or a compaction."""
    talk = refused_conversation("context_length_exceeded", later)
    world.put("s.jsonl", talk.bytes())
    assert fullness(world).refusal
    talk.user()
    talk.assistant()
    world.put("s.jsonl", talk.bytes())
    assert not fullness(world).refusal
    talk = refused_conversation("context_length_exceeded")
    talk.entry("compaction", summary="so far", firstKeptEntryId=talk.lines[-3]["id"])
    world.put("s.jsonl", talk.bytes())
    assert not fullness(world).refusal


def test_refusal_is_believed_before_any_estimate(world, clock):
    """A session that seems to fill 1 % of its window becomes smaller at each new refusal.

    When nothing is left to take, the answer is that it does not fit.
    """
    talk = refused_conversation("Please reduce the length of the messages")
    keys = {"windows": {"*": 2_000_000}, "keep_recent": 0}
    path = world.put("s.jsonl", talk.bytes())
    loads = []
    for _ in range(12):
        relief = relieved(world, **keys)
        loads.append(relief.after.load)
        if not relief.fits:
            break
        assert relief.after.load <= 0.75 * relief.before.load
        lines = [json.loads(line) for line in path.read_bytes().splitlines()]
        clock.now += 60
        [prompt, error] = refused_conversation("too many tokens", turns=0).lines[-2:]
        prompt |= {"parentId": lines[-1]["id"], "id": f"p{len(lines)}"}
        error |= {"parentId": prompt["id"], "id": f"e{len(lines)}", "timestamp": iso(clock.now)}
        world.put("s.jsonl", b"".join(map(dump, (*lines, prompt, error))))

    assert not relief.fits
    assert len(loads) > 2


def test_stated_limit_counts_although_the_usual_window_is_smaller(world, clock):
    """A window of a million tokens is not taken for one of 200,000; a configured one holds."""
    error = "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)"
    world.put("s.jsonl", refused_conversation(error).bytes())

    assert fullness(world).window == 1_048_575
    assert fullness(world, windows={"*": 500_000}).window == 500_000


def test_goal_above_the_refused_prompt_is_no_goal(world, clock):
    """`--to` cannot declare that a refused prompt fits."""
    error = "Please reduce the length of the messages"
    world.put("s.jsonl", refused_conversation(error).bytes())
    relief = relieved(world, to=500_000)

    assert relief.fits
    assert relief.after.load <= relief.before.load / 2


def test_second_relief_says_that_the_prompt_became_smaller(world):
    """If there is nothing more to do, the answer is not that it simply fits."""
    cli = program_for(world)
    world.put("s.jsonl", refused_conversation("context_length_exceeded").bytes())
    for _ in range(2):
        assert "it fits" in cli("relieve", "main/s").stdout.decode()
    printed = cli("relieve", "main/s").stdout.decode()

    assert "it is smaller than the refused prompt already" in printed
    assert "refused    the newest answer is a refusal" in cli("sessions", "main/s").stdout.decode()


def test_halves_are_dropped_until_the_session_fits(world, clock):
    """One command drops half of the messages, and half of the others if that is not enough."""
    talk = Conversation()
    for number in range(40):
        talk.user(f"{number} " + "q" * 2000)
        talk.assistant(f"{number} " + "a" * 2000)
    talk.user("and now?")
    talk.assistant([], stop="error")
    error = "Prompt has 100000 tokens, but the configured context size is 40000 tokens"
    talk.lines[-1]["message"]["errorMessage"] = error
    world.put("s.jsonl", talk.bytes())
    relief = relieved(world)

    assert relief.fits
    assert relief.after.step == 7
    assert relief.after.load == pytest.approx(25_000, rel=0.2)


def test_provider_that_cuts_a_prompt_refuses_it(world, clock):
    """A prompt that fills the window without an answer counts as refused."""
    talk = refused_conversation()
    talk.user()
    usage = {"input": 9000, "cacheRead": 23_700, "cacheWrite": 0, "output": 0}
    talk.assistant([], stop="length", usage=usage)
    talk.lines[-1]["message"]["usage"] = usage
    world.put("s.jsonl", talk.bytes())

    assert fullness(world, windows={"*": 32_768}).refusal
    assert not fullness(world, windows={"*": 131_072}).refusal


def signals(world):
    return [event.facts for event in world.store.events.after(0, kinds=["signal"])]


@pytest.mark.parametrize("by_scan", [False, True])
def test_refusal_is_one_signal_while_it_lasts(world, clock, by_scan):
    """Without a budget, too. After an answer, the next refusal is a new signal."""

    def look(talk):
        path = world.put("s.jsonl", talk.bytes(), age=3600 if by_scan else 0)
        if by_scan:
            world.scan(keep_recent=1000)
        else:
            find_signals(world.settings(), world.store, str(path), clock())
        return signals(world)

    error = "prompt is too long: 213462 tokens > 200000 maximum"
    [facts] = look(refused_conversation(error))
    assert (facts["signal"], facts["why"]) == ("refused", "too long")
    assert (facts["tokens"], facts["limit_tokens"]) == (213_462, 200_000)
    assert "`relieve`" in facts["reason"]
    assert look(refused_conversation(error, "429 rate limit", "too many tokens")) == [facts]
    talk = refused_conversation(error)
    talk.user()
    talk.assistant()
    talk.user()
    assert look(talk) == [facts]
    talk.assistant([], stop="error")
    talk.lines[-1]["message"]["errorMessage"] = "The block is bound to a different conversation"
    [_, second] = look(talk)
    assert second["why"] == "signature"
    assert "`relieve --signatures`" in second["reason"]


@pytest.mark.parametrize("kind", [Conversation, ClaudeConversation])
def test_truncated_answer_is_one_signal(world, clock, kind):
    """An answer that was cut at its highest length; Claude Code adds an error of its own to it."""
    talk = kind()
    talk.user()
    if kind is Conversation:
        talk.assistant("so", stop="length")
    else:
        talk.assistant({"type": "text", "text": "so"}, stop="max_tokens")
        text = "API Error: Claude's response exceeded the 32000 output token maximum."
        error = {"type": "text", "text": text}
        talk.assistant(error, isApiErrorMessage=True, message={"model": "<synthetic>"})
    world.put("s.jsonl", talk.bytes())
    world.scan()
    talk.user()
    [facts] = signals(world)

    assert facts["signal"] == "truncated"
    assert "so" not in facts["entry_id"]
    world.put("s.jsonl", talk.bytes())
    find_signals(world.settings(), world.store, str(world.directory / "s.jsonl"), clock())
    assert signals(world) == [facts]
