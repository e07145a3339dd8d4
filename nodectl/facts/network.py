"""The network: interfaces with state, rate and counters, their rings and interrupts, flow control, listening ports."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nodectl.common import bounded_json
from nodectl.errors import ParseError
from nodectl.facts.base import Fact, UnknownError, matches, output, rows, script, text_fact, whole
from nodectl.model.recording import Command, Recording

_NICS_COMMANDS = (
    # twice -s: the counters of carrier and checksums too
    Command("ip-address", ("ip", "-json", "-s", "-s", "-d", "address", "show")),
    script("nics-sysfs"),
)


@dataclass(frozen=True, slots=True)
class Nic:
    """One network interface; `addresses` are `address/prefix`; speed and driver None if the kernel names none.

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
    firmware: str | None = None
    pci_address: str | None = None
    numa_node: int | None = None
    mtu_max: int | None = None
    bond_mode: str | None = None
    counters: Mapping[str, int] = field(default_factory=dict)


def nics_in(facts: Mapping[str, object]) -> dict[str, Nic]:
    """Return a host's network interfaces among its facts, by name; empty if they could not be read."""
    value = facts.get("nics")
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True, slots=True)
class Interface:
    """An interface and its index in its own network namespace."""

    index: int
    nic: Nic


def parse_ip_address(text: str) -> tuple[Interface, ...]:
    """`ip -json [-s -s] [-d] address show`: all interfaces, the loopback too; ParseError for what is no such list."""
    try:
        rows = bounded_json.loads(text)
    except ValueError as error:
        raise ParseError(f"ip: {error}") from error
    if not isinstance(rows, list):
        raise ParseError(f"ip: {text[:80]!r} is no list")
    return tuple(_interface(row) for row in rows if row)  # ip prints {} for what a filter left out


def _interface(row: Any) -> Interface:
    try:
        addresses = tuple(f"{info['local']}/{info['prefixlen']}" for info in row["addr_info"] if "local" in info)
        # "eth0@if7" is how ip names the near end of a veth pair
        name = row["ifname"].partition("@")[0]
        link = row.get("linkinfo") or {}
        nic = Nic(
            name,
            row["operstate"].lower(),
            row["mtu"],
            row.get("address"),
            addresses,
            kind=link.get("info_kind"),
            carrier="LOWER_UP" in row["flags"] if "flags" in row else None,
            master=row.get("master"),
            mtu_max=row.get("max_mtu") or None,
            bond_mode=(link.get("info_data") or {}).get("mode") if link.get("info_kind") == "bond" else None,
            counters={
                f"{way}_{name}": value
                for way in ("rx", "tx")
                for name, value in (row.get("stats64") or row.get("stats") or {}).get(way, {}).items()
                if isinstance(value, int)
            },
        )
        return Interface(row["ifindex"], nic)
    except (KeyError, TypeError, AttributeError) as error:
        raise ParseError(f"ip: interface {str(row)[:200]!r}: {error!r}") from error


def _read_nics(recording: Recording) -> dict[str, Nic]:
    interfaces = parse_ip_address(output(recording, "ip-address"))
    try:
        sysfs = {cells[0]: named for cells, named in rows(output(recording, "nics-sysfs")) if cells}
    except UnknownError:
        sysfs = {}
    return {link.nic.name: _completed(link, sysfs.get(link.nic.name)) for link in interfaces if link.nic.name != "lo"}


def _completed(interface: Interface, sysfs: dict[str, str] | None) -> Nic:
    # in a container /sys may be the machine's: a same-named interface there is another one
    if sysfs is None or (sysfs.get("index"), sysfs.get("mac")) != (str(interface.index), interface.nic.mac):
        return interface.nic
    speed_mbit, numa = whole(sysfs.get("speed")), whole(sysfs.get("numa"))
    return replace(
        interface.nic,
        # a link that is down says -1, and so do devices without a speed
        speed_mbit=speed_mbit if speed_mbit and speed_mbit > 0 else None,
        driver=sysfs.get("driver"),
        firmware=sysfs.get("firmware"),
        pci_address=sysfs.get("pci"),
        numa_node=numa if numa is not None and numa >= 0 else None,
    )


def _nic_words(nic: Nic) -> str:
    extra = [f"{nic.speed_mbit} Mbit/s" if nic.speed_mbit else "", nic.driver or nic.kind or ""]
    return " ".join([nic.name, nic.state, f"mtu {nic.mtu}", *filter(None, extra)])


NICS_FACT = Fact(
    "nics",
    _NICS_COMMANDS,
    _read_nics,
    lambda nics: "; ".join(map(_nic_words, nics.values())) or "none but the loopback",
    row=200,
    about="The host's network interfaces: state, MTU, addresses, speed, driver, firmware, queues, counters.",
)


_RINGS = {"RX": "rx", "RX Mini": "rx-mini", "RX Jumbo": "rx-jumbo", "TX": "tx"}
_BOOT = "[ -d /run/systemd/system ] || exit 3; systemctl is-active irqbalance; grep '' /etc/nodectl/nic.json; exit 0"


@dataclass(frozen=True, slots=True)
class NicQueues:
    """Ring sizes by ethtool's names, now and the device's maximum, None if it has none; CPUs by interrupt.

    `local_cpus` are those of its NUMA node, empty if it has none; lists of CPUs as the kernel writes them: 0-7,64.
    """

    name: str
    local_cpus: str
    rings: Mapping[str, int]
    rings_max: Mapping[str, int]
    interrupts: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NicSetup:
    """Ring sizes and interrupts of the interfaces that are devices on the PCI bus, and what is set again at boot.

    `balanced`: irqbalance moves interrupts; `boot` are the settings that a boot applies, None without any. Without
    `systemd` nothing can be set again at boot.
    """

    queues: Mapping[str, NicQueues]
    systemd: bool
    balanced: bool
    boot: Mapping[str, Any] | None


def _read_nic_setup(recording: Recording) -> NicSetup:
    queues = {}
    for part in re.split(r"^nic\t", output(recording, "nic-queues"), flags=re.MULTILINE)[1:]:
        head, _, rest = part.partition("\n")
        name, numa, cpus = head.split("\t")
        node = whole(numa)
        irqs = dict(re.findall(r"^irq\t(\d+)\t(\S+)$", rest, re.MULTILINE))
        most, _, now = rest.partition("Current hardware settings:")
        local = cpus if node is not None and node >= 0 else ""
        queues[name] = NicQueues(name, local, _sizes(now), _sizes(most), irqs)
    systemd = recording.entries["nic-boot"].exit_status != 3
    state, _, text = output(recording, "nic-boot").partition("\n") if systemd else ("", "", "")
    try:
        boot = bounded_json.loads(text) if text.strip() else None
    except ValueError as error:
        raise ParseError(f"nic.json: {error}") from error
    return NicSetup(queues, systemd, state == "active", boot)


def _sizes(text: str) -> dict[str, int]:
    pairs = re.findall(r"^(\w[\w ]*):\s+(\d+)$", text, re.MULTILINE)
    return {_RINGS[name]: int(size) for name, size in pairs if name in _RINGS and int(size)}


NIC_SETUP_FACT = Fact(
    "nic_setup",
    (script("nic-queues", hardware=True), script("nic-boot", _BOOT, waits=True)),
    _read_nic_setup,
    lambda setup: "; ".join(f"{nic.name}: {len(nic.interrupts)} interrupts" for nic in setup.queues.values()) or "none",
    row=201,
    occasion="live",
)


_FLOW_CONTROL_LINE = re.compile(r"(\S+)\t(pfc|roce_np|roce_rp)\t(.*)")
_ON = re.compile(r"\b([0-7]):on\b")


@dataclass(frozen=True, slots=True)
class InterfaceFlow:
    """Priorities with PFC and with ECN, as notified (`notifies`) and slowing (`reacts`); None if not told."""

    pfc: tuple[int, ...] | None = None
    notifies: tuple[int, ...] | None = None
    reacts: tuple[int, ...] | None = None

    def __str__(self) -> str:
        named = (("PFC", self.pfc), ("ECN notified", self.notifies), ("ECN reacting", self.reacts))
        return ", ".join(
            f"{name} {','.join(map(str, values)) or 'off'}" for name, values in named if values is not None
        )


@dataclass(frozen=True, slots=True)
class FlowControl:
    """Settings that keep RoCE from losing packets, by interface: pause frames (PFC), congestion marks (ECN)."""

    interfaces: Mapping[str, InterfaceFlow]


def _parse_flow_control(text: str) -> FlowControl:
    rows: dict[str, dict[str, tuple[int, ...]]] = {}
    for match in matches(_FLOW_CONTROL_LINE, text, "flow-control"):
        name, kind, value = match.groups()
        if kind == "pfc":
            on = tuple(int(number) for number in _ON.findall(value))
        else:
            on = tuple(number for number, bit in enumerate(value.strip()) if bit == "1")
        rows.setdefault(name, {})[kind] = on
    kinds = ("pfc", "roce_np", "roce_rp")
    return FlowControl({name: InterfaceFlow(*map(row.get, kinds)) for name, row in sorted(rows.items())})


FLOW_CONTROL_FACT = text_fact(
    "flow_control",
    script("flow-control", hardware=True),
    _parse_flow_control,
    lambda flow: "; ".join(f"{name} {each}" for name, each in flow.interfaces.items()) or "no RoCE interface tells",
    absent="no RDMA device has an interface",
    row=233,
)


_LISTENING_LINE = re.compile(r"\s*(?:\S+\s+){3}(?:(?P<address>\S*):)?(?P<port>\d+)\s+\S.*")


@dataclass(frozen=True, slots=True)
class Listening:
    """TCP ports on which something listens, with the addresses taken."""

    ports: Mapping[int, tuple[str, ...]]


def _parse_listening(text: str) -> Listening:
    ports: dict[int, list[str]] = {}
    for match in matches(_LISTENING_LINE, text, "ss"):
        ports.setdefault(int(match["port"]), []).append(match["address"] or "")
    return Listening({port: tuple(sorted(set(ports[port]))) for port in sorted(ports)})


LISTENING_FACT = text_fact(
    "listening",
    Command("listening", ("ss", "-ltnH")),
    _parse_listening,
    lambda listening: f"TCP {', '.join(map(str, listening.ports)) or 'none'}",
    row=880,
)
