"""A real browser for tests of pages: Chromium of the distribution, driven by Playwright, with axe-core beside it."""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

_BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
# beside a busy machine's other tests
_TIMEOUT_MS = 60_000


@dataclass
class Opened:
    """A page as a reader has it open; `told` is what its console said, `asked` what it wanted from elsewhere."""

    page: Any
    axe: Any
    told: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def violations(self) -> list[str]:
        """What axe-core has against it, a line each with the first element."""
        found = self.axe.run(self.page).response["violations"]
        return [f"{one['id']}: {one['nodes'][0]['html'][:160]} ({len(one['nodes'])})" for one in found]


@dataclass
class Browser:
    """Opens files."""

    browser: Any
    axe: Any

    @contextmanager
    def open(self, path: Path, *, width: int = 1440, dark: bool = False) -> Iterator[Opened]:
        """The file as `file://`, in a window of this width."""
        context = self.browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            # what a narrow screen is known by
            is_mobile=width < 500,
            bypass_csp=False,
        )
        try:
            page = context.new_page()
            page.set_default_timeout(_TIMEOUT_MS)
            opened = Opened(page, self.axe)
            page.on("console", lambda message: opened.told.append(f"{message.type}: {message.text}"))
            page.on("pageerror", lambda error: opened.told.append(f"pageerror: {error}"))
            page.on("request", lambda request: opened.asked.append(request.url))
            page.goto(path.as_uri(), wait_until="load")
            yield opened
        finally:
            context.close()


@contextmanager
def browser() -> Iterator[Browser]:
    """One for all pages of a test; skips with what is missing."""
    found = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if found is None:
        pytest.skip("no Chromium here: scripts/setup.sh --browser installs it")
    try:
        axe = importlib.import_module("axe_playwright_python.sync_playwright")
        playwright = importlib.import_module("playwright.sync_api")
    except ImportError:
        pytest.skip("no axe-playwright-python in this environment: scripts/setup.sh --browser installs it")
    # root has no sandbox of its own
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=found, args=options)
        try:
            yield Browser(chromium, axe.Axe())
        finally:
            chromium.close()
