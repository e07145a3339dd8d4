"""nodectl(1) names every command and option that the help shows, and groff finds nothing wrong with it."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from nodectl.cli.guide import EXAMPLES, TASKS
from scripts.manual import _text, manual


@pytest.fixture(scope="module")
def page() -> str:
    return manual()


def test_groff_warns_of_nothing(page: str) -> None:
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("no groff on this machine")
    argv = [groff, "-man", "-Tutf8", "-ww", "-rLL=100n", "-P-c", "-P-b", "-P-o", "-P-u"]
    done = subprocess.run(argv, input=page, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    words = " ".join(done.stdout.split())
    assert "nodectl - Provision, see, measure, tune and run" in words
    assert "nodectl launch [OPTIONS] [SCRIPT] [ARGS]..." in words
    assert "Ask for the password that sudo wants on the hosts" in words
    for examples in EXAMPLES.values():
        for line, _ in examples:
            assert line in done.stdout, line


def test_it_has_every_task(page: str) -> None:
    assert all(f"\n.SS {heading}\n" in page for heading in TASKS)


def test_no_text_is_taken_for_a_request() -> None:
    assert _text(".TH a-b") == r"\&.TH a\-b"
    assert _text("'x' \\ \"y\" …") == r"\(aqx\(aq \e \(dqy\(dq \[u2026]"
