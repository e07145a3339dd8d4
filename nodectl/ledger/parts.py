"""The parts of a host, by what they say of themselves, and those that a finding is about."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from nodectl.common.counting import counted
from nodectl.common.few import few
from nodectl.facts.base import Fact
from nodectl.facts.catalogue import facts_named
from nodectl.facts.gpus import Gpus
from nodectl.facts.host_files import HostFiles
from nodectl.facts.look import Lab
from nodectl.facts.rdma import ports_in
from nodectl.model.acceptance import Part, PartKind
from nodectl.model.finding import Finding

# what parts_of reads; a host is asked for their commands in one round trip
SUBJECTS = ("gpus", "ib_ports", "host_serial", "host_files", "firmware", "lab")
_DIGITS = re.compile(r"[0-9a-f]{16}")
# these make their GUID of the interface's MAC address: no part of their own
_SOFT = ("rxe", "siw")
_MACHINE_ID = re.compile(r"[0-9a-f]{32}")
_AT = " at "
_NAME = "name:"


def facts_needed() -> tuple[Fact[Any], ...]:
    """Return the facts that `parts_of` reads; a caller may ask for them together with its own."""
    return facts_named(*SUBJECTS)


def parts_of(host: str, facts: Mapping[str, object]) -> tuple[Part, ...]:
    """Return the host itself, its GPUs and its RDMA adapters, each once; what tells no identity is left out.

    A lab host that is not dressed in a recording shows the machine's hardware, which is not its own: only itself then.
    """
    lab = facts.get("lab")
    borrowed = isinstance(lab, Lab) and "sys" in lab.shared and not lab.recorded
    parts = [_host(host, facts, borrowed=borrowed)]
    if not borrowed:
        parts += [*_gpus(host, facts), *_nics(host, facts)]
    return tuple({(part.kind, part.id): part for part in reversed(parts) if part is not None}.values())[::-1]


def _host(host: str, facts: Mapping[str, object], *, borrowed: bool) -> Part | None:
    serial, files = facts.get("host_serial"), facts.get("host_files")
    number = serial if isinstance(serial, str) and not borrowed else ""
    machine_id = files.machine_id if isinstance(files, HostFiles) else None
    board = {} if borrowed else getattr(facts.get("firmware"), "board", {})
    model = " ".join(board[name] for name in ("sys_vendor", "product_name") if board.get(name))
    identity = number or machine_id
    return Part(PartKind.HOST, identity, host, model, "", number) if identity else None


def _gpus(host: str, facts: Mapping[str, object]) -> Iterator[Part]:
    gpus = facts.get("gpus")
    for gpu in gpus.devices if isinstance(gpus, Gpus) else ():
        if gpu.uuid and gpu.uuid.strip("GPU0-"):
            serial = gpu.serial if gpu.serial and gpu.serial.strip("0") else ""
            yield Part(PartKind.GPU, gpu.uuid, host, gpu.name or "", _place(gpu.label, gpu.bus_id), serial)


def _nics(host: str, facts: Mapping[str, object]) -> Iterator[Part]:
    """One for each RDMA device; Ethernet NICs without RDMA tell no identity that they could not be given anew."""
    netdevs: dict[str, list[str]] = {}
    for port in ports_in(facts):
        netdevs.setdefault(port.device, []).extend([port.netdev] if port.netdev else [])
    for port in ports_in(facts):
        guid = _guid(port.guid or "")
        if guid and not port.device.startswith(_SOFT):
            names = ", ".join([port.device, *dict.fromkeys(netdevs[port.device])])
            model = " ".join(word for word in (port.type, port.board_id) if word)
            yield Part(PartKind.NIC, guid, host, model, _place(names, port.pci_address))


def _guid(text: str) -> str:
    """Return `b83f:d203:1a48:ff14`, however a tool writes it; "" for zeros, and for what is no GUID."""
    digits = text.lower().removeprefix("0x").replace(":", "")
    is_guid = _DIGITS.fullmatch(digits) and digits.strip("0")
    return ":".join(digits[at : at + 4] for at in range(0, 16, 4)) if is_guid else ""


def _place(names: str, address: str | None) -> str:
    """Return `GPU 3 at 0000:1b:00.0`, `mlx5_0, ibp24s0 at 0000:18:00.0`; the names alone where the bus is not told."""
    return f"{names}{_AT}{address.lower()}" if address and address not in names else names


def is_machine_id(identity: str) -> bool:
    """Return whether it is a machine-id, which a copy of the image has too; a serial number has no twin."""
    return _MACHINE_ID.fullmatch(identity) is not None


def by_name(host: str) -> Part:
    """Return the part that stands for a host without an identity of its own: never one of another name."""
    return Part(PartKind.HOST, f"{_NAME}{host}", host)


def identity_kind(part: Part) -> str:
    """Return `name`, `machine-id` or `serial number` for a host (none replaces another), else the part's kind."""
    if part.kind is not PartKind.HOST:
        return str(part.kind)
    if part.id.startswith(_NAME):
        return "name"
    return "machine-id" if is_machine_id(part.id) else "serial number"


def told_apart(hosts: Mapping[str, Sequence[Part]]) -> tuple[dict[str, tuple[Part, ...]], tuple[str, ...]]:
    """Each host's parts without those that two of them claim at one time, and a line for each such identity.

    One part is in one place: the two are a cloned image's, or the inventory names one machine twice.
    """
    claims = Counter((part.kind, part.id) for parts in hosts.values() for part in parts)
    twice = {key for key, number in claims.items() if number > 1}
    lines = []
    for kind, identity in sorted(twice):
        names = [host for host, parts in hosts.items() if (kind, identity) in {(part.kind, part.id) for part in parts}]
        what = {PartKind.GPU: "GPU UUID", PartKind.NIC: "NIC GUID"}.get(kind) or identity_kind(Part(kind, identity, ""))
        why = "a cloned image, or one machine by two names"
        lines.append(f"{few(names)} have the same {what} {identity}: {why}; the ledger keeps it for none of them")
    kept = {host: tuple(part for part in parts if (part.kind, part.id) not in twice) for host, parts in hosts.items()}
    return kept, tuple(lines)


# how findings name a GPU: `GPU 3`, `GPU 3 (0000:4e:00.0)`, `GPU 0000:4e:00.0`; the bus alone, as PCIe links and Xids do
_GPU = re.compile(r"\bGPU (?:([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?)|(\d{1,4})(?![\d:.]))", re.IGNORECASE)
_BUS = re.compile(r"(?<![0-9a-f:])(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?(?![0-9a-f:])", re.IGNORECASE)
_UUID = re.compile(r"\bGPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)
_WORD = re.compile(r"[A-Za-z][\w.-]*")
_AGAINST = " against "


def concerned(finding: Finding, host: str, parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return those of the host's parts that the finding is about: GPUs and NICs that it names, else the host itself.

    The evidence counts where it has a UUID; what a finding on several hosts says of another one does not.
    """
    subject = _own_words(finding.subject, host)
    uuids = {uuid.lower() for uuid in _UUID.findall(f"{subject} {finding.evidence}")}
    named = [part for part in parts if part.kind is not PartKind.HOST and _names(part, subject, uuids)]
    return tuple(named) or tuple(part for part in parts if part.kind is PartKind.HOST)


def _own_words(subject: str, host: str) -> str:
    """Return a subject's words about the host: `GPU 0` of `gpu01 (GPU 0) against gpu02 (GPU 1)`, else all of it."""
    camps = [camp.strip() for camp in subject.split(_AGAINST)]
    if len(camps) < 2:
        return subject
    parts = [match[1] for camp in camps for match in re.finditer(rf"(?:^|, ){re.escape(host)} \(([^)]*)\)", camp)]
    return ", ".join(parts)


def _names(part: Part, subject: str, uuids: set[str]) -> bool:
    names, _, address = part.place.partition(_AT)
    if part.id.lower() in uuids:
        return True
    bus = _bus(address)
    if part.kind is PartKind.GPU:
        indexes = {f"GPU {match[2]}" for match in _GPU.finditer(subject) if match[2]}
        addresses = [match[1] for match in _GPU.finditer(subject) if match[1]] + _BUS.findall(subject)
        buses = set(map(_bus, addresses))
        return names in indexes or bool(bus and bus in buses)
    devices = {word.rstrip(".") for word in _WORD.findall(subject)}
    # two ports of an adapter are two functions, each with a GUID: a NIC is named by all of its address
    functions = {_bus(address, function=True) for address in _BUS.findall(subject) if "." in address}
    return bool(devices & set(names.split(", "))) or _bus(address, function=True) in functions


def _bus(address: str, *, function: bool = False) -> str:
    """Return `00000000:0F:00.0` as `0f:00`, or with its domain where that is not 0; its function where asked for."""
    device, _, number = address.lower().partition(".")
    head, _, slot = device.rpartition(":")
    domain, _, bus = head.rpartition(":")
    shown = f"{domain.lstrip('0')}:{bus}:{slot}".lstrip(":") if bus else ""
    return f"{shown}.{number}" if function and shown else shown


def named(parts: Iterable[Part]) -> str:
    """Return `1 host, 8 GPUs, 10 NICs`."""
    kinds = Counter(part.kind for part in parts)
    nouns = {PartKind.HOST: "host", PartKind.GPU: "GPU", PartKind.NIC: "NIC"}
    return ", ".join(counted(kinds[kind], word) for kind, word in nouns.items() if kinds[kind])
