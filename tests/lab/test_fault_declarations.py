"""What is wrong with a fault's declaration is told with its file."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodectl.errors import DeclarationError
from nodectl.lab import faults
from nodectl.lab.faults import _declared

GOOD = "from nodectl.lab.faults import Fault\nFAULTS = (Fault('odd-one', 'it is odd', ('ib_rate',)),)\n"
MODULE = "nodectl.lab.faults.odd_one"


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], object]]:
    """The faults with one more file, of this text."""
    # a second text of the same size within a second would be read from the first one's bytecode
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(faults, "__path__", [*faults.__path__, str(tmp_path)])

    def with_file(text: str) -> object:
        (tmp_path / "odd_one.py").write_text(text)
        sys.modules.pop(MODULE, None)
        importlib.invalidate_caches()
        return _declared()

    yield with_file
    sys.modules.pop(MODULE, None)


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        (",)\n", ")\n", f"{MODULE}: FAULTS is no tuple of nodectl.lab.faults.Fault"),
        ("('ib_rate',)", "'ib_rate'", "odd_one.py, line 2: .*fault odd-one: checks is no tuple of ids: 'ib_rate'"),
        ("('ib_rate',)", "print", "odd_one.py, line 2: .*fault odd-one: checks is no tuple"),
        ("'odd-one'", "'odd one'", "odd_one.py, line 2: .*fault 'odd one': a name has"),
        ("'odd-one'", "'nccl-conf'", "two faults are named nccl-conf; one is of nodectl.lab.faults."),
    ],
)
def test_a_wrong_file_is_named(load: Callable[[str], object], right: str, wrong: str, message: str) -> None:
    load(GOOD)
    with pytest.raises(DeclarationError, match=message):
        load(GOOD.replace(right, wrong))
