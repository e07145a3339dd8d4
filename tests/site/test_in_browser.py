"""The site in a real browser, as files: no error, nothing asked of another host, nothing too wide; search works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.report.browser import Browser, browser

pytestmark = pytest.mark.slow  # needs Chromium

PHONE, DESKTOP = 390, 1440
_TOO_WIDE = "document.scrollingElement.scrollWidth - screen.width"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as one:
        yield one


def hold(chromium: Browser, page: Path, width: int, *, dark: bool = False) -> None:
    """What is true of every page."""
    with chromium.open(page, width=width, dark=dark) as opened:
        assert opened.told == [], page
        assert [url for url in opened.asked if not url.startswith("file:///")] == [], page
        assert opened.page.evaluate(_TOO_WIDE) <= 0, page
        assert opened.page.locator("h1").count() == 1, page


def test_search_finds_a_word_where_there_is_no_server(chromium: Browser, site: Path) -> None:
    with chromium.open(site / "index.html", width=DESKTOP) as opened:
        opened.page.locator("input.md-search__input").press_sequentially("gpu_remap_failure")
        result = opened.page.locator(".md-search-result__link").first
        result.wait_for()
        result.click()
        opened.page.wait_for_url("**/*.html?h=*")
        assert "gpu_remap_failure" in opened.page.inner_text("article")
        assert opened.told == []
        assert [url for url in opened.asked if not url.startswith(("file:///", "about:"))] == []


def test_a_copied_console_block_is_its_commands(chromium: Browser, site: Path) -> None:
    with chromium.open(site / "articles" / "article-3.html", width=DESKTOP) as opened:
        text = opened.page.evaluate(
            """() => {
              const code = [...document.querySelectorAll('.highlight code')].find((one) => one.querySelector('.go'));
              code.setAttribute('data-md-copying', '');
              return code.innerText;
            }"""
        )
        assert text.strip() == "nodectl profile validate --hardware rtx4090-3 --stack cu116"


@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_every_page(chromium: Browser, site: Path, width: int) -> None:
    for page in sorted(site.rglob("*.html")):
        if page.name != "404.html":
            hold(chromium, page, width, dark=width == PHONE)
