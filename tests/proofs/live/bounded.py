"""A scripted model with a small window: what is longer is refused, in the provider's own words."""

import json

from proofs.live.binding import Binding
from proofs.live.messages import Messages, RefusedError

# Characters of a request that make a token, here and in the usage that is told.
A_TOKEN = 4


class Bounded(Binding):
    """Refuses prompts of more tokens than its `window`, which may change while it runs.

    `too_long` holds their sizes, in tokens. Summaries are refused as well: a history that can be
    compacted is one that needs no help. Only the newest models sign what they think.
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
