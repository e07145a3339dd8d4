"""Which NICs NCCL is given: from bundled recordings (hand-written, healthy), and a launch on a lab dressed in one."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodectl.errors import JobError
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


def bind(monkeypatch: pytest.MonkeyPatch, told: Looked, mode: str, rdma: tuple[str, ...] = ("node01",)) -> Any:
    monkeypatch.setattr(nics, "look", lambda *_, **__: told)
    found = Surroundings((PlanHost("node01", "10.0.0.1"),), (8,), (20_000, 20_001), rdma_hosts=rdma)
    return nics.bind_nics(None, [HOST], found, mode, None, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(("recording", "ports"), [("dgx-a100", A100), ("h100-8", H100)])
def test_recorded_a_host_is_kept_off_its_storage_nics(
    monkeypatch: pytest.MonkeyPatch, recording: str, ports: list[str]
) -> None:
    told = looked(recording)
    bound, lines = bind(monkeypatch, told, "host")
    assert (bound.hosts[0].ib_hca, bound.hosts[0].gpu_hcas) == ("=" + ",".join(ports), ())
    assert len(lines) == 1 and lines[0].startswith("NCCL_IB_HCA on node01: without mlx5_")
    assert "Ethernet, and training is on InfiniBand" in lines[0]
    bound, lines = bind(monkeypatch, told, "gpu")
    assert (bound.hosts[0].ib_hca, lines) == ("", ())
    assert bound.hosts[0].gpu_hcas == tuple(f"={port}" for port in ports)


def test_recorded_adapters_of_efa_are_left_to_their_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    efa = [IbPort(f"rdmap{n}s27", 1, "ACTIVE", "LinkUp", 100.0, link_layer="Unspecified") for n in range(16, 18)]
    told = with_ports(looked("dgx-a100"), *efa)
    bound, lines = bind(monkeypatch, told, "host")
    assert bound.hosts[0].ib_hca == "" and "EFA" in lines[0]
    with pytest.raises(JobError, match=r"--nic-binding gpu: node01: EFA is reached through"):
        bind(monkeypatch, told, "gpu")


def test_each_ranks_own_is_refused_where_it_cannot_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(JobError, match="node01: no RDMA ports"):
        bind(monkeypatch, looked("rtx4090-3"), "gpu")
    with pytest.raises(JobError, match="node01: it did not answer"):
        bind(monkeypatch, Looked(), "gpu")
    told = looked("dgx-a100")
    with pytest.raises(JobError, match="the matrix of GPUs and NICs was not read"):
        bind(monkeypatch, replace(told, nodes={}), "gpu")
    bound, lines = bind(monkeypatch, Looked(), "host")
    assert bound.hosts[0].ib_hca == "" and lines == ("NCCL_IB_HCA on node01: it did not answer",)


def test_what_the_operator_or_the_host_says_goes_before_the_plan(tmp_path: Path) -> None:
    host: Mapping[str, Any] = {"ib_hca": "=mlx5_0:1", "gpu_hcas": []}
    home = {"HOME": str(tmp_path)}
    assert on_node.nic_variables(host, home) == {"NCCL_IB_HCA": "=mlx5_0:1"}
    assert on_node.nic_variables(host, {**home, "NCCL_IB_HCA": "mlx5_9"}) == {}
    (tmp_path / ".nccl.conf").write_text("#NCCL_IB_HCA=x\nNCCL_DEBUG=INFO\n")
    assert on_node.nic_variables(host, home) == {"NCCL_IB_HCA": "=mlx5_0:1"}
    (tmp_path / "other.conf").write_text("NCCL_DEBUG=INFO\nNCCL_IB_HCA==mlx5_3")
    assert on_node.nic_variables(host, {**home, "NCCL_CONF_FILE": str(tmp_path / "other.conf")}) == {}
    (tmp_path / ".nccl.conf").write_text("NCCL_IB_HCA==mlx5_3\n")
    assert on_node.nic_variables(host, home) == {}
    by_gpu = {"ib_hca": "", "gpu_hcas": ["=mlx5_0:1", "=mlx5_1:1"]}
    assert on_node.nic_variables(by_gpu, home) == {"NODECTL_GPU_HCAS": '["=mlx5_0:1", "=mlx5_1:1"]'}
    assert on_node.nic_variables({}, home) == {}


@pytest.mark.parametrize(
    ("variables", "value"),
    [
        ({"LOCAL_RANK": "1"}, "=b:1"),
        ({"LOCAL_RANK": "1", "CUDA_VISIBLE_DEVICES": "2, 0"}, "=a:1"),
        ({"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": "GPU-1234"}, "None"),
        ({"LOCAL_RANK": "1", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, "None"),
        ({"LOCAL_RANK": "7"}, "None"),
        ({"LOCAL_RANK": "2", "CUDA_VISIBLE_DEVICES": "0,1"}, "None"),
    ],
)
def test_a_rank_finds_the_nic_of_its_gpu(tmp_path: Path, variables: dict[str, str], value: str) -> None:
    from nodectl.payload.jobs.notes import hook_folder

    program = "import os; print(os.environ.get('NCCL_IB_HCA'), 'NODECTL_GPU_HCAS' in os.environ)"
    hcas = json.dumps(["=a:1", "=b:1", "=c:1"])
    own = {"PYTHONPATH": hook_folder(), "RANK": "3", "NODECTL_JOB_DIR": str(tmp_path), "NODECTL_GPU_HCAS": hcas}
    done = subprocess.run(
        ["/usr/bin/python3", "-c", program], capture_output=True, text=True, check=True,
        env={"PATH": os.environ["PATH"], **own, **variables},
    )  # fmt: skip
    assert done.stdout == f"{value} False\n" and (tmp_path / "notes" / "3.json").exists()


_RANKS = """#!/bin/sh
while [ "$1" != -- ]; do shift; done
shift
for rank in 0 1 7; do LOCAL_RANK=$rank RANK=$rank python3 "$@"; done
"""


@pytest.mark.slow
@pytest.mark.lab
def test_recorded_ranks_of_a_dressed_lab_get_the_nic_at_their_gpu(
    nodectl: Any, lab_machine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "show.py").write_text("import os; print(os.environ['LOCAL_RANK'], os.environ.get('NCCL_IB_HCA'))")
    with nodectl.lab(f"tests-nics-{os.getpid()}", 1, "--as", "dgx-a100") as lab:
        place = "cat > /usr/local/bin/ranks && chmod 755 /usr/local/bin/ranks"
        subprocess.run(["ssh", "-F", lab.ssh_config, "node01", place], input=_RANKS, text=True, check=True)
        words = ("launch", "-e", "launcher_path=/usr/local/bin/ranks", "--nproc-per-node", "8", "--nic-binding", "gpu")
        done = nodectl("-i", lab.inventory, *words, "show.py")
        for rank in (0, 1, 7):
            assert f"node01 | {rank} ={A100[rank]}\n" in done.stdout
        shown = nodectl("-i", lab.inventory, *words, "--dry-run", "show.py").stdout
        assert f"NCCL_IB_HCA\n  node01  local rank 0  ={A100[0]}\n" in shown
        nine = (*words[:-4], "--nproc-per-node", "9", *words[-2:])
        refused = nodectl("-i", lab.inventory, *nine, "show.py", check=False)
        assert refused.returncode == 1 and "9 ranks, and 8 GPUs" in refused.stderr
