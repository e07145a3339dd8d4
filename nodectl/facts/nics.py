"""The host's network interfaces: the kernel's own words, and from sysfs what is certainly of the same interface."""

from dataclasses import replace

from nodectl.facts.base import Fact, UnknownError, output, rows, whole
from nodectl.model.network import Nic
from nodectl.model.recording import Command, Recording
from nodectl.parsers.linux.ip_address import Interface, parse_ip_address

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
    driver=$(readlink "$name/device/driver") && driver=${driver##*/}
    pci=$(readlink "$name/device") && pci=${pci##*/}
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
    Command("nics-sysfs", ("sh", "-c", _LIST)),
)


def _read(recording: Recording) -> dict[str, Nic]:
    interfaces = parse_ip_address(output(recording, "ip-address"))
    try:
        sysfs = {cells[0]: named for cells, named in rows(output(recording, "nics-sysfs")) if cells}
    except UnknownError:
        sysfs = {}
    return {each.nic.name: _completed(each, sysfs.get(each.nic.name)) for each in interfaces if each.nic.name != "lo"}


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


FACT = Fact("nics", lambda venv: _COMMANDS, _read)
