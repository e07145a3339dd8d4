"""The host's network interfaces: addresses from the kernel, speed and driver from sysfs where it is the host's own."""

from dataclasses import dataclass, replace

from nodectl.facts.base import Fact, entry, output
from nodectl.model.facts import Nic
from nodectl.model.recording import Command, Recording
from nodectl.parsers.ip_address import Interface, parse_ip_address

_LIST = """\
cd /sys/class/net || exit
for name in *; do
  read -r index <"$name/ifindex" || continue
  read -r mac <"$name/address" || mac=-
  read -r speed <"$name/speed" || speed=-
  driver=$(readlink "$name/device/driver") || driver=-
  printf '%s %s %s %s %s\\n' "$name" "$index" "${mac:--}" "${speed:--}" "${driver##*/}"
done
"""
_COMMANDS = (
    Command("ip-address", ("ip", "-json", "address", "show")),
    Command("sys-class-net", ("sh", "-c", _LIST)),
)


@dataclass(frozen=True, slots=True)
class _Sysfs:
    index: int
    mac: str
    speed_mbit: int | None
    driver: str | None


def _read(recording: Recording) -> dict[str, Nic]:
    interfaces = parse_ip_address(output(recording, "ip-address"))
    sysfs = _sysfs(entry(recording, "sys-class-net").stdout)
    return {each.nic.name: _completed(each, sysfs.get(each.nic.name)) for each in interfaces if each.nic.name != "lo"}


def _sysfs(text: str) -> dict[str, _Sysfs]:
    rows = (line.split() for line in text.splitlines())
    return {
        row[0]: _Sysfs(int(row[1]), row[2], _speed_mbit(row[3]), None if row[4] == "-" else row[4])
        for row in rows
        if len(row) == 5 and row[1].isdigit()
    }


def _speed_mbit(text: str) -> int | None:
    # a link that is down says -1, and so do devices without a speed
    return int(text) if text.isdigit() and int(text) > 0 else None


def _completed(interface: Interface, sysfs: _Sysfs | None) -> Nic:
    # in a container /sys may be the machine's: a same-named interface there is another one
    if sysfs is None or (sysfs.index, sysfs.mac) != (interface.index, interface.nic.mac):
        return interface.nic
    return replace(interface.nic, speed_mbit=sysfs.speed_mbit, driver=sysfs.driver)


FACT = Fact("nics", lambda venv: _COMMANDS, _read)
