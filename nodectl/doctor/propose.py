"""From hosts as they were found to an inventory: what each is, how it is reached, what it is to be, and why."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodectl.common.counting import counted
from nodectl.common.natural import natural
from nodectl.common.nodeset import fold
from nodectl.doctor.draft import Draft, Group, choices, group_name, shared_variables
from nodectl.errors import UnreachableError
from nodectl.facts.base import Fact, script
from nodectl.facts.catalogue import commands_for, facts_named, read_facts
from nodectl.facts.gpus import Gpus
from nodectl.facts.kernel import Kernel
from nodectl.facts.look import Lab
from nodectl.facts.versions import Versions
from nodectl.lab.files import lab_variables
from nodectl.model.facts import Unread
from nodectl.model.host import Host
from nodectl.model.recording import Command, Recording
from nodectl.profiles.families import family_of
from nodectl.profiles.fit import Seen, fitting_hardware, fitting_stacks, has_switches, ports_of
from nodectl.profiles.gpus import short_form
from nodectl.profiles.host import DEFAULTS
from nodectl.profiles.host_compat import SWITCH_OFF_BUS, HostLook
from nodectl.profiles.matrix import matrix
from nodectl.profiles.nccl import version_key
from nodectl.profiles.resolve import load_stacks, merge

# address, class and device of NVIDIA's devices, without a driver, too
_PCI = script(
    "pci-nvidia",
    """\
cd /sys/bus/pci/devices 2>/dev/null || exit 3
for device in *; do
  read -r vendor <"$device/vendor" && read -r class <"$device/class" && read -r identity <"$device/device" || continue
  [ "$vendor" = 0x10de ] && printf '%s %s %s\\n' "$device" "$class" "$identity"
done 2>/dev/null
exit 0
""",
)
_SUBJECTS = ("gpus", "kernel", "versions", "lab", "ib_ports", "nics", "fabric_manager", "pcie")
# display controllers, and the bridge that an NVSwitch is
_GPU_CLASSES, _SWITCH_CLASS = ("0x0300", "0x0302"), "0x0680"
# as lspci shows them, where a recording answers for the bus
_SHOWN = re.compile(
    r"^\S+ (?:VGA compatible|3D) controller: NVIDIA Corporation (?:Device ([0-9a-f]{4}))?", re.MULTILINE
)
_FABRICS = {"infiniband": "InfiniBand", "roce": "RoCE", "ethernet": "Ethernet"}


@dataclass(frozen=True, slots=True)
class Found:
    """A host as it was found: what it is made of, its system and driver; `torch` is that of nodectl's environment.

    `recorded` is the name of the recording that answers for a lab host's hardware.
    """

    host: Host
    seen: Seen
    look: HostLook
    system: str
    torch: str | None = None
    cuda: str | None = None
    lab: bool = False
    recorded: str = ""

    @property
    def driver(self) -> str | None:
        """The loaded driver's version."""
        return self.look.node.driver.version

    @property
    def fabric(self) -> str:
        """The network in words: `8 x 400 Gbit/s InfiniBand`."""
        ports = (f"{count} x {rate:g} Gbit/s {_FABRICS[kind]}" for count, rate, kind in self.seen.ports or ())
        return ", ".join(ports) or "no InfiniBand or RoCE"


def commands(host: Host) -> tuple[Command, ...]:
    """Return what is asked of a host."""
    return (*commands_for(host, _facts()), _PCI)


def _facts() -> tuple[Fact[Any], ...]:
    return facts_named(*_SUBJECTS)


def found(host: Host, recording: Recording) -> Found:
    """Return the host by its answers; UnreachableError if nobody could tell which GPUs it has."""
    facts = read_facts(recording, _facts())
    lab, versions, gpus = (facts[subject] for subject in ("lab", "versions", "gpus"))
    recorded = lab.recorded if isinstance(lab, Lab) else ""
    devices, bus_switch = _on_bus(recording, lab=isinstance(lab, Lab), recorded=bool(recorded))
    if isinstance(gpus, Unread) and gpus.kind == "unknown" and not devices and (recorded or not isinstance(lab, Lab)):
        raise UnreachableError(f"{host.name}: its GPUs: {gpus.reason}", f"nodectl exec -l {host.name} -- nvidia-smi")
    shown = gpus.devices if isinstance(gpus, Gpus) else ()
    lost = len(gpus.lost) if isinstance(gpus, Gpus) else 0
    seen = Seen(
        max(len(shown) + lost, len(devices)),
        tuple(dict.fromkeys(gpu.name for gpu in shown if gpu.name)),
        tuple(dict.fromkeys(devices)),
        bus_switch or has_switches(facts) or (False if _would_show_switches(devices) else None),
        ports_of(facts),
    )
    installed = versions if isinstance(versions, Versions) else Versions("")
    kernel = facts["kernel"] if isinstance(facts["kernel"], Kernel) else None
    return Found(
        host,
        seen,
        _look(kernel, seen, devices, installed.driver),
        (kernel and kernel.os_name) or "an unknown system",
        installed.torch,
        installed.cuda,
        isinstance(lab, Lab),
        recorded,
    )


def _would_show_switches(devices: Sequence[str]) -> bool:
    # from Blackwell on they are not on the bus
    rows = [matrix().device(device) for device in devices]
    return bool(rows) and all(row and version_key(row.compute_capability) < SWITCH_OFF_BUS for row in rows)


def _on_bus(recording: Recording, *, lab: bool, recorded: bool) -> tuple[list[str], bool]:
    """PCI ids of the NVIDIA GPUs on the bus (empty where lspci does not show one), and whether there is an NVSwitch."""
    if recorded:
        entry = recording.entries.get("lspci-acs")
        return [
            f"0x{identity}" if identity else "" for identity in _SHOWN.findall(entry.stdout if entry else "")
        ], False
    # a lab host sees the machine's devices, and may use none
    entry = None if lab else recording.entries.get(_PCI.key)
    rows = [line.split() for line in (entry.stdout if entry else "").splitlines()]
    classes = [(row[1][:6], row[2]) for row in rows if len(row) == 3]
    devices = [identity for kind, identity in classes if kind in _GPU_CLASSES]
    return devices, any(kind == _SWITCH_CLASS for kind, _ in classes)


def _look(kernel: Kernel | None, seen: Seen, devices: Sequence[str], driver: str | None) -> HostLook:
    """Return it as node_look would see it; whose packages the driver is, only that can tell."""
    os_id, version = (kernel.os_id or "", kernel.os_version or "") if kernel else ("", "")
    major = version.partition(".")[0] if family_of(os_id).family == "rhel" else version
    return HostLook.create(
        {
            "os": {"id": os_id, "version": version, "key": "-".join(filter(None, (os_id, major)))},
            "architecture": kernel.architecture if kernel else "",
            "gpus": [{"device": device} for device in devices] or [{}] * seen.gpus,
            "nvswitch": bool(seen.nvswitch),
            "driver": {"version": driver},
        }
    )


# how a host is reached, taken over from one inventory into another: no password, and no default
_CONNECTION = (
    "ansible_host",
    "ansible_ssh_host",
    "ansible_port",
    "ansible_ssh_port",
    "ansible_user",
    "ansible_ssh_user",
    "ansible_connection",
    "ansible_ssh_private_key_file",
    "ansible_ssh_args",
    "ansible_ssh_common_args",
    "ansible_ssh_extra_args",
    "ansible_python_interpreter",
    "ansible_become_method",
    "ansible_become_exe",
    # not how it is reached, but what only the operator knows of it and of the way there
    "nodectl_link_rate",
)
_PASSWORDS = (
    "ansible_password",
    "ansible_ssh_pass",
    "ansible_ssh_password",
    "ansible_become_password",
    "ansible_become_pass",
)


def connection_variables(
    host: Host, everywhere: Mapping[str, object], vaulted: Collection[str] = ()
) -> dict[str, object]:
    """Return the rendered variables by which the host is reached, without the `vaulted` and those of `everywhere`."""
    return {
        name: host.variables[name]
        for name in _CONNECTION
        if name not in vaulted
        if host.variables.get(name) not in (None, "") and host.variables[name] != everywhere.get(name)
    }


def secrets(host: Host, vaulted: Collection[str] = ()) -> tuple[str, ...]:
    """Names of the variables that hold a password or are `vaulted`, and are left where they are."""
    held = (name for name in _PASSWORDS if host.variables.get(name) not in (None, ""))
    return tuple(dict.fromkeys([*held, *(name for name in _CONNECTION if name in vaulted)]))


_TUNING = "stock"


@dataclass(frozen=True, slots=True)
class Proposal:
    """Hold what a host is to be, and why; `notes` are what the operator has to look at."""

    hardware: str
    stack: str
    driver: str
    reasons: Mapping[str, str]
    notes: tuple[str, ...] = ()


def draft_of(
    hosts: Sequence[Found],
    connections: Mapping[str, Mapping[str, object]],
    extra_dirs: Sequence[Path] = (),
) -> tuple[Draft, tuple[str, ...]]:
    """Return the inventory of these hosts, reached by `connections` (by host), and what is to be told about it."""
    members: dict[tuple[str, str, str], list[tuple[Found, Proposal]]] = defaultdict(list)
    for host in sorted(hosts, key=lambda one: natural(one.host.name)):
        proposal = propose(host, extra_dirs)
        members[proposal.hardware, proposal.stack, proposal.driver].append((host, proposal))
    host_variables = {
        machine.host.name: {**connections.get(machine.host.name, {}), **(lab_variables() if machine.lab else {})}
        for machine in hosts
    }
    shared = shared_variables(list(host_variables.values())) if len(host_variables) > 1 else {}
    groups: list[Group] = []
    notes: list[str] = []
    for (hardware, _, _), alike in members.items():
        names, proposal = [machine.host.name for machine, _ in alike], alike[0][1]
        several = sum(other == hardware for other, _, _ in members) > 1
        base = f"{proposal.hardware}-{proposal.stack}" if several else proposal.hardware
        taken = [*host_variables, *(group.name for group in groups)]
        profiles = {"hardware": proposal.hardware, "stack": proposal.stack, "tuning": _TUNING}
        groups.append(
            Group(
                group_name(base, taken),
                f"The profiles of {fold(names)}, proposed by `nodectl init --from`. It found there:\n{_seen(alike)}.",
                {name: {k: v for k, v in host_variables[name].items() if k not in shared} for name in names},
                choices(profiles, proposal.reasons, proposal.driver),
            )
        )
        for note in dict.fromkeys(note for _, one in alike for note in one.notes):
            notes.append(f"{fold(machine.host.name for machine, one in alike if note in one.notes)}: {note}")
    about = "Written by `nodectl init --from`: the hosts, and how they are reached. It never writes a password."
    return Draft(about, tuple(groups), shared), tuple(notes)


def _seen(alike: Sequence[tuple[Found, Proposal]]) -> str:
    lines: dict[str, list[str]] = defaultdict(list)
    for machine, _ in alike:
        lines[described(machine)].append(machine.host.name)
    return "\n".join(line if len(lines) == 1 else f"{fold(names)}: {line}" for line, names in lines.items())


def described(machine: Found) -> str:
    """Return what was found, on one line."""
    gpus = f"{machine.seen.gpus} x {machine.seen.named}" if machine.seen.gpus else "no NVIDIA GPU"
    driver = f"driver {machine.driver}" if machine.driver else "no NVIDIA driver"
    recorded = f" (hardware recorded: {machine.recorded})" if machine.recorded else ""
    parts = [gpus, *([driver] if machine.seen.gpus else []), machine.fabric, machine.system]
    return f"{', '.join(parts)}{recorded}"


def propose(machine: Found, extra_dirs: Sequence[Path] = ()) -> Proposal:
    """Return the profiles that fit the host; `auto` hardware, and why, if none does."""
    notes: list[str] = []
    names = fitting_hardware(machine.seen, extra_dirs)
    hardware = names[0] if names else DEFAULTS["hardware"]
    why_hardware = ""
    if len(names) > 1:
        why_hardware = f"Nothing that was seen tells it apart from {', '.join(names[1:])}: choose."
        notes.append(f"nodectl_hardware is {hardware}; {' or '.join(names[1:])} would fit as well")
    if not names:
        what = f"{machine.seen.gpus} x {machine.seen.named}" if machine.seen.gpus else "this"
        pinned = short_form(machine.seen.models * machine.seen.gpus) if len(machine.seen.models) == 1 else ""
        pin = f"nodectl_hardware: {pinned}" if pinned else "profiles/hardware/NAME.yml beside the inventory"
        why_hardware = (
            f"auto takes what is there ({what}) and holds each GPU against what its kind reaches.\n"
            f"That all of them must be there says: {pin}."
        )
        notes.append(f"nodectl_hardware is {hardware}: {what}; so that a lost GPU is a failure: {pin}")
    stack, why_stack = _stack(machine, hardware, extra_dirs, notes)
    driver, why_driver = _driver(machine, stack, extra_dirs)
    reasons = {"hardware": why_hardware, "stack": why_stack, "driver": why_driver}
    return Proposal(hardware, stack, driver, reasons, tuple(notes))


def _stack(machine: Found, hardware: str, extra_dirs: Sequence[Path], notes: list[str]) -> tuple[str, str]:
    profile = merge({"hardware": hardware, "tuning": _TUNING}, extra_dirs=extra_dirs).hardware
    fitting = fitting_stacks(profile, machine.look, extra_dirs, installed=(machine.torch, machine.cuda))
    if not fitting:
        notes.append(f"no stack fits {machine.system} with these GPUs and this driver: nodectl_stack is none")
        return "none", f"No stack fits {machine.system} with these GPUs and this driver; none installs no PyTorch."
    best, others = fitting[0], fitting[1:4]
    stack = load_stacks(extra_dirs)[best]
    if not machine.seen.gpus:
        why = f"{best} is {stack.description}: the hosts have no NVIDIA GPU."
    elif machine.torch and stack.torch and machine.torch.partition("+")[0] == stack.torch.partition("+")[0]:
        why = f"{best} is {stack.description}. Its PyTorch {machine.torch} is installed there already."
    else:
        least = f" with driver {machine.driver}" if machine.driver else ""
        why = (
            f"{best} is {stack.description}: the newest that fits {machine.system}{least},"
            " and that nothing is to be said against."
        )
    return best, f"{why}\nIt could also be {', '.join(others)}." if others else why


def _driver(machine: Found, stack: str, extra_dirs: Sequence[Path]) -> tuple[str, str]:
    wanted = load_stacks(extra_dirs)[stack].driver
    if not machine.seen.gpus or wanted is None:
        return "", ""
    if machine.driver:
        return "keep", (
            f"keep: {machine.driver} is loaded there, and the stack works from {wanted.min} on. With manage nodectl"
            f" installs branch {wanted.branch}, where the driver there is a package that it may replace."
        )
    return "manage", (
        f"manage: no driver is loaded there; nodectl installs branch {wanted.branch}. Where you look after the driver,"
        " write keep."
    )


def summary(draft: Draft) -> str:
    """Return a line a group: its hosts and what they are to be."""
    lines = []
    for group in draft.groups:
        values = [str(group.value(f"nodectl_{name}")) for name in ("hardware", "stack", "tuning")]
        lines.append(
            f"{fold(group.hosts)}: {', '.join(values)} ({counted(len(group.hosts), 'host')}, group {group.name})"
        )
    return "\n".join(lines)
