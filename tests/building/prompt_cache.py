"""A model of a provider's prompt cache: matched prefixes and the cost of each call."""

import hashlib

READ, WRITE = 0.1, 1.25
CHARS_PER_TOKEN = 4


class PromptCache:
    """Keeps each prefix that ends at a mark for `life` seconds after its last use."""

    def __init__(self, clock, life=300.0, read=READ):
        self._clock, self._life, self._until, self.read = clock, life, {}, read
        self.sent, self.paid = 0, 0.0

    def serve(self, blocks, marks):
        """Serve one request; return its usage in tokens.

        Each of `marks` is a number of blocks: the prefix of that many is cached.
        """
        now, prefix, tokens = self._clock(), hashlib.blake2b(), 0
        sizes, keys = [0], [prefix.digest()]
        for block in blocks:
            prefix.update(hashlib.blake2b(block.encode("utf-8", "surrogatepass")).digest())
            tokens += len(block) // CHARS_PER_TOKEN
            sizes.append(tokens)
            keys.append(prefix.digest())
        last = max(marks, default=0)
        known = [
            count for count in range(last, 0, -1) if self._until.get(keys[count], 0.0) > now
        ]  # fmt: skip
        hit = known[0] if known else 0
        self._until.update(
            dict.fromkeys([keys[count] for count in {hit, *marks}], now + self._life)
        )
        read, written, plain = sizes[hit], sizes[last] - sizes[hit], tokens - sizes[last]
        self.sent += tokens
        self.paid += plain + self.read * read + WRITE * written
        return {"plain": plain, "read": read, "written": written}
