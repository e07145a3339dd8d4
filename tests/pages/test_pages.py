"""docs/start and docs/how-to to the letter: every command of every page is run in the lab that the page makes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.pages.command_lines import refused
from tests.pages.page import ROOT, PageError, pages, read_page
from tests.pages.run import follow


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.timeout(2700)
@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_ends_as_it_says(path: Path, tmp_path: Path, cli_env: dict[str, str], lab_machine: None) -> None:
    try:
        follow(read_page(path), tmp_path / "page", given={**os.environ, "XDG_CACHE_HOME": cli_env["XDG_CACHE_HOME"]})
    except PageError as error:
        pytest.fail(str(error), pytrace=False)


def test_every_page_can_be_read_and_the_command_line_has_what_it_names() -> None:
    problems = []
    for path in pages():
        try:
            page = read_page(path)
        except PageError as error:
            problems.append(str(error))
            continue
        problems += [
            f"{page.name}:{command.line}: {problem}" for command in page.commands for problem in refused(command.text)
        ]
    assert not problems, "\n".join(problems)
