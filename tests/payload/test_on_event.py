"""The operator's `on_event` program: what it is given, and how a program ends that does not end itself."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from nodectl.payload.common import on_event
from nodectl.payload.common.on_event import compose, run_hook


def test_the_program_gets_the_event_on_standard_input(tmp_path: Path) -> None:
    event = compose("host_failed", "host n1 failed\nwith token=abc123", {"checks": ["gpu_count"]}, host="n1")
    assert run_hook(["dd", f"of={tmp_path}/event", "status=none"], event) == ""
    document = json.loads((tmp_path / "event").read_bytes())
    document.pop("time")
    assert document == {
        "schema": "nodectl.event/1", "event": "host_failed", "host": "n1", "job": None,
        "summary": "host n1 failed with token=***", "details": {"checks": ["gpu_count"]},
    }  # fmt: skip


def test_a_program_that_reads_nothing_succeeds() -> None:
    assert run_hook(["true"], compose("job_ended", "x" * 10_000, {"more": "y" * 1_000_000})) == ""


@pytest.mark.parametrize(
    ("argv", "why"),
    [
        (["false"], "false ended with exit status 1"),
        (["/nowhere"], "/nowhere could not be started: No such file or directory"),
        (["/etc/passwd"], "/etc/passwd could not be started: Permission denied"),
        (["sh", "-c", "kill -9 $$"], "sh ended with exit status -9"),
    ],
)
def test_says_why_a_program_failed(argv: list[str], why: str) -> None:
    assert run_hook(argv, b"{}") == why


def test_a_program_beyond_the_limit_is_killed_with_its_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_event, "LIMIT_S", 0.5)
    began_s = time.monotonic()
    why = run_hook(["sh", "-c", f"(sleep 2; touch {tmp_path}/alive) & trap '' TERM; sleep 30"], b"{}")
    assert why == "sh was killed: it did not end within 0.5 s" and time.monotonic() - began_s < 5
    time.sleep(2.5)
    assert not (tmp_path / "alive").exists()


def test_what_a_program_leaves_in_the_background_is_killed(tmp_path: Path) -> None:
    assert run_hook(["sh", "-c", f"(sleep 1; touch {tmp_path}/alive) &"], b"{}") == ""
    time.sleep(1.5)
    assert not (tmp_path / "alive").exists()
