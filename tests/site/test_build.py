"""Each page is in the site, and loads nothing from elsewhere; `mkdocs build --strict` follows the links."""

from __future__ import annotations

import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.site.building import DOCS, ROOT

_LINK = re.compile(r"(?:\]\(|(?:src|href)=\")([^)\s\"]+)")


class _Loads(HTMLParser):
    """What a page loads by itself."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.loads += [given[name] for name in ("src", "href") if name in given and tag != "a"]


def test_nothing_is_loaded_from_elsewhere_and_each_page_of_docs_is_in_the_site(site: Path) -> None:
    pages = [path for path in site.rglob("*.html") if path.name != "404.html"]
    loads = [(path, link) for path in pages for link in _Loads(path).loads]
    # the canonical address of a page is named, and not loaded
    elsewhere = {link for _, link in loads if urlsplit(link).netloc}
    assert not [path for path, link in loads if not urlsplit(link).netloc and not (path.parent / _place(link)).exists()]
    assert not elsewhere and len(loads) > 200
    sources = [path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")]
    assert [path for path in sources if not (site / path).is_file()] == []


def _place(link: str) -> str:
    return unquote(urlsplit(link).path)


def test_links_of_the_repositorys_other_pages_lead_somewhere() -> None:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    others = [ROOT / name for name in listed.split() if not name.startswith("docs/")]
    links = [(path, link) for path in others for link in _LINK.findall(path.read_text(encoding="utf-8"))]
    targets = [(path, link.partition("#")[0]) for path, link in links]
    assert [(path, link) for path, link in targets if ":" not in link and not (path.parent / link).exists()] == []
    assert len(links) > 20
