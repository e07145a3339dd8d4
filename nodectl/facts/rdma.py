"""RDMA: ports with state, rate and counters, their GID and partition tables, software devices."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

from nodectl.common.natural import natural
from nodectl.errors import ParseError
from nodectl.facts.base import (
    AbsentError,
    Fact,
    UnknownError,
    UnrecordedError,
    listed,
    matches,
    output,
    parse,
    parsed_as,
    script,
    tally,
    text_fact,
    whole,
)
from nodectl.model.recording import Command, Recording

_NO_DEVICE = "the kernel has no RDMA device"
_IB_PORTS_LINE = re.compile(r"([^/:]+)/(?:ports/(\d+)/)?([^:]+):(.*)")
_RATE = re.compile(r"([\d.]+)\s*Gb/sec(?:\s*\((\d+)X)?")
IB_PORTS_COMMANDS = (
    script("ib-sysfs", hardware=True),
    Command("ibstat", ("ibstat",), hardware=True, waits=True),
    Command("ibv-devinfo", ("ibv_devinfo", "-v"), hardware=True, waits=True),
    Command("rdma-link", ("rdma", "link"), hardware=True),
)
_PORT_COUNT = re.compile(r"^\s*(?:Number of ports|phys_port_cnt):\s*(\d{1,3})\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class IbPort:
    """One port of an RDMA device. Counters are the kernel's, under sysfs' names, since the port came up."""

    device: str
    port: int
    state: str | None = None
    physical_state: str | None = None
    rate_gbit_s: float | None = None
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
    def is_efa(self) -> bool:
        """Amazon's adapter: libfabric's, through a plugin; NCCL's own RDMA takes InfiniBand and Ethernet only."""
        return self.device.startswith("efa") or (self.link_layer or "").lower() == "unspecified"

    @property
    def card(self) -> str:
        """The NIC of the port by its PCI address: functions of one device are ports of one NIC, as for NCCL."""
        return (self.pci_address or "").rpartition(".")[0] or self.device

    @property
    def label(self) -> str:
        """`mlx5_0/1`, as `rdma link` writes it."""
        return f"{self.device}/{self.port}"


def ports_in(facts: Mapping[str, object]) -> tuple[IbPort, ...]:
    """Return a host's RDMA ports among its facts; none if there are none, or nobody could look."""
    value = facts.get("ib_ports")
    return tuple(port for port in value if isinstance(port, IbPort)) if isinstance(value, tuple) else ()


@dataclass(slots=True)
class Device:
    """A device's files by name, each port's by name, and the ports of its interfaces."""

    files: dict[str, str] = field(default_factory=dict)
    ports: dict[int, dict[str, str]] = field(default_factory=dict)
    netdevs: dict[str, str] = field(default_factory=dict)


@lru_cache(maxsize=8192)
def _row(line: str) -> tuple[str, int | None, str, str] | None:
    match = _IB_PORTS_LINE.fullmatch(line)
    if match is None:
        return None
    name, port, file, value = match.groups()
    return name, None if port is None else int(port), file, value if file.startswith("net/") else value.strip()


def read_sysfs(text: str) -> dict[str, Device]:
    """Each device by its name; Absent if there is none with a port."""
    devices: dict[str, Device] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        row = _row(line)
        if row is None:
            raise ParseError(f"ib-sysfs: line {number}: {line[:200]!r}")
        name, port, file, value = row
        if (device := devices.get(name)) is None:
            device = devices[name] = Device()
        if port is not None:
            if (files := device.ports.get(port)) is None:
                files = device.ports[port] = {}
            files[file] = value
        elif file.startswith("net/"):
            # NIC ports count from 0, RDMA ports from 1
            device.netdevs[str(int(value) + 1) if value.isdigit() else ""] = file.removeprefix("net/")
        else:
            device.files[file] = value
    if not devices:
        raise AbsentError(_NO_DEVICE)
    # where each device sits stands last
    if short := [name for name, device in devices.items() if not device.ports or "pci" not in device.files]:
        raise ParseError(f"ib-sysfs: the output is cut: it does not tell all of {', '.join(short)}")
    return devices


def _port(name: str, port: int, device: Device) -> IbPort:
    files = device.ports[port]
    rate = _RATE.search(files.get("rate", ""))
    numa = whole(device.files.get("device/numa_node"))
    return IbPort(
        device=name,
        port=port,
        state=_word(files.get("state")),
        physical_state=_word(files.get("phys_state")),
        rate_gbit_s=float(rate[1]) if rate else None,
        width=int(rate[2]) if rate and rate[2] else None,
        link_layer=files.get("link_layer"),
        lid=_lid(files.get("lid")),
        sm_lid=_lid(files.get("sm_lid")),
        guid=device.files.get("node_guid"),
        firmware=device.files.get("fw_ver"),
        board_id=device.files.get("board_id"),
        type=device.files.get("hca_type"),
        netdev=device.netdevs.get(str(port)),
        pci_address=device.files.get("pci", "").rpartition("/")[2] or None,
        numa_node=numa if numa is not None and numa >= 0 else None,
        counters={
            counter: number
            for path, value in files.items()
            if (counter := _counter(path)) is not None and (number := whole(value)) is not None
        },
    )


@lru_cache(maxsize=1024)
def _counter(path: str) -> str | None:
    folder, _, name = path.rpartition("/")
    return name if folder in ("counters", "hw_counters") else None


def _word(text: str | None) -> str | None:
    return None if text is None else text.rpartition(":")[2].strip()


def _lid(text: str | None) -> int | None:
    return int(text, 16) if text and re.fullmatch(r"0x[0-9a-fA-F]+", text) else whole(text)


def _read_ib_ports(recording: Recording) -> tuple[IbPort, ...]:
    try:
        devices = sysfs_devices(recording)
        shown = [_port(name, port, device) for name, device in devices.items() for port in device.ports]
    except (UnknownError, ParseError) as error:
        try:
            shown = list(_from_ibstat(recording))
        except (AbsentError, UnknownError, ParseError) as other:
            was_asked = isinstance(error, UnrecordedError) and not isinstance(other, UnrecordedError)
            raise (other if was_asked else error) from None
    ports = {(port.device, port.port): port for port in shown}
    with suppress(AbsentError, UnknownError, ParseError):
        mtus = {
            (device.name, port.port): (port.active_mtu_bytes, port.max_mtu_bytes)
            for device in _whole(recording, "ibv-devinfo", "devices")
            for port in device.ports
        }
        ports |= {
            key: replace(ports[key], mtu_active=now, mtu_max=most) for key, (now, most) in mtus.items() if key in ports
        }
    with suppress(AbsentError, UnknownError, ParseError):
        netdevs = {(link.device, link.port): link.netdev for link in parsed_as(recording, "rdma-link").links}
        named = {key: replace(port, netdev=netdevs.get(key)) for key, port in ports.items() if not port.netdev}
        # of a port that `rdma link` alone has nothing else is known: the first tool's text may be cut
        ports |= {**{key: IbPort(*key) for key in netdevs.keys() - ports.keys()}, **named}
    return tuple(ports[key] for key in sorted(ports, key=lambda key: (natural(key[0]), key[1])))


def sysfs_devices(recording: Recording) -> dict[str, Device]:
    """Return the RDMA devices in sysfs by name; Absent if the kernel has none."""
    return parse(read_sysfs, output(recording, "ib-sysfs", _NO_DEVICE))


def _whole(recording: Recording, key: str, name: str) -> Sequence[Any]:
    """Return the devices that a tool shows; ParseError where its last one lacks a port, or that port what all have."""
    shown = parsed_as(recording, key)
    devices: Sequence[Any] = getattr(shown, name)
    if shown.error is None:  # else the tool says itself why it ended there
        *others, last = [port for device in devices for port in device.ports] or [None]
        untold = [field.name for field in fields(last) if getattr(last, field.name) is None] if last else []
        needed = {"link_layer"}.union(name for name in untold if others and all(getattr(o, name) for o in others))
        number = _PORT_COUNT.findall(recording.entries[key].stdout)[-1:]
        if len(devices[-1].ports) < int(*number) or not devices[-1].ports or needed & {*untold} - {*last.unavailable}:
            raise ParseError(f"{key}: the output is cut: {devices[-1].name} lacks a part of what each device has")
    return devices


def _from_ibstat(recording: Recording) -> Iterable[IbPort]:
    return (
        IbPort(
            device=adapter.name,
            port=port.port,
            # sysfs' word: INITIALIZING is INIT
            state=port.state and port.state.upper().removesuffix("IALIZING"),
            physical_state=port.physical_state,
            rate_gbit_s=port.rate_gbit_s,
            link_layer=port.link_layer,
            lid=port.lid,
            guid=port.guid,
            firmware=adapter.firmware,
            type=adapter.type,
        )
        for adapter in _whole(recording, "ibstat", "adapters")
        for port in adapter.ports
    )


def _ib_ports_words(ports: tuple[IbPort, ...]) -> str:
    shown = (f"{port.state or '?'} {port.rate_gbit_s or 0:g} Gbit/s {port.link_layer or ''}" for port in ports)
    return tally(Counter(text.strip() for text in shown)) or "none"


IB_PORTS_FACT = Fact(
    "ib_ports",
    IB_PORTS_COMMANDS,
    _read_ib_ports,
    _ib_ports_words,
    row=210,
    about="RDMA ports: state, rate, link layer, GUID, firmware, interface, PCI address, MTU, counters.",
)


_MAPPED = re.compile(r"(?:0000:){5}ffff:([0-9a-f]{4}):([0-9a-f]{4})")


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


def _read_gids(recording: Recording) -> tuple[Gid, ...]:
    devices = sysfs_devices(recording)
    return tuple(
        _gid(name, port, index, files)
        for name in sorted(devices, key=natural)
        for port, files in sorted(devices[name].ports.items())
        for index in sorted(int(path[5:]) for path in files if path.startswith("gids/") and path[5:].isdigit())
    )


def _gid(name: str, port: int, index: int, files: dict[str, str]) -> Gid:
    gid, netdev = files[f"gids/{index}"], files.get(f"gid_attrs/ndevs/{index}")
    kind, mapped = files.get(f"gid_attrs/types/{index}", ""), _MAPPED.fullmatch(gid)
    version = None if files.get("link_layer") == "InfiniBand" else "v2" if kind == "RoCE v2" else "v1" if kind else None
    ipv4 = ".".join(map(str, bytes.fromhex(mapped[1] + mapped[2]))) if mapped else None
    return Gid(name, port, index, gid, version, netdev, ipv4)


def _gids_words(gids: tuple[Gid, ...]) -> str:
    versions = Counter(gid.version or "InfiniBand" for gid in gids)
    return ", ".join(f"{number} {version}" for version, number in sorted(versions.items())) or "none"


GIDS_FACT = Fact(
    "gids",
    IB_PORTS_COMMANDS,
    _read_gids,
    _gids_words,
    row=220,
    about="The GID tables of RDMA ports: RoCE version, interface and IPv4 address of each entry.",
)


_PKEYS_LINE = re.compile(r"([^/:]+)/ports/(\d+)/pkeys/(\d+):(0x[0-9a-fA-F]{4})")
_FULL = 0x8000


@dataclass(frozen=True, slots=True)
class Pkeys:
    """The partitions (P_Keys) of each InfiniBand port (`mlx5_0/1`), in the order of its table."""

    ports: Mapping[str, tuple[str, ...]]

    def limited(self, port: str) -> bool:
        """Its first key, which programs take that name none, is a limited membership."""
        keys = self.ports[port]
        return bool(keys) and not int(keys[0], 16) & _FULL


def _parse_pkeys(text: str) -> Pkeys:
    rows: dict[str, dict[int, str]] = {}
    for match in matches(_PKEYS_LINE, text, "pkeys"):
        rows.setdefault(f"{match[1]}/{match[2]}", {})[int(match[3])] = match[4].lower()
    return Pkeys({port: tuple(keys[index] for index in sorted(keys)) for port, keys in sorted(rows.items())})


PKEYS_FACT = text_fact(
    "pkeys",
    script("pkeys", hardware=True),
    _parse_pkeys,
    lambda pkeys: listed({key for keys in pkeys.ports.values() for key in keys}),
    absent="the kernel has no RDMA device",
    row=232,
)
