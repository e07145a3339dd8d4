"""A hardware profile learned from hosts: what they agree on, with provenance, or a refusal that names who differs."""

from dataclasses import replace
from typing import Any

import pytest

from nodectl.errors import ProfileError
from nodectl.facts.gpus import Gpu, Gpus
from nodectl.facts.network import Nic
from nodectl.facts.parsers.nvidia.smi_topo import parse_nvidia_smi_topo
from nodectl.facts.processors import Cpu, Memory
from nodectl.facts.rdma import IbPort
from nodectl.model.acceptance import Acceptance, HostAcceptance, NodeVerdict, Taken
from nodectl.model.facts import Unread
from nodectl.model.measurement import Measurement
from nodectl.probes.registry import kind_of
from nodectl.profiles.gpus import capability_of
from nodectl.profiles.learn import Learned, accepted_in, taken_on
from nodectl.profiles.learn import learn as learned
from nodectl.profiles.schema import Hardware

A100 = Gpu("0000:07:00.0", "GPU-0", "NVIDIA A100-SXM4-80GB", memory_total_mib=81920, fabric_state="Completed", index=0)
PORT = IbPort("mlx5_0", 1, "ACTIVE", "LinkUp", 200.0, link_layer="InfiniBand")
GOOD: dict[str, Any] = {
    "gpus": Gpus(2, (A100, replace(A100, index=1))),
    "gpu_topology": parse_nvidia_smi_topo("\tGPU0\tGPU1\nGPU0\t X \tNV12\nGPU1\tNV12\t X \n"),
    "fabric_manager": Unread("absent", "not installed"),
    "ib_ports": (PORT, replace(PORT, device="mlx5_1"), replace(PORT, device="mlx5_2", state="DOWN")),
    "nics": {"eno1": Nic("eno1", "up", 1500, "m", (), 10_000, "ixgbe")},
    "cpu": Cpu("AMD EPYC 7742 64-Core Processor", "x86_64", 2, 128, 256, 8),
    "memory": Memory(2_063_000, 1, 0, 1),
}


def learn(*facts: dict[str, Any], **more: Any) -> Learned:
    hosts = {f"n{number}": {**GOOD, **each} for number, each in enumerate(facts or ({}, {}), 1)}
    return learned(hosts, names="n[1-2]", day="2026-06-01", **more)


def test_what_hosts_agree_on_is_a_valid_profile_with_its_provenance() -> None:
    found = learn().document
    sources = found.pop("sources")
    assert found == {
        "description": "2 x NVIDIA A100-SXM4-80GB, 2 x 200 Gbit/s infiniband: learned from 2 hosts",
        "gpus": 2,
        "gpu": {"model": "NVIDIA A100-SXM4-80GB", "memory_gb": 80, "compute_capability": "8.0"},
        "link": "nvswitch",
        "nvswitch": True,
        "nics": [{"count": 2, "rate_gbit": 200, "kind": "infiniband"}],
        "cpu": {"model": "AMD EPYC 7742 64-Core Processor", "sockets": 2, "cores": 128, "threads": 256},
        "memory_gb": 2016,
    }
    assert sources["cpu"] == "learned from n[1-2] on 2026-06-01: lscpu"
    assert set(sources) == set(found) - {"description"}
    Hardware.model_validate({**found, "sources": sources})


@pytest.mark.parametrize(
    ("facts", "field"),
    [
        ({"gpus": Gpus(1, (A100,))}, "gpus"),
        ({"gpus": Gpus(2, (replace(A100, name="NVIDIA H100"), replace(A100, name="NVIDIA H100")))}, "gpu"),
        ({"ib_ports": (PORT,)}, "nics"),
        ({"cpu": replace(GOOD["cpu"], threads=128)}, "cpu"),
        ({"memory": Memory(1_031_000, 1, 0, 1)}, "memory_gb"),
    ],
)
def test_hosts_that_disagree_are_refused_by_name(facts: dict[str, Any], field: str) -> None:
    with pytest.raises(ProfileError) as refused:
        learn({}, facts, {})
    assert refused.value.message.startswith(f"the hosts disagree on {field}: n1, n3: ")
    assert "; n2: " in refused.value.message


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"cpu": Unread("unknown", "lscpu did not end in time")}, "n2: cpu: lscpu did not end in time"),
        ({"gpus": Gpus(1, (A100,), ("0000:41:00.0",))}, "n2: gpus: lost GPUs: 0000:41:00.0"),
        ({"gpus": Gpus(2, (A100, replace(A100, name="other")))}, "n2: gpu: GPUs of several kinds"),
    ],
)
def test_a_host_that_is_not_well_is_not_learned_from(facts: dict[str, Any], said: str) -> None:
    with pytest.raises(ProfileError) as refused:
        learn({}, facts)
    assert refused.value.message.startswith(said)


def test_a_gpu_that_nobody_knows_needs_a_word() -> None:
    odd = {"gpus": Gpus(2, (replace(A100, name="NVIDIA Z1"), replace(A100, name="NVIDIA Z1")))}
    without = learn(odd, odd)
    assert "gpu" not in without.document and "gpu" not in without.document["sources"]
    assert "--compute-capability" in without.notes[0]
    assert learn(odd, odd, capability="12.0").document["gpu"]["compute_capability"] == "12.0"


def test_floors_are_the_least_that_was_measured_there() -> None:
    def nccl(value: float, *hosts: str, repetitions: int = 5) -> Measurement:
        conditions = {"collective": "all_reduce", "size_bytes": 1 << 30, "repetitions": repetitions}
        return Measurement("nccl", hosts, value, "GB/s", conditions=kind_of("nccl").chosen(conditions))

    given = [nccl(230.5, "n1"), nccl(228.1, "n2", repetitions=7), nccl(9.0, "n1", "elsewhere")]
    (floor,) = learn(measurements=given).document["floors"]
    assert floor["value"] == 228.1 and floor["conditions"] == {"collective": "all_reduce", "size_bytes": 1 << 30}
    assert floor["source"] == "measured on n1, n2, 2 values, learned on 2026-06-01"
    assert learn().notes == ("no floors: nothing measured on these hosts was given (--measurements FILE, --from FILE)",)


@pytest.mark.parametrize(
    ("model", "capability"),
    [
        ("NVIDIA A100-SXM4-80GB", "8.0"),
        ("NVIDIA H100 80GB HBM3", "9.0"),
        ("NVIDIA GeForce RTX 4090", "8.9"),
        ("NVIDIA A10", "8.6"),
        ("NVIDIA A10G", "8.6"),
        ("NVIDIA A16", "8.6"),
        ("NVIDIA A2000 of nobody", None),
        ("NVIDIA L40S", "8.9"),
        ("Tesla V100-SXM2-32GB", "7.0"),
    ],
)
def test_what_a_gpu_can_compute(model: str, capability: str | None) -> None:
    assert capability_of(model) == capability


def acceptance(*taken: Measurement, ended: float | None = 2.0, **verdicts: NodeVerdict) -> Acceptance:
    hosts = tuple(HostAcceptance(name, verdict) for name, verdict in verdicts.items())
    rows = tuple(Taken("gemm", measurement) for measurement in taken)
    return Acceptance("20260601T000000Z-aaaa", "standard", "ours", 1.0, ended, "measured", "1", (), hosts, (), rows)


def test_an_acceptance_gives_what_accepted_hosts_measured_alone() -> None:
    of = [
        Measurement("gemm", hosts, 9.0, "TFLOPS") for hosts in (("n1",), ("n2",), ("n3",), ("n1", "n2"), ("n1", "n3"))
    ]
    accepted = acceptance(*of, n1=NodeVerdict.ACCEPTED, n2=NodeVerdict.REMARKS, n3=NodeVerdict.REJECTED)
    assert accepted_in(accepted) == ("n1", "n2") and accepted_in(accepted, ["n2"]) == ("n2",)
    assert [row.hosts for row in taken_on(accepted, ("n1", "n2"))] == [("n1",), ("n2",), ("n1", "n2")]
    assert [row.hosts for row in taken_on(accepted, ("n2",))] == [("n2",)]


@pytest.mark.parametrize(
    ("verdicts", "named", "ended", "said"),
    [
        ({"n1": NodeVerdict.REJECTED, "n2": NodeVerdict.UNTOLD}, (), 2.0, "accepts none of its 2 hosts"),
        ({"n1": NodeVerdict.ACCEPTED, "n2": NodeVerdict.UNTOLD}, ("n1", "n2"), 2.0, "n2: could not tell"),
        ({"n1": NodeVerdict.ACCEPTED}, ("n9",), 2.0, "n9: no host of it"),
        ({"n1": NodeVerdict.ACCEPTED}, (), None, "has not ended"),
    ],
)
def test_an_acceptance_to_learn_nothing_from_is_refused(
    verdicts: dict[str, NodeVerdict], named: tuple[str, ...], ended: float | None, said: str
) -> None:
    with pytest.raises(ProfileError, match=said):
        accepted_in(acceptance(ended=ended, **verdicts), named)
