"""Link of GPUs, switches and ports of a host as its facts show them; None where nobody could look."""

from dataclasses import replace
from typing import Any

from nodectl.facts.gpus import Gpu, Gpus
from nodectl.facts.network import Nic
from nodectl.facts.parsers.nvidia.smi_topo import parse_nvidia_smi_topo
from nodectl.facts.rdma import IbPort
from nodectl.model.facts import Unread
from nodectl.profiles.fit import has_switches, ports_of

A100 = Gpu("0000:07:00.0", "GPU-0", "NVIDIA A100-SXM4-80GB", memory_total_mib=81920, fabric_state="Completed", index=0)
PORT = IbPort("mlx5_0", 1, "ACTIVE", "LinkUp", 200.0, link_layer="InfiniBand")
UNKNOWN = Unread("unknown", "the tool did not end in time")
GOOD: dict[str, Any] = {
    "gpus": Gpus(2, (A100, replace(A100, index=1))),
    "gpu_topology": parse_nvidia_smi_topo("\tGPU0\tGPU1\nGPU0\t X \tNV12\nGPU1\tNV12\t X \n"),
    "fabric_manager": Unread("absent", "not installed"),
    "ib_ports": (PORT, replace(PORT, device="mlx5_1"), replace(PORT, device="mlx5_2", state="DOWN")),
    "nics": {"eno1": Nic("eno1", "up", 1500, "m", (), 10_000, "ixgbe")},
}


def test_a_host_with_switches_and_active_ports() -> None:
    assert has_switches(GOOD) is True
    assert ports_of(GOOD) == ((2, 200.0, "infiniband"),)
    # without RDMA the Ethernet that is up
    assert ports_of({**GOOD, "ib_ports": ()}) == ((1, 10.0, "ethernet"),)


def test_what_could_not_be_read_is_none() -> None:
    assert has_switches({**GOOD, "gpus": UNKNOWN}) is None
    assert ports_of({**GOOD, "ib_ports": UNKNOWN}) is None
