"""The report page in a real browser."""

import os
from pathlib import Path

import pytest

from brainsurgeon.operations.report import report
from brainsurgeon.render.report import report as render
from building.browser import Browser, chromium
from building.world import SAMPLES, Conversation

# A directory for screenshots, if set.
SCREENSHOTS = os.environ.get("REPORT_PICTURES")
PROBLEM_EVENTS = ("Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled")
CONTRAST = """
(() => {
  const parsed = text => text.match(/[\\d.]+/g).map(Number);
  const luminance = rgb => rgb.slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const background = element => {
    for (; element; element = element.parentElement) {
      const color = parsed(getComputedStyle(element).backgroundColor);
      if (color.length < 4 || color[3] > 0) return color;
    }
    return [255, 255, 255];
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let worst = 21;
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || element.closest('style')) continue;
    const color = parsed(getComputedStyle(element).color);
    const pair = [color, background(element)].map(luminance);
    worst = Math.min(worst, (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05));
  }
  return worst;
})()
"""
ALL_FOCUSABLE = """
[...document.querySelectorAll('#sessions summary')].every(
  element => (element.focus(), document.activeElement === element))
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
    unscanned = Conversation("33333333-0000-4000-8000-000000000003")
    unscanned.turn("z" * 200_000)
    world.put("unscanned.jsonl", unscanned.bytes())
    path = world.base / "report.html"
    path.write_text(render(report(world.settings(), world.store, world.clock(), previews=True)))
    return path


# Only a browser shows how a page looks; its content is tested without one.
@pytest.mark.long(proves=["render", "operations"])
def test_report_page_is_readable_and_runs_no_script(page, tmp_path):
    """In both color schemes, from 320 pixels on, the page is legible; it loads and runs nothing."""
    if chromium() is None:
        pytest.skip("no Chromium on this machine")  # only a browser draws a page
    browser = Browser(tmp_path / "profile")

    def count(selector):
        return browser.run(f"document.querySelectorAll('{selector}').length")

    try:
        for scheme in ("light", "dark"):
            for width in (320, 768, 1280):
                browser.show(page, width, scheme)
                browser.run("document.querySelector('details:not(.agent)').open = true")
                if SCREENSHOTS:
                    browser.picture(Path(SCREENSHOTS) / f"{scheme}-{width}.png")
                assert browser.run(CONTRAST) >= 4.5, (scheme, width)
                assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.run("document.title") == "brainsurgeon: content of your sessions"
        assert count("script, img, iframe, [onerror]") == 0
        for name in ("money", "largest", "sizes", "waiting", "unreached", "sessions"):
            assert browser.run(f"document.querySelector('#{name} h2').offsetHeight") > 0
        assert count("#sessions details") >= 4
        assert count("svg[role=img]:not([aria-label])") == 0
        assert browser.run(ALL_FOCUSABLE)
        schemes = {
            event["params"]["request"]["url"].partition(":")[0]
            for event in browser.events
            if event.get("method") == "Network.requestWillBeSent"
        }
        problems = [event for event in browser.events if event.get("method") in PROBLEM_EVENTS]
    finally:
        browser.close()

    assert schemes == {"file"}
    assert problems == []
