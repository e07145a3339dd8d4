"""Each page is in the site, and each link leads somewhere."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.site.building import DOCS, ROOT

_LINK = re.compile(r"(?:\]\(|(?:src|href)=\")([^)\s\"]+)")


class _Page(HTMLParser):
    """The ids of a page, its links, and what it loads by itself."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.ids.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in {"script", "img", "iframe", "source"} and "src" in given:
            self.loads.append(given["src"])
        elif tag == "link" and "href" in given:
            self.loads.append(given["href"])


def test_every_link_leads_somewhere_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    # the error page is for servers, and begins at their root
    pages = {path: _Page(path) for path in site.rglob("*.html") if path.name != "404.html"}
    links = [(path, link, link in page.loads) for path, page in pages.items() for link in [*page.links, *page.loads]]
    problems = [
        f"{path.relative_to(site)}: {link}: {problem}"
        for path, link, is_loaded in links
        if (problem := _problem(path, link, pages, is_loaded=is_loaded))
    ]
    assert not problems, "\n".join(problems)
    assert len(links) > 1000


def _problem(path: Path, link: str, pages: Mapping[Path, _Page], *, is_loaded: bool) -> str:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return "of another site" if is_loaded or parts.scheme not in {"https", "mailto"} else ""
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.is_file():
        return "no such file"
    # the theme's own, of a click, are no places
    if not parts.fragment or parts.fragment.startswith("__") or target not in pages:
        return ""
    return "" if unquote(parts.fragment) in pages[target].ids else "no such place"


def test_each_page_of_docs_is_in_the_site(site: Path) -> None:
    missing = [
        path for path in DOCS.rglob("*.md") if not (site / path.relative_to(DOCS).with_suffix(".html")).is_file()
    ]
    assert missing == []


def test_links_of_the_repositorys_other_pages_lead_somewhere(site: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "*.md"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split("\0")
    others = [ROOT / name for name in listed if name and not name.startswith("docs/")]
    problems = [
        f"{path.relative_to(ROOT)}: {link}: {problem}"
        for path in others
        for link in _LINK.findall(path.read_text(encoding="utf-8"))
        if (problem := _problem_in_checkout(path, link, site))
    ]
    assert others
    assert not problems, "\n".join(problems)


def _problem_in_checkout(path: Path, link: str, site: Path) -> str:
    target, _, anchor = link.partition("#")
    if ":" in target or not target:
        return ""
    aim = (path.parent / target).resolve()
    if not aim.exists():
        return "no such file"
    if not anchor or not aim.is_relative_to(DOCS):
        return ""
    return "" if anchor in _Page(site / aim.relative_to(DOCS).with_suffix(".html")).ids else "no such heading"
