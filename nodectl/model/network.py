"""A host's network interfaces, InfiniBand and RoCE ports; None where the host gives no value."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Nic:
    """One network interface; `addresses` are `address/prefix`; speed and driver None where the kernel names none.

    `kind` is what the kernel calls a made one (veth, bond, vlan, bridge, …), None for a device of its own; `counters`
    are those of the kernel since boot.
    """

    name: str
    state: str
    mtu: int
    mac: str | None
    addresses: tuple[str, ...]
    speed_mbit: int | None = None
    driver: str | None = None
    kind: str | None = None
    carrier: bool | None = None
    master: str | None = None
    duplex: str | None = None
    firmware: str | None = None
    pci_address: str | None = None
    numa_node: int | None = None
    rx_queues: int | None = None
    tx_queues: int | None = None
    mtu_max: int | None = None
    bond_mode: str | None = None
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gid:
    """One entry of a port's GID table; `version` is v1 or v2 on RoCE, None on InfiniBand."""

    device: str
    port: int
    index: int
    gid: str
    version: str | None = None
    netdev: str | None = None
    ipv4: str | None = None


@dataclass(frozen=True, slots=True)
class IbPort:
    """One port of an RDMA device. Counters are the kernel's, under sysfs' names, since the port came up."""

    device: str
    port: int
    state: str | None = None
    physical_state: str | None = None
    rate_gbit_s: float | None = None
    rate_text: str | None = None
    width: int | None = None
    link_layer: str | None = None
    lid: int | None = None
    sm_lid: int | None = None
    guid: str | None = None
    firmware: str | None = None
    board_id: str | None = None
    type: str | None = None
    netdev: str | None = None
    pci_address: str | None = None
    numa_node: int | None = None
    mtu_active: int | None = None
    mtu_max: int | None = None
    counters: Mapping[str, int] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """`mlx5_0/1`, as `rdma link` writes it."""
        return f"{self.device}/{self.port}"
