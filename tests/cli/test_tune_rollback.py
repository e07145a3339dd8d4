"""`nodectl tune rollback`: only the run of the last apply, only where it was the last, and said where not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nodectl.cli.root import cli
from nodectl.errors import NodectlError
from nodectl.provision.events import Answer, HostTally, ProvisionRun
from nodectl.provision.run import ProvisionRequest
from nodectl.transport.inventory.read import Inventory
from nodectl.trials.applied import Applied, remember

RUN, LATER = "20261121T120500Z-7", "20261121T130000Z-8"


@pytest.fixture
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Three hosts; the last apply was to two of them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "hosts.ini"
    path.write_text("a ansible_host=192.0.2.1\nb ansible_host=192.0.2.2\nc ansible_host=192.0.2.3\n")
    remember(Applied(RUN, "won.yml", Inventory.read([str(path)]).sources, ("a", "b"), "then"))
    return str(path)


class Playbooks:
    """Stands in for ansible: hosts hold these runs."""

    def __init__(self, held: Mapping[str, Sequence[str]]) -> None:
        self.held = held
        self.asked: list[tuple[str, str | None, bool]] = []

    def __call__(self, request: ProvisionRequest) -> ProvisionRun:
        names = (request.limit or "a,b,c").split(",")
        self.asked.append((request.playbook, request.limit, request.check))
        answers = tuple(Answer(name, "x", {"rollback": self._said(request, name)}) for name in names)
        return ProvisionRun("now", {name: HostTally(1, 0, 0, 0) for name in names}, (), (), answers)

    def _said(self, request: ProvisionRequest, name: str) -> dict[str, Any]:
        if request.playbook == "runs":
            return {"runs": [{"run": run} for run in self.held.get(name, ())]}
        return {
            "runs": [RUN],
            "warnings": [],
            "changes": [{"what": "value", "subject": "tcp_wmem", "action": "4 -> 1"}],
        }


def rollback(
    monkeypatch: pytest.MonkeyPatch, inventory: str, held: Mapping[str, Sequence[str]]
) -> tuple[Any, Playbooks]:
    playbooks = Playbooks(held)
    monkeypatch.setattr("nodectl.cli.progress.play", playbooks)
    return CliRunner().invoke(cli, ["-i", inventory, "tune", "rollback", "--yes"]), playbooks


def test_the_hosts_on_which_it_was_the_last(monkeypatch: pytest.MonkeyPatch, inventory: str) -> None:
    done, playbooks = rollback(monkeypatch, inventory, {"a": ["start", RUN], "b": [], "c": ["start", RUN]})
    assert done.exit_code == 0, done.output
    # c was none of those that it was applied to, and b changed nothing
    assert playbooks.asked == [("runs", "a,b", False), ("rollback", "a", False)]


def test_refused_where_a_later_run_came_over_it(monkeypatch: pytest.MonkeyPatch, inventory: str) -> None:
    done, playbooks = rollback(monkeypatch, inventory, {"a": [RUN], "b": [RUN, LATER]})
    assert isinstance(done.exception, NodectlError)
    assert done.exception.message == f"b: {LATER} changed something after the run {RUN}"
    assert [name for name, *_ in playbooks.asked] == ["runs"]
