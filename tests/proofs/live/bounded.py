"""A scripted model with a small window, which refuses longer prompts as the provider does."""

import json

from proofs.live.binding import Binding
from proofs.live.messages import Messages, RefusedError

# Characters of a request that make a token, here and in the reported usage.
A_TOKEN = 4


class Bounded(Binding):
    """Refuses prompts of more tokens than `window`, which may change while it runs.

    `too_long` holds their sizes in tokens. Requests for summaries are refused as well, so that no
    agent compacts by itself. Only the newest models sign their thinking.
    """

    def __init__(self):
        super().__init__()
        self.window, self.too_long = None, []

    def _check(self, request):
        tokens = tokens_of(request)
        if self.window and (tokens > self.window or not request.get("tools")):
            self.too_long.append(tokens)
            raise RefusedError(f"prompt is too long: {tokens} tokens > {self.window} maximum")
        if "fable" in request["model"]:
            super()._check(request)
        else:
            Messages._check(self, request)


def tokens_of(request):
    return len(json.dumps(request)) // A_TOKEN
