"""`nodectl probe` keeps what it measured, and `--compare` holds it against that."""

import json
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodectl.ledger.history.database import FILE
from tests.torch_venv import torch_venv

UNKNOWN, USAGE = 3, 2
PROBE = ("probe", "memory", "--duration", "0.001", "--repetitions", "2")


@pytest.fixture
def here(tmp_path: Path) -> tuple[str, Path, dict[str, str]]:
    """An inventory of this machine alone, the history's file, and the environment that puts it there."""
    inventory = tmp_path / "hosts.ini"
    inventory.write_text("[all]\nhere ansible_connection=local\n")
    return str(inventory), tmp_path / "nodectl" / FILE, {"XDG_STATE_HOME": str(tmp_path)}


def measured(nodectl: Callable[..., Any], here: tuple[str, Path, dict[str, str]], *more: str) -> Any:
    inventory, _, env = here
    return nodectl("-i", inventory, "--output", "json", *PROBE, *more, env=env, check=False)


@pytest.mark.slow
def test_kept_and_compared(nodectl: Callable[..., Any], here: tuple[str, Path, dict[str, str]], tmp_path: Path) -> None:
    first = measured(nodectl, here, "--compare", "LAST")
    assert first.returncode == UNKNOWN
    assert "nothing measured here can be compared with LAST" in first.stderr
    document = json.loads(first.stdout)
    assert document["comparison"]["changes"] == []
    assert len(document["comparison"]["only_new"]) == len(document["measurements"]) > 0

    saved = tmp_path / "first.json"
    saved.write_text(first.stdout)
    for against in ("LAST", str(saved)):
        again = measured(nodectl, here, "--compare", against)
        assert again.returncode == 0, again.stderr
        found = json.loads(again.stdout)
        assert found["comparison"]["against"] == against
        assert (found["comparison"]["only_new"], found["comparison"]["only_old"]) == ([], [])
        changes = found["comparison"]["changes"]
        assert [each["new"] for each in changes] == [each["value"] for each in found["measurements"]]
        assert {"probe", "hosts", "old", "new", "change_percent", "outside_spreads", "unit"} <= set(changes[0])
        if against == str(saved):
            assert [each["old"] for each in changes] == [each["value"] for each in document["measurements"]]
    assert measured(nodectl, here, "--compare", "2000-01-01").returncode == UNKNOWN
    assert here[1].stat().st_mode & 0o777 == 0o600

    inventory, _, env = here
    table = nodectl("-i", inventory, *PROBE, "--compare", "2999-01-01", env=env).stdout
    assert "against 2999-01-01 (" in table
    assert "CHANGE" in table


def test_beside_a_damaged_history_one_has_to_take_in_cordoned_hosts_and_nothing_is_kept(
    nodectl: Callable[..., Any], here: tuple[str, Path, dict[str, str]]
) -> None:
    here[1].parent.mkdir()
    here[1].write_text("no database" * 100)
    refused = measured(nodectl, here)
    assert refused.returncode == UNKNOWN and "or --include-cordoned here" in refused.stderr
    done = measured(nodectl, here, "--include-cordoned")
    assert done.returncode == 0
    assert json.loads(done.stdout)["measurements"]
    assert "not kept in the history" in done.stderr
    assert f"mv {here[1]}" in done.stderr
    asked = measured(nodectl, here, "--include-cordoned", "--compare", "LAST")
    assert asked.returncode == UNKNOWN
    assert json.loads(asked.stdout)["measurements"]
    assert here[1].read_text() == "no database" * 100


@pytest.mark.parametrize("numbers", [[signal.SIGTERM], [signal.SIGHUP], [signal.SIGINT, signal.SIGINT]])
@pytest.mark.slow
def test_however_it_is_ended_what_was_measured_is_shown_and_kept(
    here: tuple[str, Path, dict[str, str]], cli_env: dict[str, str], tmp_path: Path, numbers: list[signal.Signals]
) -> None:
    inventory, kept, env = here
    # the first probe has ended when the second, which takes long, says what it will take
    argv = [sys.executable, "-m", "nodectl", "-i", inventory, "--output", "json", "probe", "memory,gemm"]
    argv += ["--duration", "0.3", "--repetitions", "2", "-e", f"pytorch_venv={torch_venv()}"]
    shown = tmp_path / "shown.json"
    # whoever runs the tests by nohup lets nothing below hear it
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    with (
        shown.open("w") as document,
        subprocess.Popen(argv, stdout=document, stderr=subprocess.PIPE, text=True, env={**cli_env, **env}) as probe,
    ):
        signal.signal(signal.SIGHUP, before)
        assert probe.stderr is not None
        assert any(line.startswith("gemm:") for line in probe.stderr)
        for number in numbers:
            probe.send_signal(number)
            time.sleep(0.02)
        said = probe.stderr.read()
        assert (probe.wait(30), "ended early" in said) == (130, True), said
    found = json.loads(shown.read_text())
    # a busy machine may let the second begin
    assert {"memory"} <= {each["probe"] for each in found["measurements"]} <= {"memory", "gemm"}
    assert [each["subject"] for each in found["findings"]] == ["interrupted"]
    assert sqlite3.connect(kept).execute("SELECT count(*) FROM run").fetchone() == (1,)
