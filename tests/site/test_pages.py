"""What the site makes of a page's Markdown."""

from __future__ import annotations

from pathlib import Path

from scripts.site import pages
from tests.pages.command_lines import refused
from tests.site.building import DOCS


def test_a_list_right_below_a_paragraph_is_set_apart() -> None:
    text = "Two:\n- one\n- two\n  goes on\n- three\n\n```\nnot:\n- here\n```\n1. a\n2. b"
    wanted = "Two:\n\n- one\n- two\n  goes on\n- three\n\n```\nnot:\n- here\n```\n\n1. a\n2. b"
    assert pages.with_lists_apart(text) == wanted


def test_plain_text_is_no_markup() -> None:
    assert pages.plain("a_b <c> `d_e|<f>`\n  [g](h) #i") == "a\\_b &lt;c\\> `d_e|<f>` \\[g\\](h) \\#i"
    assert pages.table(["x"], [["`a|b`"], ["c\\|d"]]) == "| x |\n|---|\n| `a\\|b` |\n| c\\|d |"
    assert pages.table(["x"], []) == ""


def test_a_link_out_of_docs_becomes_code(tmp_path: Path) -> None:
    (tmp_path / "nodectl").mkdir()
    text = "[the parsers](../../nodectl/) [`x`](../../nodectl) [up](../jobs.md#a) `[c](../../no)` ![i](../../no.png)"
    found, problems = pages.linked(text, "how-to/x.md", tmp_path)
    assert found == "the parsers (`nodectl`) `x` [up](../jobs.md#a) `[c](../../no)` ![i](../../no.png)"
    assert problems == []
    _, problems = pages.linked("[a](../gone.py)", "x.md", tmp_path)
    assert problems == ["link to ../gone.py, and the repository has no gone.py"]


def test_the_command_line_has_what_the_articles_pages_name() -> None:
    commands = [
        (path.name, line[2:])
        for path in sorted((DOCS / "articles").glob("*.md"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith("$ ")
    ]
    assert len(commands) > 20
    assert [(name, problem) for name, command in commands for problem in refused(command)] == []
