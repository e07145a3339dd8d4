"""`on_event` of nodectl.toml: what `health` gives to the program, and which values are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from nodectl.cli import events
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from tests.conftest import Cli


def fleet(folder: Path, settings: str) -> str:
    (folder / "hosts.yml").write_text(
        "all: {hosts: {node01: {ansible_connection: local, nodectl_hardware: 8 x rtx4090}}}\n"
    )
    (folder / "nodectl.toml").write_text(settings)
    return str(folder / "hosts.yml")


@pytest.mark.parametrize("value", ['"curl https://x"', "[1, 2]", '[""]'])
@pytest.mark.parametrize("command", [("health",), ("launch", "--dry-run", "x.py"), ("accept", "--dry-run")])
def test_refuses_what_is_not_a_list_of_words(
    nodectl: Cli, tmp_path: Path, value: str, command: tuple[str, ...]
) -> None:
    (tmp_path / "x.py").write_text("")
    inventory = fleet(tmp_path, f"on_event = {value}\n")
    words = [str(tmp_path / "x.py") if word == "x.py" else word for word in command]
    done = nodectl("-i", inventory, *words, check=False)
    assert done.returncode == 2
    assert f"{tmp_path}/nodectl.toml: on_event is not a list of words" in done.stderr, done.stderr


def test_refuses_a_file_that_everybody_may_write(nodectl: Cli, tmp_path: Path) -> None:
    inventory = fleet(tmp_path, f'on_event = ["touch", "{tmp_path}/ran"]\n')
    (tmp_path / "nodectl.toml").chmod(0o666)
    done = nodectl("-i", inventory, "health", check=False)
    assert done.returncode == 2 and "may be written by everybody" in done.stderr
    assert not (tmp_path / "ran").exists()


def test_health_reports_a_host_once_and_nothing_of_a_replay(nodectl: Cli, tmp_path: Path) -> None:
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    inventory = fleet(tmp_path, f'on_event = ["sh", "-c", "cat >> {tmp_path}/events; echo >> {tmp_path}/events"]\n')
    nodectl("-i", inventory, "--replay", "h100-8", "health", env=state, check=False)
    assert not (tmp_path / "events").exists()
    for _ in range(2):
        nodectl("-i", inventory, "health", env=state, check=False)
    (event,) = map(json.loads, (tmp_path / "events").read_text().splitlines())
    assert (event["event"], event["host"]) == ("host_failed", "node01")
    assert event["details"]["checks"] == ["gpus"] and "host node01 failed: " in event["summary"]


def test_a_program_that_fails_is_a_note_and_changes_no_status(nodectl: Cli, tmp_path: Path) -> None:
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    done = nodectl("-i", fleet(tmp_path, 'on_event = ["/nowhere"]\n'), "health", env=state, check=False)
    plain = nodectl("-i", fleet(tmp_path, ""), "health", env=state, check=False)
    assert "on_event: /nowhere could not be started: No such file or directory" in done.stderr
    assert done.returncode == plain.returncode and "on_event" not in done.stdout


@pytest.fixture
def look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[str, str]]]:
    """Reports the findings of a look at two hosts, and returns the events that its program was given."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    given = tmp_path / "events"

    def report(one: Status, two: Status, check: str = "gpu_count") -> list[tuple[str, str]]:
        given.write_text("")
        findings = [Finding(host, check, status) for host, status in (("node1", one), ("node2", two))]
        events.report_health(["sh", "-c", f"cat >> {given}; echo >> {given}"], "hosts.yml", findings)
        return [(event["event"], event["host"]) for event in map(json.loads, given.read_text().splitlines())]

    return report


def test_only_changes_are_reported(look: Callable[..., list[tuple[str, str]]], tmp_path: Path) -> None:
    assert look(Status.OK, Status.OK) == []
    assert look(Status.FAILED, Status.OK) == [("host_failed", "node1")]
    assert look(Status.FAILED, Status.WARNING) == []
    assert look(Status.WARNING, Status.FAILED) == [("host_recovered", "node1"), ("host_failed", "node2")]
    (kept,) = (tmp_path / "state" / "nodectl" / "events").iterdir()
    kept.write_text("{")  # damaged: as at the first look
    assert look(Status.OK, Status.FAILED) == [("host_failed", "node2")]


def test_a_host_that_goes_silent_has_failed_unless_all_do(look: Callable[..., list[tuple[str, str]]]) -> None:
    assert look(Status.UNKNOWN, Status.UNKNOWN, "reach") == []
    assert look(Status.UNKNOWN, Status.OK, "reach") == [("host_failed", "node1")]
    assert look(Status.UNKNOWN, Status.UNKNOWN, "reach") == []
    assert look(Status.OK, Status.OK, "reach") == [("host_recovered", "node1")]
