"""The report in a real browser: no error, no request, nothing against it by axe-core, on a phone and a desktop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.report.page.content import Content
from nodectl.report.page.page import report_html
from tests.report.browser import Browser, Opened, browser
from tests.report_content import content

pytestmark = pytest.mark.slow  # needs Chromium

PHONE, DESKTOP = 390, 1440
# of the page itself; what stands in a box of its own may be wider
_TOO_WIDE = "document.scrollingElement.scrollWidth - screen.width"
_PAINT = """() => new Promise((done) => {
  const seen = (list) => list.getEntriesByName('first-contentful-paint').forEach((one) => done(one.startTime));
  new PerformanceObserver(seen).observe({type: 'paint', buffered: true});
})"""
_ALL_CHARTS = """async () => {
  for (const box of document.querySelectorAll('.chart')) {
    box.scrollIntoView({block: 'center'});
    for (let left = 100; left && !box.querySelector('svg'); left--) await new Promise((go) => setTimeout(go, 20));
  }
  scrollTo(0, 0);
  return [...document.querySelectorAll('.chart')].map((box) => box.querySelectorAll('svg path, svg text').length);
}"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as one:
        yield one


def written(folder: Path, count: int) -> Path:
    path = folder / f"{count}.html"
    path.write_text(report_html(content(count)), encoding="utf-8")
    return path


def hold(opened: Opened, path: Path) -> None:
    """What is true of every page, whatever its size and its reader's screen."""
    opened.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    shapes = opened.page.evaluate(_ALL_CHARTS)
    assert shapes and all(number > 5 for number in shapes)
    assert opened.page.evaluate(_TOO_WIDE) <= 0
    assert opened.violations() == []
    assert opened.told == []
    assert opened.asked == [path.as_uri()]
    assert opened.page.evaluate("window.broken") is None


def test_eight_hosts_on_desktop_and_phone_in_dark_and_light(chromium: Browser, tmp_path: Path) -> None:
    path = written(tmp_path, 8)
    with chromium.open(path, width=DESKTOP) as opened:
        _all_is_reached_by_keyboard(opened)
        hold(opened, path)
        _theme_follows_its_button(opened)
    with chromium.open(path, width=PHONE, dark=True) as opened:
        hold(opened, path)


def _theme_follows_its_button(opened: Opened) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = opened.page.evaluate(ground)
    button = opened.page.locator("#theme")
    button.click()
    assert button.inner_text() == "Theme: light" and opened.page.evaluate(ground) == light
    button.click()
    assert button.inner_text() == "Theme: dark" and opened.page.evaluate(ground) != light
    assert opened.violations() == []
    button.click()


def _all_is_reached_by_keyboard(opened: Opened) -> None:
    """The first Tab goes to the link over the contents; boxes that scroll take the focus."""
    opened.page.keyboard.press("Tab")
    assert opened.page.evaluate("document.activeElement.className") == "skip"
    opened.page.keyboard.press("Enter")
    assert opened.page.evaluate("document.activeElement.id") == "main"
    boxes = "[...document.querySelectorAll('.scroll')].every((box) => box.tabIndex === 0)"
    assert opened.page.evaluate(boxes)


def test_a_thousand_hosts_are_there_at_once_and_each_is_found(chromium: Browser, tmp_path: Path) -> None:
    path = written(tmp_path, 1000)
    with chromium.open(path, width=DESKTOP) as opened:
        opened.page.fill("input[type=search]", "gpu0003")
        found = opened.page.locator("[data-results]")
        assert "failed: gemm, gemm_slow" in found.inner_text()
        more = opened.page.locator("[data-more]").first
        table = more.get_attribute("data-more")
        rows = f"document.getElementById('{table}').rows.length"
        before = opened.page.evaluate(rows)
        more.click()
        assert opened.page.evaluate(rows) > before
        assert opened.page.evaluate("window.broken") is None
        assert opened.told == []


def test_a_page_with_nothing_and_one_without_scripts(chromium: Browser, tmp_path: Path) -> None:
    empty = tmp_path / "empty.html"
    empty.write_text(report_html(Content("Fleet", "now", "1")), encoding="utf-8")
    with chromium.open(empty, width=PHONE) as opened:
        assert opened.violations() == [] and opened.told == []
    with chromium.open(written(tmp_path, 1), script=False) as opened:
        assert "need JavaScript" in opened.page.inner_text("noscript")


@pytest.mark.parametrize("count", [1, 8, 1000])
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_every_size_on_every_screen(chromium: Browser, tmp_path: Path, count: int, dark: bool, width: int) -> None:
    path = written(tmp_path, count)
    with chromium.open(path, width=width, dark=dark) as opened:
        assert opened.page.evaluate(_PAINT) < 2000
        hold(opened, path)
        printed = opened.page.pdf(format="A4")
        assert printed.startswith(b"%PDF")
