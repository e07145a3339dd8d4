"""Each host's proposed NCCL environment: what is set, what is left out, and why."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from nodectl.facts.network import Nic
from nodectl.facts.rdma import Gid, IbPort
from nodectl.facts.versions import Versions
from nodectl.model.facts import Unread
from nodectl.model.host import Host
from nodectl.model.topology import NcclEnvironment
from nodectl.topology.env import propose

NO_RDMA = Unread("absent", "the kernel has no RDMA device")


def net(name: str, *addresses: str, speed: int = 1000, state: str = "UP") -> Nic:
    return Nic(name, state, 1500, "02:00:00:00:00:01", addresses, speed_mbit=speed)


def nics(*listed: Nic) -> dict[str, Nic]:
    return {nic.name: nic for nic in listed}


def environments(*facts: Mapping[str, object]) -> list[NcclEnvironment]:
    hosts = [(Host(f"n{n}", f"192.0.2.{n}"), found) for n, found in enumerate(facts, start=1)]
    return list(propose(hosts).values())


@pytest.mark.parametrize(
    ("each", "expected", "why"),
    [
        (lambda n: nics(net("eth0", f"192.0.2.{n}/24"), net("br-7", "172.18.0.1/16")), "=eth0", "all 3 hosts"),
        (
            lambda n: nics(net("eth0", f"192.0.2.{n}/24"), net("eth1", f"10.0.0.{n}/24", speed=100_000)),
            "=eth1",
            "10.0.0.0/24, in which all 3 hosts are, 100000 Mbit/s",
        ),
        (
            lambda n: nics(net("eth0", f"192.0.2.{n}/24"), net("eth1", f"10.0.0.{n}/24", speed=9, state="DOWN")),
            None,
            "only interface",
        ),
        (
            lambda n: nics(net("eth0", f"192.0.2.{n}/32"), net("eth1", f"10.0.{n}.1/24", speed=100_000)),
            "=eth0",
            "no network holds all hosts; eth0 carries 192.0.2.",
        ),
        (lambda n: nics(net("eth0", f"10.0.{n}.1/24"), net("eth1", f"10.1.{n}.1/24")), None, "no network holds all"),
    ],
)
def test_the_interface_that_reaches_all_others(each: object, expected: str | None, why: str) -> None:
    assert callable(each)
    found = environments(*({"nics": each(n), "ib_ports": NO_RDMA} for n in range(1, 4)))
    for number, one in enumerate(found, start=1):
        wanted = expected and expected.replace("{n}", str(number))
        assert one.values.get("NCCL_SOCKET_IFNAME") == wanted
        assert why in (one.why if expected else one.unset)["NCCL_SOCKET_IFNAME"]
        unknown = [finding.status.value for finding in one.findings]
        assert unknown == (["unknown"] if why == "no network holds all" else [])


def test_with_rdma_the_managed_network_goes_before_the_faster_one() -> None:
    found = environments(
        *(
            {
                "nics": nics(net("eth0", f"192.0.2.{n}/24"), net("ib0", f"10.0.0.{n}/24", speed=200_000)),
                "ib_ports": (IbPort("mlx5_0", 1, "ACTIVE", "LinkUp", 200.0, link_layer="InfiniBand"),),
            }
            for n in (1, 2)
        )
    )
    assert found[0].values == {"NCCL_IB_HCA": "=mlx5_0:1", "NCCL_SOCKET_IFNAME": "=eth0"}


ROCE = tuple(IbPort(f"mlx5_{n}", 1, "ACTIVE", "LinkUp", 200.0, link_layer="Ethernet") for n in range(2))


def gids(*indexes: int) -> tuple[Gid, ...]:
    """Of mlx5_0, mlx5_1, …: where each has RoCE v2 with an IPv4 address."""
    v1 = [Gid(f"mlx5_{n}", 1, 0, "fe80::1", "v1") for n in range(len(indexes))]
    v2 = [Gid(f"mlx5_{n}", 1, index, "::ffff", "v2", None, "10.0.0.1") for n, index in enumerate(indexes)]
    return (*v1, *v2)


def versions(nccl: str | None) -> Versions:
    return replace(Versions("/opt/venv"), nccl=nccl)


@pytest.mark.parametrize(
    ("ports", "listed", "nccl", "expected", "why", "statuses"),
    [
        (ROCE, gids(3, 3), "2.18.3", "3", "RoCE v2", []),
        (ROCE, gids(3, 3), "2.21.5", None, "NCCL 2.21.5 finds the GID itself", []),
        (ROCE, gids(3, 5), "2.18.3", None, "(mlx5_0/1: 3, mlx5_1/1: 5)", ["warning"]),
        (ROCE, gids(3), "2.18.3", None, "(mlx5_0/1: 3, mlx5_1/1: none)", ["warning"]),
        (ROCE, gids(3, 3), None, None, "version is not known", ["unknown"]),
        ((replace(ROCE[0], link_layer="InfiniBand"),), (), "2.18.3", None, "InfiniBand needs none", []),
        (NO_RDMA, (), "2.18.3", None, "no RDMA", []),
    ],
)
def test_the_gid_index(
    ports: object, listed: tuple[Gid, ...], nccl: str | None, expected: str | None, why: str, statuses: list[str]
) -> None:
    facts = {"ib_ports": ports, "gids": listed, "versions": versions(nccl), "nics": nics(net("eth0", "192.0.2.1/24"))}
    (found,) = environments(facts)
    assert found.values.get("NCCL_IB_GID_INDEX") == expected
    assert why in (found.why if expected else found.unset)["NCCL_IB_GID_INDEX"]
    assert [finding.status.value for finding in found.findings] == statuses


@pytest.mark.parametrize(
    ("ports", "value", "why", "status"),
    [
        (ROCE, "=mlx5_0:1,mlx5_1:1", "there are no others", None),
        (
            (*ROCE, replace(ROCE[0], device="mlx5_bond_0"), replace(ROCE[0], device="mlx5_5", state="DOWN")),
            "=mlx5_0:1,mlx5_1:1",
            "not mlx5_bond_0/1 (bond); mlx5_5/1 (down: DOWN, LinkUp)",
            None,
        ),
        ((replace(ROCE[0], state="DOWN"),), None, "no RDMA port is fit for training: mlx5_0/1 (down", "warning"),
        (NO_RDMA, None, "no RDMA: the kernel has no RDMA device", None),
        (Unread("unknown", "cut"), None, "could not be read: cut", "unknown"),
    ],
)
def test_the_adapters(ports: object, value: str | None, why: str, status: str | None) -> None:
    facts = {"ib_ports": ports, "versions": versions("2.27.3"), "nics": nics(net("eth0", "192.0.2.1/24"))}
    (found,) = environments(facts)
    assert found.values.get("NCCL_IB_HCA") == value
    # the bond is told first, as rules come in this order
    told = (found.why if value else found.unset)["NCCL_IB_HCA"]
    assert all(part in told for part in why.removeprefix("not ").split("; "))
    assert [finding.status.value for finding in found.findings] == ([status] if status else [])
