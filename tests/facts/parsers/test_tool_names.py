"""Which tools there are: what a module's TOOL says, and what is wrong with it, is told with file and line."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import nodectl.facts.parsers
import nodectl.facts.parsers.linux
from nodectl.errors import DeclarationError
from nodectl.facts.parsers import catalogue

GOOD = 'import re\nTOOL = "odd-one"\n\n\ndef parse_odd_one(text):\n    return text\n'


@pytest.fixture
def tools_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], object]]:
    """The parser of odd-one, which is a file of this text beside nodectl's own."""
    (tmp_path / "linux").mkdir()
    # a second text of the same size within a second would be read from the first one's bytecode
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(nodectl.facts.parsers, "__path__", [*nodectl.facts.parsers.__path__, str(tmp_path)])
    monkeypatch.setattr(
        nodectl.facts.parsers.linux, "__path__", [*nodectl.facts.parsers.linux.__path__, str(tmp_path / "linux")]
    )

    def write(text: str) -> object:
        (tmp_path / "linux" / "odd_one.py").write_text(text)
        sys.modules.pop("nodectl.facts.parsers.linux.odd_one", None)
        importlib.invalidate_caches()
        for cached in (catalogue.families, catalogue.tools, catalogue.parser_of):
            cached.cache_clear()
        return catalogue.parser_of("odd-one")("a text")

    yield write
    sys.modules.pop("nodectl.facts.parsers.linux.odd_one", None)
    for cached in (catalogue.families, catalogue.tools, catalogue.parser_of):
        cached.cache_clear()


@pytest.mark.parametrize("text", ["TOOL = 'odd-one'", 'TOOL: str = "odd-one"', 'A_TOOL = "odd-one"  # its name'])
def test_however_a_tool_is_written(tools_with: Callable[[str], object], text: str) -> None:
    assert tools_with(GOOD.replace('TOOL = "odd-one"', text)) == "a text"


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ('"odd-one"', '"odd_one"', r"nodectl.facts.parsers.linux.odd_one, line 2: 'TOOL = \"odd_one\"': write"),
        ('"odd-one"', "NAME", "nodectl.facts.parsers.linux.odd_one, line 2: 'TOOL = NAME': write"),
        (
            '"odd-one"',
            '"iperf3"',
            "two parsers of iperf3: nodectl.facts.parsers.linux.iperf3, nodectl.facts.parsers.linux.odd_one",
        ),
        ("parse_odd_one", "parse_add_one", "odd_one: its tool is called 'odd-one', and it has no function parse_odd_"),
        ("(text):", "(text)", "odd_one.py, line 5: SyntaxError"),
        ("import re", "import no_such_library", "odd_one.py, line 1: ModuleNotFoundError"),
    ],
)
def test_a_wrong_file_is_named(tools_with: Callable[[str], object], right: str, wrong: str, message: str) -> None:
    assert tools_with(GOOD) == "a text"
    with pytest.raises(DeclarationError, match=message):
        tools_with(GOOD.replace(right, wrong))
