"""What is wrong with a fact's file is told with its name."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import nodectl.facts
from nodectl.errors import DeclarationError
from nodectl.facts import catalogue
from nodectl.facts.base import Fact
from nodectl.facts.catalogue import registered

GOOD = "from nodectl.facts.base import Fact\nFACT = Fact('odd_one', (), len, str)\n"


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], object]]:
    """All facts with one more file, of this text."""
    # a second text of the same size within a second would be read from the first one's bytecode
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(nodectl.facts, "__path__", [*nodectl.facts.__path__, str(tmp_path)])

    def with_file(text: str) -> object:
        (tmp_path / "odd_one.py").write_text(text)
        sys.modules.pop("nodectl.facts.odd_one", None)
        catalogue.modules.cache_clear()
        importlib.invalidate_caches()
        return registered.__wrapped__()

    yield with_file
    catalogue.modules.cache_clear()
    sys.modules.pop("nodectl.facts.odd_one", None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace("'odd_one'", "'cpu'"), "two facts called 'cpu': in nodectl.facts.odd_one and in nodectl.facts.p"),
        (
            (
                "from nodectl.facts.base import script, text_fact\n"
                "FACT = text_fact('odd_one', script('lscpu', 'true'), str, str)\n"
            ),
            "'odd_one': another command is called 'lscpu', by 'cpu'",
        ),
        (GOOD + "def\n", "odd_one.py, line 3: SyntaxError"),
        (GOOD + "import no_such_library\n", "odd_one.py, line 3: ModuleNotFoundError: .*no_such_library"),
    ],
)
def test_a_wrong_file_is_named(load: Callable[[str], object], text: str, message: str) -> None:
    load(GOOD)
    with pytest.raises(DeclarationError, match=message):
        load(text)


def test_a_line_that_fails_is_a_line() -> None:
    fact: Fact[int] = Fact("odd", (), lambda _: 1, lambda value: {0: "none"}[value])
    assert fact.line(1) == "unknown: not shown: KeyError: 1"
