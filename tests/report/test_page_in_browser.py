"""The report in a real browser: no request, nothing against it by axe-core, on a phone, a desktop and paper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.report.page.content import Content
from nodectl.report.page.page import report_html
from tests.report.browser import Browser, browser
from tests.report_content import content

pytestmark = pytest.mark.slow  # needs Chromium

PHONE, DESKTOP = 390, 1440
# of the page itself; what stands in a box of its own may be wider
_TOO_WIDE = "document.scrollingElement.scrollWidth - screen.width"
_OPEN_ALL = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as one:
        yield one


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
@pytest.mark.parametrize("count", [0, 1, 8])
def test_every_size_on_every_screen(chromium: Browser, tmp_path: Path, count: int, width: int, dark: bool) -> None:
    path = tmp_path / f"{count}.html"
    path.write_text(report_html(content(count) if count else Content("Fleet", "now", "1")), encoding="utf-8")
    with chromium.open(path, width=width, dark=dark) as opened:
        opened.page.evaluate(_OPEN_ALL)
        assert opened.page.evaluate(_TOO_WIDE) <= 0
        assert opened.violations() == []
        assert opened.told == []
        assert opened.asked == [path.as_uri()]
        assert opened.page.evaluate("window.broken") is None
        assert opened.page.pdf(format="A4").startswith(b"%PDF")


def test_all_is_reached_by_keyboard(chromium: Browser, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(report_html(content(8)), encoding="utf-8")
    with chromium.open(path, width=DESKTOP) as opened:
        opened.page.keyboard.press("Tab")
        assert opened.page.evaluate("document.activeElement.className") == "skip"
        opened.page.keyboard.press("Enter")
        assert opened.page.evaluate("document.activeElement.id") == "main"
        assert opened.page.evaluate("[...document.querySelectorAll('.scroll, pre')].every((box) => box.tabIndex === 0)")
