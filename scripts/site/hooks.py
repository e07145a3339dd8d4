"""What mkdocs calls as it builds the site: generated pages, the nav's folders, and links that GitHub reads, too."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from scripts.site import articles, pages, reference

# mkdocs counts the warnings below its own name, and a strict build fails by them
_log = logging.getLogger("mkdocs.hooks.nodectl")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Return the pages that code writes, and the nav, its folders by the pages that are in them."""
    for place, text in reference.pages().items():
        files.append(File.generated(config, place, content=text))
    config.nav = list(_expanded(config.nav or [], files))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page as the site's parser reads it; what is wrong with its links is a warning."""
    place = page.file.src_uri
    text = pages.listed(markdown, place, lambda folder: [(_title(one), one.src_uri) for one in _below(folder, files)])
    text, problems = pages.linked(articles.filled(text), place, pages.ROOT)
    for problem in problems:
        _log.warning("Doc file '%s': %s", place, problem)
    return pages.with_bars(pages.with_lists_apart(text))


def _expanded(nav: list[Any], files: Files) -> Iterator[Any]:
    """Yield the entries of the nav; a section without a page is left out."""
    for entry in nav:
        if isinstance(entry, dict):
            for title, inner in entry.items():
                if isinstance(inner, str) and not inner.endswith("/"):
                    yield entry
                elif below := list(_expanded(inner if isinstance(inner, list) else [inner], files)):
                    yield {title: below}
        elif entry.endswith("/"):
            yield from (_entry(one, short=entry.startswith("reference/")) for one in _below(entry, files))
        elif (one := files.get_file_from_path(entry)) is not None:
            yield _entry(one, short=True)
        else:
            yield entry  # mkdocs says that it is not there


def _entry(one: File, *, short: bool) -> Any:
    """Return the page by its title, or the first words of it: what stands behind a colon explains them."""
    title = _title(one)
    if one.name == "index" or not title:
        return one.src_uri
    return {title.partition(": ")[0] if short else title: one.src_uri}


def _below(folder: str, files: Files) -> list[File]:
    """Return the pages right in that folder: its index, then the others by their titles."""
    found = [one for one in files.documentation_pages() if one.src_uri.rpartition("/")[0] == folder.rstrip("/")]
    return sorted(found, key=lambda one: (one.name != "index", _title(one), one.src_uri))


def _title(page: File) -> str:
    return pages.title(page.content_string)
