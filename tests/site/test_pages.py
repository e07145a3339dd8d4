"""What the site makes of a page's Markdown."""

from __future__ import annotations

from tests.pages.command_lines import refused
from tests.site.building import DOCS


def test_the_command_line_has_what_the_articles_pages_name() -> None:
    commands = [
        (path.name, line[2:])
        for path in sorted((DOCS / "articles").glob("*.md"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith("$ ")
    ]
    assert len(commands) > 20
    assert [(name, problem) for name, command in commands for problem in refused(command)] == []
