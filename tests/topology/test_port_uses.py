"""Which RDMA ports carry training, told from what a host shows of them."""

from dataclasses import replace

import pytest

from nodectl.facts.network import Nic
from nodectl.facts.rdma import IbPort
from nodectl.topology.interfaces import TRAINING, Surroundings, uses


def port(device: str, **values: object) -> IbPort:
    return replace(IbPort(device, 1, "ACTIVE", "LinkUp", 200.0, link_layer="InfiniBand"), **values)  # type: ignore[arg-type]


def net(name: str, *addresses: str, **values: object) -> Nic:
    return replace(Nic(name, "UP", 1500, "02:00:00:00:00:01", addresses), **values)  # type: ignore[arg-type]


BESIDE = Surroundings(
    gpus=("GPU0", "GPU1"),
    links={"GPU0": {"NIC0": "PIX", "NIC1": "SYS"}, "GPU1": {"NIC0": "SYS", "NIC1": "PIX"}},
    devices={"NIC0": "mlx5_0", "NIC1": "mlx5_1"},
)
ETHERNET = {"link_layer": "Ethernet"}


@pytest.mark.parametrize(
    ("ports", "around", "expected"),
    [
        ([port("mlx5_0"), port("mlx5_1", state="DOWN", physical_state="Disabled")], Surroundings(), [TRAINING, "down"]),
        ([port("mlx5_0"), port("mlx5_bond_0")], Surroundings(), [TRAINING, "bond"]),
        (
            [port("mlx5_0", netdev="eth1")],
            Surroundings(nics={"eth1": net("eth1", master="bond0"), "bond0": net("bond0", kind="bond")}),
            ["bond"],
        ),
        (
            [port("mlx5_0", netdev="eth1"), port("mlx5_1", netdev="eth2")],
            Surroundings(chosen=("eth2",)),
            ["not among", TRAINING],
        ),
        (
            [port("mlx5_0", netdev="eth1"), port("mlx5_1", netdev="eth2")],
            Surroundings(nics={"eth1": net("eth1", "10.0.5.7/24")}, servers=("10.0.5.1",)),
            ["storage", TRAINING],
        ),
        (
            [port("mlx5_0", netdev="eth1"), port("mlx5_1", netdev="eth2")],
            Surroundings(nics={"eth1": net("eth1", "192.0.2.1/24")}, address="192.0.2.1"),
            ["management", TRAINING],
        ),
        ([port("mlx5_0"), port("mlx5_1"), port("mlx5_2", **ETHERNET)], BESIDE, [TRAINING, TRAINING, "Ethernet"]),
        ([port("mlx5_0", **ETHERNET), port("mlx5_8", rate_gbit_s=400.0)], BESIDE, [TRAINING, "InfiniBand"]),
        ([port("mlx5_0"), port("mlx5_1"), port("mlx5_9")], BESIDE, [TRAINING, TRAINING, "beside no GPU"]),
        ([port("mlx5_0"), port("mlx5_1", rate_gbit_s=25.0)], Surroundings(), [TRAINING, "25 of 200"]),
        ([IbPort("mlx5_0", 1)], Surroundings(), [TRAINING]),
    ],
)
def test_which_ports_train(ports: list[IbPort], around: Surroundings, expected: list[str]) -> None:
    found = list(uses(ports, around).values())
    assert len(found) == len(expected)
    assert all(use.startswith(start) for use, start in zip(found, expected, strict=True)), found
