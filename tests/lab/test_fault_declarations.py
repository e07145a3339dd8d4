"""What is wrong with a fault's declaration is told with its file."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodectl.checks.catalogue import checks
from nodectl.errors import DeclarationError
from nodectl.lab.faults import FAULTS, recorded
from nodectl.lab.faults.base import Edit
from nodectl.lab.faults.editing import CannotEditError, once, says
from nodectl.lab.faults.engine import _declared

GOOD = "from nodectl.lab.faults.base import Fault\nFAULTS = (Fault('odd-one', 'it is odd', ('ib_rate',)),)\n"
MODULE = "nodectl.lab.faults.recorded.odd_one"


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], object]]:
    """The recorded faults with one more file, of this text."""
    # a second text of the same size within a second would be read from the first one's bytecode
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(recorded, "__path__", [*recorded.__path__, str(tmp_path)])

    def with_file(text: str) -> object:
        (tmp_path / "odd_one.py").write_text(text)
        sys.modules.pop(MODULE, None)
        importlib.invalidate_caches()
        return _declared(recorded)

    yield with_file
    sys.modules.pop(MODULE, None)


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        (",)\n", ")\n", f"{MODULE}: FAULTS is no tuple of nodectl.lab.faults.base.Fault"),
        ("('ib_rate',)", "'ib_rate'", "odd_one.py, line 2: .*fault odd-one: checks is no tuple of ids: 'ib_rate'"),
        ("('ib_rate',)", "print", "odd_one.py, line 2: .*fault odd-one: checks is no tuple"),
        ("'odd-one'", "'odd one'", "odd_one.py, line 2: .*fault 'odd one': a name has"),
        ("'odd-one'", "'nccl-other'", "two faults are named nccl-other; one is of nodectl.lab.faults.recorded."),
    ],
)
def test_a_wrong_file_is_named(load: Callable[[str], object], right: str, wrong: str, message: str) -> None:
    load(GOOD)
    with pytest.raises(DeclarationError, match=message):
        load(GOOD.replace(right, wrong))


def test_what_has_to_find_a_fault_is_a_check_or_a_probe_s_finding() -> None:
    by_checks = [fault for fault in FAULTS.values() if not fault.load]
    assert {check for fault in by_checks for check in fault.checks} <= set(checks())


@pytest.mark.parametrize("edit", [once("kernel-knob", "a", "b"), says(["kernel-knob"], exit_status=1)])
def test_a_key_that_no_recording_can_have_is_the_author_s_mistake(edit: Edit) -> None:
    with pytest.raises(DeclarationError, match="'kernel-knob', and no fact has a command") as refused:
        edit({})
    assert "kernel-knobs" in refused.value.remedy
    # one that this recording lacks is none
    with pytest.raises(CannotEditError):
        once("kernel-knobs", "a", "b")({})
