"""The report page in a real browser."""

import os
from pathlib import Path

import pytest

from brainsurgeon.operations.report import report
from brainsurgeon.render.report import report as render
from building.browser import CHROMIUM, Browser
from building.world import SAMPLES, Conversation

# A directory for screenshots, if they are wanted.
PICTURES = os.environ.get("REPORT_PICTURES")
WRONG = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
CONTRAST = """
(() => {
  const parsed = text => text.match(/[\\d.]+/g).map(Number);
  const light = rgb => rgb.slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = one => {
    for (; one; one = one.parentElement) {
      const color = parsed(getComputedStyle(one).backgroundColor);
      if (color.length < 4 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let worst = 21;
  while (walker.nextNode()) {
    const one = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || one.closest('style')) continue;
    const pair = [parsed(getComputedStyle(one).color), ground(one)].map(light);
    worst = Math.min(worst, (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05));
  }
  return worst;
})()
"""


@pytest.fixture
def page(world):
    for path in sorted((SAMPLES / "openclaw").rglob("*.jsonl")):
        world.put(path.name, path.read_bytes())
    hostile = Conversation()
    hostile.turn("x" * 3000, tool="<script>document.title='taken'</script>")
    hostile.turn("y" * 3000)
    world.put("<script>document.title='taken'<.jsonl", hostile.bytes())
    world.scan(keep_recent=0)
    late = Conversation("33333333-0000-4000-8000-000000000003")
    late.turn("z" * 200_000)
    world.put("late.jsonl", late.bytes())
    path = world.base / "report.html"
    path.write_text(render(report(world.settings(), world.store, world.clock(), previews=True)))
    return path


# Only a browser shows how a page looks; its content is tested without one.
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.long(proves=["render", "operations"])
def test_report_page_is_readable_and_runs_no_script(page, tmp_path):
    """Contrast is at least 4.5, nothing overflows at 320 pixels, nothing is loaded."""
    browser = Browser(tmp_path / "profile")
    number = lambda what: browser.run(f"document.querySelectorAll('{what}').length")  # noqa: E731
    try:
        for scheme in ("light", "dark"):
            for width in (320, 768, 1280):
                browser.show(page, width, scheme)
                browser.run("document.querySelector('details').open = true")
                if PICTURES:
                    browser.picture(Path(PICTURES) / f"{scheme}-{width}.png")
                assert browser.run(CONTRAST) >= 4.5, (scheme, width)
                assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.run("document.title") == "brainsurgeon: what your sessions hold"
        assert number("script, img, iframe, [onerror]") == 0
        for name in ("money", "largest", "time", "sizes", "waiting", "unreached", "sessions"):
            assert browser.run(f"document.querySelector('#{name} h2').offsetHeight") > 0
        assert number("#sessions details") >= 4
        assert number("svg[role=img]:not([aria-label])") == 0
        focus = "[...document.querySelectorAll('#sessions summary')].every(one => (one.focus(), "
        assert browser.run(f"{focus}document.activeElement === one))")
        schemes = {
            event["params"]["request"]["url"].partition(":")[0]
            for event in browser.said
            if event.get("method") == "Network.requestWillBeSent"
        }
        problems = [event for event in browser.said if event.get("method") in WRONG]
    finally:
        browser.close()

    assert schemes == {"file"}
    assert problems == []
