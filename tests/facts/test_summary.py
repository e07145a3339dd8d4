"""Each subject in one line: what an operator reads first."""

import json
from typing import Any

import pytest

from nodectl.cli.terminal import as_json
from nodectl.facts.catalogue import all_facts, read_facts, words_of
from nodectl.facts.kernel import Boot
from nodectl.facts.look import Lab
from nodectl.facts.network import Nic
from nodectl.facts.processors import MemoryController, MemoryErrors
from nodectl.facts.rdma import Gid, IbPort
from nodectl.facts.services import Clock, SlurmNode
from nodectl.facts.settings import UnitLimits
from nodectl.facts.storage import Mount, Mounts
from nodectl.facts.versions import Versions
from nodectl.model.facts import Unread
from nodectl.model.recording import Recording
from nodectl.report.hosts import facts_table
from tests.checks.gpus import count, eight
from tests.checks.test_nvlink import OFF, links, manager, matrix, peers

PORT = IbPort("mlx5_0", 1, "ACTIVE", rate_gbit_s=200.0, link_layer="InfiniBand")


@pytest.mark.parametrize(
    ("subject", "value", "line"),
    [
        ("lab", Unread("absent", "not a lab host"), ""),
        ("cpu", Unread("unknown", "cut"), "unknown: cut"),
        ("nics", {}, "none but the loopback"),
        ("nics", {"e": Nic("e", "up", 9000, None, (), 100000, "mlx5_core")}, "e up mtu 9000 100000 Mbit/s mlx5_core"),
        ("nics", {"b": Nic("b", "down", 1500, None, (), kind="bond")}, "b down mtu 1500 bond"),
        ("ib_ports", (), "none"),
        ("ib_ports", (PORT, PORT), "2 x ACTIVE 200 Gbit/s InfiniBand"),
        ("gids", (Gid("mlx5_0", 1, 3, "::", "v2"), Gid("mlx5_0", 1, 0, "::")), "1 InfiniBand, 1 v2"),
        ("boot", Boot("id", 7200.0), "up 2 h"),
        ("time", Clock(2.0, 0.1), "+2.0 s off ours"),
        ("time", Clock(0.01, 0.1), "within 0.1 s of ours"),
        ("memory_errors", MemoryErrors((MemoryController("mc0", 3, 0),)), "mc0 3 corrected, 0 not"),
        ("memory_errors", MemoryErrors(()), "none on 0 controllers"),
        ("mounts", Mounts((Mount("/data", "nas:/", "nfs4", ()),)), "1 mounted, over the network: /data (nfs4)"),
        ("slurm", SlurmNode("n", ("IDLE", "DRAIN"), True, "NHC"), "IDLE+DRAIN, NHC"),
        (
            "unit_limits",
            UnitLimits("infinity", "1024", remove_ipc=True),
            "unit: memlock infinity, nofile 1024, stack ?, RemoveIPC on",
        ),
        ("versions", Versions("/v", torch="2.9.1"), "python -, torch 2.9.1, cuda -, nccl -, driver -, iperf3 -"),
        (
            "lab",
            Lab("lab", ("cpu",), "h100-8"),
            "lab; the machine's, shared by all its hosts: cpu; hardware recorded: h100-8",
        ),
        ("gpus", eight()["gpus"], "8 x NVIDIA A100-SXM4-80GB"),
        ("gpus", count(0, lost=("0000:0F:00.0",))["gpus"], "none; lost: 0000:0F:00.0"),
        ("gpu_topology", matrix("SYS")["gpu_topology"], "3 x NV12, 3 x SYS"),
        ("p2p", peers()["p2p"], "12 x OK"),
        ("nvlink", links(OFF)["nvlink"], "3 x 12 links active, 1 x 11 links active"),
        ("fabric_manager", manager("580.95.05")["fabric_manager"], "580.95.05, state not known"),
    ],
    ids=str,
)
def test_a_line(subject: str, value: object, line: str) -> None:
    assert words_of(subject, value) == line


def test_hosts_that_agree_share_a_line_and_every_subject_is_a_document() -> None:
    unread = read_facts(Recording("n1", {}))
    same: dict[str, Any] = {**unread, "ib_ports": (PORT,), **eight()}
    lines = facts_table({"n1": same, "n2": same, "n3": {**same, "ib_ports": ()}}, words_of).splitlines()
    assert [line for line in lines if line.startswith("ib_ports")] == [
        "ib_ports            n[1-2]  1 x ACTIVE 200 Gbit/s InfiniBand",
        "ib_ports            n3      none",
    ]
    documents = json.loads(as_json("facts", same))
    assert set(documents) == {"schema", *(fact.subject for fact in all_facts())}
    assert documents["ib_ports"][0]["rate_gbit_s"] == 200.0
    assert documents["gpus"]["devices"][7]["uuid"] == "GPU-7"
    assert documents["numa"] == {"unknown": "numa is not in the recording"}
