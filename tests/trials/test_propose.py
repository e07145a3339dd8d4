"""Proposals: only of what won, as an inventory that Ansible and nodectl read, with the evidence beside it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodectl.errors import NodectlError, UsageError
from nodectl.transport.inventory.read import Inventory
from nodectl.trials.propose import Proposal, evidence_path, propose
from nodectl.trials.verdict import judge
from tests.trials.trials import gaining

RMEM = "net.ipv4.tcp_rmem"
OVERRIDES: dict[str, dict[str, Any]] = {"sysctl": {RMEM: "4096 131072 16777216"}, "nccl": {"NCCL_SOCKET_NTHREADS": 4}}


def proposal(*percents: float, **changes: Any) -> Proposal:
    """One verdict for each gain, at 1, 2, 4, … bytes."""
    series = tuple(gaining(each, size_bytes=1 << place) for place, each in enumerate(percents))
    verdicts = tuple(judge(each) for each in series)
    hosts: dict[str, dict[str, Any]] = {"gpu01": {}, "gpu02": {}}
    return replace(Proposal("candidate", "stock", hosts, verdicts, series, OVERRIDES), **changes)


def hosts_of(*paths: Path) -> dict[str, Any]:
    """The overrides of each host as nodectl sees them through Ansible."""
    inventory = Inventory.read([str(path) for path in paths])
    return {host.name: host.variables.get("nodectl_overrides") for host in inventory.hosts()}


def test_an_override_for_each_host_with_evidence_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "won.yml"
    beside = propose(proposal(25, 0), path)
    assert hosts_of(path) == {"gpu01": OVERRIDES, "gpu02": OVERRIDES}
    assert beside == evidence_path(path) == tmp_path / "won.evidence.json"
    told = json.loads(beside.read_text())
    assert told["schema"] == "nodectl.evidence/1"
    assert [each["verdict"] for each in told["trials"]] == ["better", "noise"]
    assert (told["verdict"], told["hosts"], told["overrides"]) == ("better", ["gpu01", "gpu02"], OVERRIDES)
    assert len(told["series"][0]["pairs"]) == 10
    head = path.read_text().split("all:")[0]
    assert "better: nccl 1 B +25.0 %" in head
    assert "evidence: won.evidence.json" in head
    assert sorted(each.name for each in tmp_path.iterdir()) == ["won.evidence.json", "won.yml"]


@pytest.mark.parametrize(
    ("percents", "told"),
    [
        ((0,), "candidate is not better than stock"),
        ((-20,), "candidate is not better than stock"),
        ((25, -20), "worse than stock at nccl 2 B -20.0 %"),
        ((), "nothing was measured"),
    ],
)
def test_what_has_not_won_is_refused(tmp_path: Path, percents: tuple[float, ...], told: str) -> None:
    with pytest.raises(NodectlError) as refused:
        propose(proposal(*percents), tmp_path / "won.yml")
    assert told in refused.value.message
    assert list(tmp_path.iterdir()) == []


def test_our_own_file_is_written_anew_and_nobody_elses(tmp_path: Path) -> None:
    path = tmp_path / "won.yml"
    propose(proposal(25), path)
    propose(proposal(50), path)
    assert "+50.0 %" in path.read_text()
    path.write_text("all: {}\n")
    with pytest.raises(UsageError, match="was not written by nodectl"):
        propose(proposal(25), path)
    assert path.read_text() == "all: {}\n"
