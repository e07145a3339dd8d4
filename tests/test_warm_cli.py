"""A forked nodectl ends and speaks as a started one, and outlives what ends others."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests import warm_cli
from tests.conftest import Cli


@pytest.fixture(autouse=True)
def forking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NODECTL_TESTS_START", raising=False)


@pytest.mark.parametrize("args", ["--replay h100-8 health --output json", "porbe", "facts --inventory bad.yml"])
def test_it_says_what_a_started_one_says(
    nodectl: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: str
) -> None:
    (tmp_path / "bad.yml").write_text("all:\n  hosts: [\n")
    monkeypatch.chdir(tmp_path)
    forked = nodectl(*args.split(), check=False)
    monkeypatch.setenv("NODECTL_TESTS_START", "1")
    started = nodectl(*args.split(), check=False)
    assert forked.args[0] != started.args[0]
    assert (forked.returncode, forked.stdout, forked.stderr) == (started.returncode, started.stdout, started.stderr)
    assert forked.stdout + forked.stderr


def test_neither_a_deadline_nor_ctrl_c_ends_the_one_that_forks(nodectl: Cli) -> None:
    _, process = warm_cli._parent(warm_cli._folder_of_ansible(nodectl.env))
    with pytest.raises(subprocess.TimeoutExpired):
        nodectl("profile", "list", timeout=0)
    os.kill(process.pid, signal.SIGINT)
    assert nodectl("profile", "list").stdout
    assert process.poll() is None


def test_another_environment_of_python_is_started(nodectl: Cli) -> None:
    usual = {**nodectl.env, "HOME": "/nowhere"}
    assert warm_cli.can_run(usual)
    assert not warm_cli.can_run({**usual, "PYTHONPATH": "/elsewhere"})
