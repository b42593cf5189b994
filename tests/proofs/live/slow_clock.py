"""A clock for a test and its real agents, so that no proof depends on how fast the machine is.

Between jumps, it is ten times slower than the machine's. A turn that takes as long as its driver
allows is still far shorter than the life of a prompt cache, and a pause takes no time at all.
"""

import os
import time

SLOWNESS = 10
# Replaces the clock of an agent in JavaScript, which may be a Node program or a binary of Bun.
SCRIPT = """
const { readFileSync } = require("fs");
const Machine = Date;
const now = () => {
  const [begun, jumped] = readFileSync("PLACE", "utf8").split(" ").map(Number);
  return Math.floor(begun + (Machine.now() - begun) / SLOWNESS + jumped);
};
globalThis.Date = new Proxy(Machine, {
  construct: (target, given, as) => Reflect.construct(target, given.length ? given : [now()], as),
  apply: () => new Machine(now()).toString(),
  get: (target, key) => key === "now" ? now : Reflect.get(target, key),
});
"""


class SlowClock:
    """Seconds since 1970, as in the programs with its `environment`."""

    def __init__(self, base):
        self._begun, self._jumped, self._place = time.time(), 0.0, base / "clock"
        self.jump(0)
        script = base / "clock.cjs"
        script.write_text(
            SCRIPT.replace("PLACE", str(self._place)).replace("SLOWNESS", str(SLOWNESS))
        )
        self.environment = {
            "NODE_OPTIONS": f"--require {script}", "BUN_OPTIONS": f"--preload {script}",
        }  # fmt: skip

    def __call__(self):
        return self._begun + (time.time() - self._begun) / SLOWNESS + self._jumped

    def jump(self, seconds):
        self._jumped += seconds
        fresh = self._place.with_suffix(".new")
        fresh.write_text(f"{1000 * self._begun} {1000 * self._jumped}")
        fresh.rename(self._place)

    def date(self, directory):
        """Give the sessions below a directory, which a turn has just changed, this time."""
        for path in directory.rglob("*.jsonl"):
            os.utime(path, (self(), self()))
