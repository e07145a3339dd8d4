"""The host's network interfaces: state, MTU, addresses, speed, driver, firmware, PCI address, queues, counters."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nodectl.common import bounded_json
from nodectl.errors import ParseError
from nodectl.facts.base import Fact, UnknownError, output, rows, script, whole
from nodectl.model.recording import Command, Recording

# NAME, then name=value between tabs; only a device of its own has a driver, and only that costs processes
_LIST = """\
cd /sys/class/net || exit
for name in *; do
  read -r index <"$name/ifindex" || continue
  mac= speed= duplex= driver= firmware= numa= pci=
  read -r mac <"$name/address"
  read -r speed <"$name/speed"
  read -r duplex <"$name/duplex"
  if [ -e "$name/device/driver" ]; then
    # readlink would be a process
    cd -P "/sys/class/net/$name/device/driver" && driver=${PWD##*/}
    cd -P "/sys/class/net/$name/device" && pci=${PWD##*/}
    cd /sys/class/net || exit
    read -r numa <"$name/device/numa_node"
    while IFS=: read -r key value; do
      [ "$key" != firmware-version ] || firmware=${value# }
    done <<EOF
$(ethtool -i "$name")
EOF
  fi
  set -- "$name"/queues/rx-*; rx=$#
  set -- "$name"/queues/tx-*; tx=$#
  printf '%s\\tindex=%s\\tmac=%s\\tspeed=%s\\tduplex=%s\\tdriver=%s\\tpci=%s\\tnuma=%s\\trx_queues=%s\\ttx_queues=%s' \\
    "$name" "$index" "$mac" "$speed" "$duplex" "$driver" "$pci" "$numa" "$rx" "$tx"
  printf '\\tfirmware=%s\\n' "$firmware"
done 2>/dev/null
"""
_COMMANDS = (
    # twice -s: the counters of carrier and checksums too
    Command("ip-address", ("ip", "-json", "-s", "-s", "-d", "address", "show")),
    script("nics-sysfs", _LIST),
)


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


def nics_in(facts: Mapping[str, object]) -> dict[str, Nic]:
    """A host's network interfaces among its facts, by name; empty where they could not be read."""
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
            counters=_counters(row.get("stats64") or row.get("stats") or {}),
        )
        return Interface(row["ifindex"], nic)
    except (KeyError, TypeError, AttributeError) as error:
        raise ParseError(f"ip: interface {str(row)[:200]!r}: {error!r}") from error


def _counters(stats: Any) -> dict[str, int]:
    """`rx_errors`, `tx_dropped`: both directions in one mapping."""
    return {
        f"{way}_{name}": value
        for way in ("rx", "tx")
        for name, value in stats.get(way, {}).items()
        if isinstance(value, int)
    }


def _read(recording: Recording) -> dict[str, Nic]:
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
    duplex = sysfs.get("duplex")
    return replace(
        interface.nic,
        # a link that is down says -1, and so do devices without a speed
        speed_mbit=speed_mbit if speed_mbit and speed_mbit > 0 else None,
        driver=sysfs.get("driver"),
        duplex=None if duplex == "unknown" else duplex,
        firmware=sysfs.get("firmware"),
        pci_address=sysfs.get("pci"),
        numa_node=numa if numa is not None and numa >= 0 else None,
        rx_queues=whole(sysfs.get("rx_queues")),
        tx_queues=whole(sysfs.get("tx_queues")),
    )


def _words(nics: dict[str, Nic]) -> str:
    return "; ".join(map(_nic_words, nics.values())) or "none but the loopback"


def _nic_words(nic: Nic) -> str:
    extra = [f"{nic.speed_mbit} Mbit/s" if nic.speed_mbit else "", nic.driver or nic.kind or ""]
    return " ".join([nic.name, nic.state, f"mtu {nic.mtu}", *filter(None, extra)])


FACT = Fact("nics", _COMMANDS, _read, _words, row=200)
