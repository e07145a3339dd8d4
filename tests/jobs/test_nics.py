"""Which NICs NCCL is given: from bundled recordings (hand-written, healthy)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodectl.facts.rdma import IbPort
from nodectl.jobs import nics
from nodectl.jobs.plan import PlanHost, Surroundings
from nodectl.model.host import Host
from nodectl.payload.jobs import launcher as on_node
from nodectl.recordings.folder import open_recording
from nodectl.recordings.source import replay_source
from nodectl.topology.look import Looked, look

HOST = Host("node01", "10.0.0.1")
A100 = ["mlx5_0:1", "mlx5_1:1", "mlx5_2:1", "mlx5_3:1", "mlx5_6:1", "mlx5_7:1", "mlx5_8:1", "mlx5_9:1"]
H100 = ["mlx5_0:1", "mlx5_3:1", "mlx5_4:1", "mlx5_5:1", "mlx5_6:1", "mlx5_7:1", "mlx5_8:1", "mlx5_9:1"]


def looked(recording: str) -> Looked:
    return look(replay_source(open_recording(recording), None, [HOST]), (), fabric=False)


def with_ports(told: Looked, *ports: IbPort) -> Looked:
    return replace(told, facts={"node01": {**told.facts["node01"], "ib_ports": ports}})


def bind(monkeypatch: pytest.MonkeyPatch, told: Looked) -> Any:
    monkeypatch.setattr(nics, "look", lambda *_, **__: told)
    found = Surroundings((PlanHost("node01", "10.0.0.1"),), (8,), (20_000, 20_001), rdma_hosts=("node01",))
    return nics.bind_nics(None, [HOST], found, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(("recording", "ports"), [("dgx-a100", A100), ("h100-8", H100)])
def test_recorded_a_host_is_kept_off_its_storage_nics(
    monkeypatch: pytest.MonkeyPatch, recording: str, ports: list[str]
) -> None:
    told = looked(recording)
    bound, lines = bind(monkeypatch, told)
    assert bound.hosts[0].ib_hca == "=" + ",".join(ports)
    assert len(lines) == 1 and lines[0].startswith("NCCL_IB_HCA on node01: without mlx5_")
    assert "Ethernet, and training is on InfiniBand" in lines[0]


def test_recorded_adapters_of_efa_are_left_to_their_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    efa = [IbPort(f"rdmap{n}s27", 1, "ACTIVE", "LinkUp", 100.0, link_layer="Unspecified") for n in range(16, 18)]
    told = with_ports(looked("dgx-a100"), *efa)
    bound, lines = bind(monkeypatch, told)
    assert bound.hosts[0].ib_hca == "" and "EFA" in lines[0]


def test_a_host_that_did_not_answer_is_left_to_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    bound, lines = bind(monkeypatch, Looked())
    assert bound.hosts[0].ib_hca == "" and lines == ("NCCL_IB_HCA on node01: it did not answer",)


def test_what_the_operator_or_the_host_says_goes_before_the_plan(tmp_path: Path) -> None:
    host: Mapping[str, Any] = {"ib_hca": "=mlx5_0:1"}
    home = {"HOME": str(tmp_path)}
    assert on_node.nic_variables(host, home) == {"NCCL_IB_HCA": "=mlx5_0:1"}
    assert on_node.nic_variables(host, {**home, "NCCL_IB_HCA": "mlx5_9"}) == {}
    (tmp_path / ".nccl.conf").write_text("#NCCL_IB_HCA=x\nNCCL_DEBUG=INFO\n")
    assert on_node.nic_variables(host, home) == {"NCCL_IB_HCA": "=mlx5_0:1"}
    (tmp_path / "other.conf").write_text("NCCL_DEBUG=INFO\nNCCL_IB_HCA==mlx5_3")
    assert on_node.nic_variables(host, {**home, "NCCL_CONF_FILE": str(tmp_path / "other.conf")}) == {}
    (tmp_path / ".nccl.conf").write_text("NCCL_IB_HCA==mlx5_3\n")
    assert on_node.nic_variables(host, home) == {}
    assert on_node.nic_variables({}, home) == {}
