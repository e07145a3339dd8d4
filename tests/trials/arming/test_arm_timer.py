"""A trial's timer on files of a test: it restores once nobody renews, and nothing may be set after that."""

from __future__ import annotations

import importlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.roles.run_module import run_module

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="trials are root's")
TRIALS = importlib.import_module("ansible_collections.nodectl.fleet.plugins.module_utils.undo.trials")


def until(holds: Callable[[], bool], within_s: float = 20.0) -> None:
    ends = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.02)


def module(folder: Path, state: str, trial: str, **more: object) -> dict[str, Any]:
    arguments = {"state": state, "trial": trial, "folder": str(folder / "run"), **more}
    return run_module("plugins/modules/node_trial.py", arguments, folder=folder)


@pytest.fixture
def armed(tmp_path: Path) -> Iterator[Any]:
    """Trial `one` with a lease of half a second, armed by the module; its file held `former`."""
    answer = module(tmp_path, "armed", "one", by="ada@laptop", lease_s=0.5)
    assert answer["trial"] == {"state": "armed", "notes": []}, answer
    trial = TRIALS.Trial("one", str(tmp_path / "run"))
    trial.keep({str(tmp_path / "value"): "former"}, {"a command": ["touch", str(tmp_path / "ran")]})
    (tmp_path / "value").write_text("tried")
    yield trial
    (tmp_path / "value").unlink(missing_ok=True)
    module(tmp_path, "off", "one")


def test_it_restores_once_nobody_renews(armed: Any, tmp_path: Path) -> None:
    for _ in range(15):
        Path(armed.path("lease")).write_text("renewed")
        time.sleep(0.1)
    assert (tmp_path / "value").read_text() == "tried"
    # of a second side the first side's former value counts
    armed.keep({str(tmp_path / "value"): "tried"}, {})
    until(lambda: not armed.exists())
    assert (tmp_path / "value").read_text() == "former\n" and (tmp_path / "ran").exists()
    assert module(tmp_path, "off", "one")["trial"]["state"] == "gone"


def test_what_cannot_be_restored_is_tried_again(armed: Any, tmp_path: Path) -> None:
    armed.keep({str(tmp_path / "none" / "value"): "former"}, {})
    until(lambda: "none/value" in TRIALS.files.read_or(armed.path("failed")))
    assert armed.exists() and (tmp_path / "value").read_text() == "former\n"
    (tmp_path / "none").mkdir()
    until(lambda: not armed.exists())
    assert (tmp_path / "none" / "value").read_text() == "former\n"


def test_the_end_of_a_trial_restores_at_once_and_names_what_is_not_back(armed: Any, tmp_path: Path) -> None:
    armed.keep({str(tmp_path / "none" / "value"): "former"}, {})
    refused = module(tmp_path, "off", "one")
    assert refused["failed"] and f"{tmp_path}/none/value" in refused["msg"]
    (tmp_path / "none").mkdir()
    assert module(tmp_path, "off", "one")["trial"]["state"] == "off"
    assert (tmp_path / "value").read_text() == "former\n" and not armed.exists()


def test_the_next_trial_restores_what_another_left(armed: Any, tmp_path: Path) -> None:
    (note,) = module(tmp_path, "armed", "two", lease_s=60)["trial"]["notes"]
    assert note == "the values of trial one were restored" and (tmp_path / "value").read_text() == "former\n"
    assert module(tmp_path, "off", "two")["trial"]["state"] == "off"


def test_a_module_sets_kernel_values_in_a_trial_and_none_after_it(tmp_path: Path) -> None:
    key = tmp_path / "sys" / "net" / "core" / "rmem_max"
    key.parent.mkdir(parents=True)
    key.write_text("100")
    record = tmp_path / "record.json"
    record.write_text('{"net.core.rmem_max": {"before": "50", "after": "100"}}')
    trial = TRIALS.Trial(f"test-{os.getpid()}")
    arguments: dict[str, Any] = {"file": str(tmp_path / "file"), "record": str(record), "root": str(tmp_path / "sys")}

    def run(value: str) -> dict[str, Any]:
        settings = [{"key": "net.core.rmem_max", "value": value}] if value else []
        more = {"settings": settings, "trial": trial.name}
        return run_module("plugins/modules/kernel_settings.py", {**arguments, **more}, folder=tmp_path)

    assert "nothing was changed: this host has restored itself" in run("200")["msg"]
    assert trial.arm(lambda argv: (0, "", ""), {}, 0, 600) == ""
    assert run("200")["changed"] and key.read_text() == "200"
    # what provision set before the trial is not wanted by this side
    assert run("")["changed"] and key.read_text() == "50"
    assert trial.restore(lambda argv: (subprocess.run(argv, check=False).returncode, "", "")) == []
    assert key.read_text() == "100\n" and record.exists() and not (tmp_path / "file").exists()
    assert "restored itself" in run("200")["msg"] and key.read_text() == "100\n"
