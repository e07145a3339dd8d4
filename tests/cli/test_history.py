"""`nodectl history`: it always says what it looked at, and what it shows can be read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodectl.ledger.history.database import FILE
from nodectl.ledger.history.store import History
from tests.ledger.history.measured import memory, tcp

Asked = Callable[..., Any]


@pytest.fixture
def past(tmp_path: Path) -> History:
    return History(tmp_path / "nodectl" / FILE, str(tmp_path / "hosts.ini"))


@pytest.fixture
def asked(nodectl: Asked, tmp_path: Path) -> Asked:
    (tmp_path / "hosts.ini").write_text("[all]\na\nb\n")
    (tmp_path / "nodectl").mkdir(exist_ok=True)
    env = {"XDG_STATE_HOME": str(tmp_path)}
    return lambda *args, **more: nodectl("-i", str(tmp_path / "hosts.ini"), "history", *args, env=env, **more)


@pytest.mark.parametrize("command", ["drift", "list"])
def test_without_a_history_it_says_so(asked: Asked, command: str) -> None:
    assert "nothing was measured of this fleet yet" in asked(command).stdout


def test_no_drift_is_said_and_a_drift_in_units_of_people(asked: Asked, past: History) -> None:
    for _ in range(12):
        past.add([memory("a", 20.0), tcp("a", "b", 0.5)])
    assert asked("drift").stdout == "nothing drifts: 2 of 2 series have 10 values or more, over 12 runs\n"
    for _ in range(8):
        past.add([memory("a", 20.0), tcp("a", "b", 0.25)])
    shown = asked("drift").stdout
    assert "250 Mbit/s, -50.0 % over 20 runs" in shown
    assert shown.endswith("1 drift for the worse: 2 of 2 series have 10 values or more, over 20 runs\n")


def test_a_probe_that_was_never_measured_is_said(asked: Asked, past: History) -> None:
    past.add([memory("a", 20.0)])
    misspelt = asked("export", "memroy", check=False)
    assert (misspelt.returncode, misspelt.stdout) == (2, "")
    assert "no probe 'memroy'" in misspelt.stderr
    assert "did you mean memory? kept are measurements of: memory" in misspelt.stderr
    never = asked("export", "tcp")
    assert never.stdout == "" and "no measurement of 'tcp' is kept" in never.stderr
