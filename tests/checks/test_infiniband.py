"""InfiniBand and RoCE ports: there, up, fast, managed; and what they counted."""

from typing import Any

from nodectl.checks.network import infiniband
from nodectl.facts.host_files import HostFiles, NcclFiles, Variable
from nodectl.facts.network import Nic
from nodectl.facts.rdma import Gid, IbPort
from tests.checks.table import ABSENT, UNREAD, Case, dgx, found, plain, quiet, verify

ROCE = plain(nics=[{"count": 2, "rate_gbit": 100, "kind": "roce"}])


def port(number: int, **changes: Any) -> IbPort:
    values: dict[str, Any] = {
        "state": "ACTIVE",
        "physical_state": "LinkUp",
        "rate_gbit_s": 200.0,
        "width": 4,
        "link_layer": "InfiniBand",
        "lid": 20 + number,
        "sm_lid": 1,
        "firmware": "20.35.2000",
        "board_id": "MT_0000000223",
        "mtu_active": 4096,
        "mtu_max": 4096,
        "counters": {"symbol_error": 3, "link_downed": 1, "port_xmit_discards": 0, "local_ack_timeout_err": 7},
    }
    return IbPort(f"mlx5_{number}", 1, **{**values, **changes})


def ports(number: int = 8, **changes: Any) -> dict[str, object]:
    """The last of them is another."""
    return {"ib_ports": (*(port(n) for n in range(number - 1)), port(number - 1, **changes))}


def roce(*gids: Gid) -> dict[str, object]:
    two = (port(n, link_layer="Ethernet", rate_gbit_s=100.0, netdev=f"ens{n}", lid=0, sm_lid=0) for n in range(2))
    return {"ib_ports": tuple(two), "gids": gids}


# a fast and a slow RoCE port beside each other: the slow one may be for management
ROCE_AND_IB: dict[str, object] = {
    "ib_ports": (
        *(port(n) for n in range(2)),
        *(port(n, link_layer="Ethernet", rate_gbit_s=rate) for n, rate in ((8, 100.0), (9, 25.0))),
    )
}
V2 = tuple(Gid(f"mlx5_{n}", 1, 3, "::ffff:10.0.0.1", "v2", f"ens{n}", "10.0.0.1") for n in range(2))
NOT_TOLD: dict[str, object] = {"ib_ports": UNREAD}
DOWN: dict[str, Any] = {"state": "DOWN", "physical_state": "Polling", "rate_gbit_s": 10.0, "width": 1, "lid": 0}
BY_IB: dict[str, object] = {"nccl_files": NcclFiles(None, "NCCL_NET=IB\n")}
NICS: dict[str, object] = {"nics": {name: Nic(name, "up", 1500, None, ()) for name in ("lo", "eth0", "eth1")}}
SESSION = Variable("/etc/environment", "NCCL_SOCKET_IFNAME", "ib7")
CASES = [
    Case("ib_count", "failed", ports(7), dgx()),
    Case("ib_count", "failed", ports(**DOWN), dgx()),
    Case("ib_count", "failed", {"ib_ports": ABSENT}, dgx()),
    Case("ib_count", "failed", NOT_TOLD, dgx()),
    Case("ib_count", "unknown", ports(rate_gbit_s=None), dgx()),
    Case("ib_count", "failed", ports(7, rate_gbit_s=None), dgx()),
    Case("ib_count", "nothing", ports(2), plain()),
    Case("ib_state", "failed", ports(**DOWN), dgx(), subject="mlx5_7/1"),
    Case("ib_state", "ok", ports(9, **DOWN), dgx()),
    Case("ib_state", "warning", ports(2, **DOWN), plain(), subject="mlx5_1/1"),
    Case("ib_state", "ok", ports(2, link_layer="Ethernet", state="DOWN"), plain()),
    Case("ib_state", "unknown", ports(state=None), dgx()),
    Case("ib_physical", "failed", ports(**DOWN), dgx(), subject="mlx5_7/1"),
    Case("ib_rate", "failed", ports(rate_gbit_s=100.0), dgx(), subject="mlx5_7/1"),
    Case("ib_rate", "failed", ports(rate_gbit_s=100.0), plain(), subject="mlx5_7/1"),
    Case("ib_rate", "ok", ports(rate_gbit_s=25.0, link_layer="Ethernet"), plain()),
    Case("ib_rate", "warning", ROCE_AND_IB, plain(), subject="mlx5_9/1"),
    Case("ib_rate", "unknown", ports(1, rate_gbit_s=None), plain()),
    Case("ib_rate", "unknown", ports(rate_gbit_s=None), dgx()),
]

SETUP = [
    Case("ib_subnet_manager", "ok", ports(sm_lid=None)),
    Case("ib_subnet_manager", "failed", ports(sm_lid=0), subject="mlx5_7/1"),
    Case("ib_subnet_manager", "failed", ports(lid=0), subject="mlx5_7/1"),
    Case("ib_subnet_manager", "unknown", ports(lid=None), subject="mlx5_7/1"),
    Case("ib_mtu", "warning", ports(mtu_active=2048), subject="mlx5_7/1"),
    Case("nccl_network", "ok", {**ports(), **BY_IB}, dgx()),
    Case("nccl_network", "ok", {**ports(1), **BY_IB}, plain()),
    Case("nccl_network", "failed", {**ports(1, **DOWN), **BY_IB}, plain()),
    Case("nccl_network", "failed", {"ib_ports": ABSENT, **BY_IB}, dgx()),
    Case("nccl_network", "failed", {"ib_ports": ABSENT, **BY_IB}, plain()),
    Case("nccl_network", "unknown", {**NOT_TOLD, **BY_IB}, dgx()),
    *(
        Case(
            "nccl_network",
            status,
            {**ports(2), **NICS, "nccl_files": NcclFiles(f"{line}\n", None)},
            plain(),
        )
        for status, line in (
            ("ok", "NCCL_SOCKET_IFNAME=eth"),
            ("ok", "NCCL_SOCKET_IFNAME=eth99,eth0"),
            ("ok", "NCCL_SOCKET_IFNAME=^lo,docker"),
            ("ok", "NCCL_SOCKET_IFNAME==eth0"),
            ("failed", "NCCL_SOCKET_IFNAME=eth99"),
            ("failed", "NCCL_SOCKET_IFNAME==eth"),
            ("failed", "NCCL_SOCKET_IFNAME=^lo,eth"),
            ("failed", "NCCL_OOB_NET_IFNAME=bond7"),
            ("ok", "NCCL_IB_HCA=mlx5_1:1"),
            ("failed", "NCCL_IB_HCA=mlx5_0:3"),
            ("failed", "NCCL_IB_HCA==mlx5_0:3,mlx5_1:2"),
            ("ok", "NCCL_IB_HCA=mlx5_0:3,mlx5_1:1"),
            ("ok", "NCCL_IB_HCA=^mlx5_0:1"),
            ("failed", "NCCL_NET=IB\nNCCL_IB_DISABLE=1"),
            ("ok", "NCCL_IB_HCA=^mlx5_0"),
            ("failed", "NCCL_IB_HCA=mlx5_9"),
            ("failed", "NCCL_IB_HCA=^mlx5"),
            ("nothing", "NCCL_IB_HCA=mlx5_9\nNCCL_IB_DISABLE=1"),
        )
    ),
    Case("nccl_network", "warning", {"ib_ports": ABSENT, "nccl_files": NcclFiles("NCCL_IB_HCA=mlx5\n", None)}, plain()),
    Case("nccl_network", "warning", {"host_files": HostFiles(None, {}, (), ("/etc/topo.xml",))}, plain()),
    Case(
        "nccl_network",
        "warning",
        {"host_files": HostFiles(None, {}, (), ("/no.conf",)), "nccl_files": NcclFiles(None, None, "/no.conf")},
        plain(),
        subject="NCCL_CONF_FILE",
    ),
    Case("nccl_network", "failed", {"nccl_files": NcclFiles(None, "NCCL_ALGO=Tree\n")}, dgx(), subject="NCCL_ALGO"),
    Case("nccl_network", "failed", {**NICS, "host_files": HostFiles(None, {}, (SESSION,))}, plain()),
    Case("nccl_network", "nothing", {"ib_ports": ABSENT, "nccl_files": NcclFiles("NCCL_NET=Socket\n", None)}, dgx()),
    Case("gid_v2", "ok", roce(*V2), ROCE),
    Case("gid_v2", "failed", roce(V2[0]), ROCE, subject="mlx5_1/1"),
    Case("gid_v2", "failed", roce(*V2[:1], Gid("mlx5_1", 1, 0, "fe80::1", "v1")), ROCE, subject="mlx5_1/1"),
    Case("gid_v2", "unknown", {**roce(), "gids": UNREAD}, ROCE),
]


def counted(**counters: int) -> dict[str, object]:
    return ports(2, counters=counters)


def before(**counters: int) -> dict[str, int]:
    return {f"ib.mlx5_1/1.{name}": value for name, value in counters.items()}


COUNTERS = [
    Case("ib_errors", "ok", counted(symbol_error=999)),
    Case("ib_errors", "warning", counted(symbol_error=1000)),
    Case("ib_errors", "ok", counted(symbol_error=5000), before=before(symbol_error=5000)),
    Case(
        "ib_errors", "warning", counted(symbol_error=4), before=before(symbol_error=3), subject="mlx5_1/1 symbol_error"
    ),
    Case("ib_errors", "unknown", counted(symbol_error=65535), before=before(symbol_error=65535)),
    Case("ib_errors", "warning", counted(symbol_error=65535), before=before(symbol_error=9)),
    Case("ib_errors", "unknown", {"ib_ports": (port(0, counters={}),)}),
    Case("ib_flaps", "ok", counted(link_downed=3)),
    Case("ib_flaps", "warning", counted(link_downed=4), before=before(link_downed=3)),
    Case("ib_flaps", "unknown", counted(link_downed=255)),
    Case("ib_discards", "ok", counted(port_xmit_discards=40_000)),
    Case("ib_discards", "warning", counted(port_xmit_discards=5_000), before=before(port_xmit_discards=0)),
    Case("ib_discards", "unknown", counted(port_xmit_discards=65535)),
    Case("ib_retries", "ok", counted(local_ack_timeout_err=10**6)),
    Case("ib_retries", "warning", counted(out_of_sequence=2_000), before=before(out_of_sequence=0)),
]


FLAPS = [
    Case("ib_flaps", "warning", counted(link_downed=3), before=before(link_downed=1), action="none"),
    Case("ib_flaps", "failed", counted(link_downed=4), before=before(link_downed=1), action="drain"),
]


QUIET = [
    *quiet(ports(), dgx(), checks="ib_count ib_state ib_physical ib_rate"),
    *quiet(ports(), checks="ib_subnet_manager ib_mtu ib_errors"),
]


def test_a_counter_at_its_end_says_that_it_proves_nothing() -> None:
    stuck = next(case for case in COUNTERS if (case.check, case.status) == ("ib_flaps", "unknown"))
    (end,) = [each for each in found(infiniband, stuck) if each.check == "ib_flaps"]
    assert "255" in end.actual and "proves nothing" in end.actual and "perfquery -R" in end.remedy


def test_only_the_named_interfaces_ports_count() -> None:
    facts = {"ib_ports": (*ports(2)["ib_ports"], port(9, netdev="ens9", **DOWN))}  # type: ignore[misc]
    case = Case("ib_state", "ok", facts, plain(), {"nodectl_nics": ["ens1"]})
    verify(infiniband, case)
