"""Draw the effect of a run on a sample session: write deploy/before-after.svg."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from brainsurgeon.model.text import bytes_

TOP = Path(__file__).parent.parent
PICTURE = TOP / "deploy" / "before-after.svg"
SAMPLE = TOP / "tests" / "samples" / "pi" / "large-session.derived-v3.jsonl"
KINDS = {
    "tool results": ("tool_result",),
    "tool calls": ("tool_call",),
    "messages and thinking": ("assistant", "user", "system", "custom", "thinking"),
}
TITLE = "What the next request of a session contains"
HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 300" role="img"'
    ' aria-labelledby="t d">'
)
LEFT, WIDE = 32, 736  # beginning of the bars, and the length of a full window
STYLE = """
  text { font: 14px system-ui, sans-serif; fill: #1f2933 }
  .quiet { fill: #52606d }  .title { font-size: 17px; font-weight: 600 }
  .card { fill: #fbfcfd; stroke: #d5dbe1 }  .room { fill: #e8ecf0 }  .mark { stroke: #b4541a }
  .k0 { fill: #2f6fb0 }  .k1 { fill: #2c8f83 }  .k2 { fill: #8592a0 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6eaee }  .quiet { fill: #a7b3bf }
    .card { fill: #161b20; stroke: #323b44 }  .room { fill: #262e36 }  .mark { stroke: #f0a36b }
    .k0 { fill: #5b9bd8 }  .k1 { fill: #4db8aa }  .k2 { fill: #7b8894 }
  }
"""


def measured() -> tuple[dict, dict]:
    """Return the contexts of a copy of the sample before and after a run."""
    with tempfile.TemporaryDirectory() as scratch:
        session = Path(scratch, "agents", "pi", "sessions", "large-session.jsonl")
        session.parent.mkdir(parents=True)
        shutil.copy(SAMPLE, session)
        os.utime(session, (10**9, 10**9))
        config = Path(scratch, "config.toml")
        config.write_text(f'state_dir = "{scratch}/state"\n[[roots]]\npath = "{scratch}/agents"\n')
        before = asked(config, "sessions", str(session))
        asked(config, "scan")
        return before, asked(config, "sessions", str(session))


def asked(config: Path, *words: str) -> dict:
    done = subprocess.run(  # noqa: S603  our own program
        [sys.executable, "-m", "brainsurgeon", *words, "--json", "--config", str(config)],
        check=True, stdout=subprocess.PIPE,
    )  # fmt: skip
    return json.loads(done.stdout)


def picture() -> str:
    """Draw both states below each other, on a card for light and dark pages."""
    before, after = measured()
    values, size = len(after["extracted"]), sum(one["size_bytes"] for one in after["extracted"])
    full = before["fullness"]
    stop = LEFT + round(WIDE * full["threshold"])
    too = f"too full from here on ({100 * full['threshold']:.0f} %)"
    said = f"{values} values ({bytes_(size)}) are in the store, each a call away"
    parts = [
        HEAD,
        f'<title id="t">{TITLE}, before and after one run</title>',
        f'<desc id="d">{told(before)} before, {told(after)} after; {said}.</desc>',
        f"<style>{STYLE}</style>",
        '<rect class="card" x="1" y="1" width="798" height="298" rx="10"/>',
        text(LEFT, 38, TITLE, "title"),
        *row(before, "before", 66),
        *row(after, "after one run", 142),
        f'<path class="mark" d="M{stop} 76V118M{stop} 152V204" stroke-dasharray="4 3"/>',
        text(stop, 217, too, "quiet", "middle"),
        *legend(250),
        text(LEFT, 280, f"{said}; a real session of pi, 1,018 entries", "quiet"),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def told(state: dict) -> str:
    full = state["fullness"]
    share = f"{100 * full['pressure']:.0f} %"
    return f"{full['load_tokens']:,} of {full['window_tokens']:,} tokens ({share})"


def row(state: dict, name: str, top: int) -> list[str]:
    """Draw a bar: its length is the share of the window, its parts are the kinds of values."""
    chars = [
        sum(one["live_chars"] for one in state["filling"] if one["kind"] in kinds)
        for kinds in KINDS.values()
    ]
    room = WIDE * state["fullness"]["pressure"]
    parts = [
        text(LEFT, top + 4, name),
        text(
            LEFT + WIDE,
            top + 4,
            f"{told(state)}, {bytes_(state['size_bytes'])}",
            "quiet",
            "end",
        ),
        f'<rect class="room" x="{LEFT}" y="{top + 14}" width="{WIDE}" height="34"/>',
    ]
    at = float(LEFT)
    for number, count in enumerate(chars):
        width = room * count / sum(chars)
        parts.append(
            f'<rect class="k{number}" x="{at:.1f}" y="{top + 14}" width="{width:.1f}" height="34"/>'
        )
        at += width
    return parts


def legend(top: int) -> list[str]:
    parts = []
    for number, name in enumerate(KINDS):
        left = LEFT + 160 * number
        parts.append(f'<rect class="k{number}" x="{left}" y="{top - 11}" width="13" height="13"/>')
        parts.append(text(left + 20, top, name))
    return parts


def text(left: float, top: float, said: str, kind: str = "", anchor: str = "start") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{left}" y="{top}" text-anchor="{anchor}">{said}</text>'


if __name__ == "__main__":
    if not SAMPLE.exists():
        sys.exit("the sample sessions are not in the source package: this takes a clone")
    PICTURE.write_text(picture())
