"""The systemd scope in which a job of a login other than root starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nodectl.payload.jobs import control

Begun = list[tuple[list[str], dict[str, str]]]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Begun:
    """What the process would have become; it is a login that lingers, at `run.py jobs.control start JOB 0`."""
    seen: Begun = []
    program = tmp_path / "run.py"
    program.touch()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(control, "lingers", lambda: True)
    monkeypatch.setattr(sys, "argv", [str(program), "jobs.control", "start", "JOB", "0"])
    monkeypatch.setattr(os, "execvpe", lambda _file, words, env: seen.append((words, env)))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    return seen


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[int], None]:
    """A systemd-run that ends with this status."""

    def make(status: int) -> None:
        program = tmp_path / "systemd-run"
        program.write_text(f"#!/bin/sh\nexit {status}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    return make


def test_the_start_is_begun_anew_in_a_scope_of_the_jobs_name_and_once_only(
    begun: Begun, manager: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    manager(0)
    control.enter_scope("JOB.0")
    ((words, env),) = begun
    assert words[:6] == ["systemd-run", "--user", "--scope", "--quiet", "--collect", "--unit=nodectl-JOB.0.scope"]
    assert words[6:8] == ["--", sys.executable]
    assert words[-4:] == ["jobs.control", "start", "JOB", "0"]
    assert env["XDG_RUNTIME_DIR"] == "/run/user/1000"
    monkeypatch.setenv("NODECTL_IN_SCOPE", "1")
    control.enter_scope("JOB.0")
    assert len(begun) == 1
    assert "NODECTL_IN_SCOPE" not in os.environ


def test_root_and_logins_that_do_not_linger_stay_where_they_are(
    begun: Begun, manager: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    manager(0)
    monkeypatch.setattr(control, "lingers", lambda: False)
    control.enter_scope("JOB.0")
    monkeypatch.setattr(control, "lingers", lambda: True)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    control.enter_scope("JOB.0")
    assert begun == []
