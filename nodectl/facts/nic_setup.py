"""Ring sizes and interrupts of the interfaces that are devices on the PCI bus, and what is set again at boot."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodectl.common import bounded_json
from nodectl.errors import ParseError
from nodectl.facts.base import Fact, output, script, whole
from nodectl.model.recording import Recording

_RINGS = {"RX": "rx", "RX Mini": "rx-mini", "RX Jumbo": "rx-jumbo", "TX": "tx"}
# NAME NUMA CPUS a line, then lines of it: irq N CPUS, and `ethtool -g` as it is; last how the settings are kept
_SHOW = """\
cd /sys/class/net || exit
for name in *; do
  cd -P "/sys/class/net/$name/device/subsystem" && bus=$PWD || bus= # readlink would be a process
  cd /sys/class/net || exit
  [ "$bus" = /sys/bus/pci ] || continue
  numa= cpus=
  read -r numa <"$name/device/numa_node"
  read -r cpus <"$name/device/local_cpulist"
  printf 'nic\\t%s\\t%s\\t%s\\n' "$name" "$numa" "$cpus"
  for each in "$name"/device/msi_irqs/*; do
    irq=${each##*/} affinity=
    read -r affinity <"/proc/irq/$irq/smp_affinity_list" || continue
    printf 'irq\\t%s\\t%s\\n' "$irq" "$affinity"
  done
  printf 'qos\\t%s\\n' "$(dcb pfc show dev "$name" && dcb app show dev "$name" | tr '\\n' ' ')" | tr -s ' \\n' ' '
  echo
  ethtool -g "$name"
done 2>/dev/null
"""
_BOOT = "[ -d /run/systemd/system ] || exit 3; systemctl is-active irqbalance; grep '' /etc/nodectl/nic.json; exit 0"


@dataclass(frozen=True, slots=True)
class NicQueues:
    """Ring sizes by ethtool's names, now and the device's maximum, None where it has none; CPUs by interrupt.

    `local_cpus` are those of its NUMA node, empty where it has none; lists of CPUs as the kernel writes them: 0-7,64.
    `qos` is what dcb shows of priority flow control and trust, empty where it shows none.
    """

    name: str
    local_cpus: str
    rings: Mapping[str, int]
    rings_max: Mapping[str, int]
    interrupts: Mapping[str, str]
    qos: str = ""


@dataclass(frozen=True, slots=True)
class NicSetup:
    """The interfaces' queues; whether irqbalance moves interrupts; the settings that a boot applies, None without any.

    `systemd` is false where no systemd runs, so that nothing can be set again at boot.
    """

    queues: Mapping[str, NicQueues]
    systemd: bool
    balanced: bool
    boot: Mapping[str, Any] | None


def _read(recording: Recording) -> NicSetup:
    queues = {}
    for part in re.split(r"^nic\t", output(recording, "nic-queues"), flags=re.MULTILINE)[1:]:
        head, _, rest = part.partition("\n")
        name, numa, cpus = head.split("\t")
        node = whole(numa)
        irqs = dict(re.findall(r"^irq\t(\d+)\t(\S+)$", rest, re.MULTILINE))
        most, _, now = rest.partition("Current hardware settings:")
        qos = re.search(r"^qos\t(.*)$", rest, re.MULTILINE)
        local = cpus if node is not None and node >= 0 else ""
        words = qos[1].strip() if qos else ""
        queues[name] = NicQueues(name, local, _sizes(now), _sizes(most), irqs, words)
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


def _words(setup: NicSetup) -> str:
    return "; ".join(f"{nic.name}: {len(nic.interrupts)} interrupts" for nic in setup.queues.values()) or "none"


FACT = Fact(
    "nic_setup",
    (script("nic-queues", _SHOW, hardware=True), script("nic-boot", _BOOT, waits=True)),
    _read,
    _words,
    row=201,
    occasion="live",
)
