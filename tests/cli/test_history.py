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


def test_without_a_history_it_says_so(asked: Asked) -> None:
    assert "nothing was measured of this fleet yet" in asked("list").stdout


def test_a_run_is_listed_and_shown(asked: Asked, past: History) -> None:
    past.add([memory("a", 20.0), tcp("a", "b", 0.5)])
    listed = asked("list").stdout.splitlines()
    assert listed[0].split() == ["RUN", "TIME", "PROBES", "MEASUREMENTS"] and listed[1].split()[0] == "1"
    assert listed[1].endswith("memory, tcp  2")
    assert "500 Mbit/s" in asked("show", "1", "--all").stdout
