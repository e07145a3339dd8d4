"""Compares the hosts of a fleet: if no profile fixes a value, the majority's value is expected of all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nodectl.checks.catalogue import fields
from nodectl.checks.check import LOOK_THERE, Check, Field, Key, Subject, odd_ones
from nodectl.checks.fleet.names import Named, misnamed
from nodectl.checks.network.infiniband import ports_of
from nodectl.checks.network.nics import is_device, is_own, nics_of
from nodectl.common.counting import counted
from nodectl.common.few import few
from nodectl.facts.gpus import Gpus
from nodectl.facts.host_files import HostFiles
from nodectl.facts.kernel import Boot
from nodectl.facts.look import Lab
from nodectl.model.finding import Finding
from nodectl.model.status import Status

_NAMED = 4
ABSENT = "none"
DUPLICATE = Check(
    "fleet_duplicate",
    fires="two hosts have the same; warning: only a boot id or the machine's serial number",
    remedy="give each host its own, or correct the inventory where it names one machine twice",
)
# systemd's own way to a new machine-id, which DHCP, journals and licences use
_NEW_ID = "a cloned image: `rm /etc/machine-id /var/lib/dbus/machine-id; systemd-machine-id-setup` there, then reboot"
_ONE_KERNEL = (
    "name the machine once in the inventory if both are it or its containers; "
    "reboot the one that was restored from the other's memory"
)
_ONE_SERIAL = "if one is a clone, give it a serial number of its own; nodes of one chassis may share the chassis's"
ADDRESS = "address"
MACHINE_ID = "machine-id"
BOOT_ID = "boot id"
SERIAL = "serial number"
MAC = "MAC address"
# a MAC address that many machines share: the BMC's network adapter on USB
_USB = ("cdc_ether", "cdc_ncm", "rndis_host", "usbnet")
_MAC_LENGTH = 17
_LOCAL = ("127.", "169.254.", "fe80:", "::1")
# why two different hosts may share an identity: containers of one machine, a restored image, a common chassis
_WEAK = {
    BOOT_ID: (Status.WARNING, _ONE_KERNEL),
    SERIAL: (Status.WARNING, _ONE_SERIAL),
    MACHINE_ID: (Status.FAILED, _NEW_ID),
}
# a kind of identity, and the identity
Claim = tuple[str, str]
# a host, and the part of it that is compared, empty if it is the host itself
Unit = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Member:
    """A host in the comparison: `group` is its kind of hardware.

    `values` has by field the text of each part (None: could not be told); fields in `looked` that are not in `values`
    are absent on the host. `claims` are identities that no two machines may share; `machine` identifies the machine, so
    that two names of one machine make one finding. `copied`: the host is a copy of a recording, with identities of its
    own but the recording's addresses. `names` are its names for other hosts, and its own addresses.
    """

    host: str
    group: str
    values: Mapping[Key, Mapping[str, str | None]] = field(default_factory=dict)
    looked: frozenset[str] = frozenset()
    claims: Mapping[Claim, str] = field(default_factory=dict)
    machine: str | None = None
    copied: bool = False
    names: Named | None = None

    def holder(self, kind: str) -> object:
        """Return the key of the machine that has an identity of that kind."""
        if self.copied and kind == ADDRESS:
            return frozenset(claim for claim in self.claims if claim[0] == ADDRESS)
        return self.host if kind == BOOT_ID else self.machine or self.host


def values_of(host: Subject) -> tuple[dict[Key, dict[str, str | None]], frozenset[str]]:
    """Return the host's values by field, and the fields that could be looked at."""
    values_by_key: dict[Key, dict[str, str | None]] = {}
    looked = set()
    for name, one_field in fields().items():
        values = one_field.of(host)
        if values is not None:
            looked.add(name)
            values_by_key |= values
    return values_by_key, frozenset(looked)


def claims_of(host: Subject) -> dict[Claim, str]:
    """Return what no other machine may have: (kind, value) → where this one has it."""
    claims: dict[Claim, str] = {}
    lab, boot, serial = host.fact("lab", Lab), host.fact("boot", Boot), host.fact("host_serial", str)
    # lab hosts share one kernel, unless each is dressed in a recording
    if boot and boot.boot_id and (lab is None or lab.recorded):
        claims[BOOT_ID, boot.boot_id] = "/proc/sys/kernel/random/boot_id"
    if serial and not host.borrows("sys"):
        claims[SERIAL, serial] = "/sys/class/dmi/id/product_serial"
    for nic in nics_of(host).values():
        if is_own(nic):
            addresses = [address.partition("/")[0] for address in nic.addresses if not address.startswith(_LOCAL)]
            claims.update({(ADDRESS, address): nic.name for address in addresses})
        mac = nic.mac or ""
        if is_device(nic) and nic.driver not in _USB and len(mac) == _MAC_LENGTH and mac.strip("0:"):
            claims[MAC, mac] = nic.name
    files = host.fact("host_files", HostFiles)
    if files and files.machine_id:
        claims[MACHINE_ID, files.machine_id] = "/etc/machine-id"
    gpus = host.fact("gpus", Gpus)
    for gpu in gpus.devices if gpus else ():
        claims.update({("GPU serial", gpu.serial): gpu.label} if gpu.serial and gpu.serial.strip("0") else {})
        claims.update({("GPU UUID", gpu.uuid): gpu.label} if gpu.uuid else {})
    for port in ports_of(host):
        claims.update({("port GUID", port.guid): port.device} if port.guid and port.guid.strip("0:x") else {})
    return claims


def compare(members: Sequence[Member]) -> Iterator[Finding]:
    """Yield findings for values that differ between hosts of one kind, and for identities that two hosts share."""
    groups: dict[str, list[Member]] = defaultdict(list)
    for member in members:
        groups[member.group].append(member)
    for group in groups.values():
        for key in dict.fromkeys(key for member in group for key in member.values):
            yield from _differing(key, group)
    yield from _twice(members)
    yield from misnamed({member.host: member.names for member in members if member.names})


def _differing(key: Key, group: Sequence[Member]) -> Iterator[Finding]:
    declared = fields()[key[0]]
    given = {(member.host, part): text for member in group for part, text in _values(member, key, declared).items()}
    text_by_unit = {unit: text for unit, text in given.items() if text}
    if not text_by_unit and _tells(key[0], group):  # what nobody could read there, others have of several
        yield from (_unknown(key, unit, "what others tell") for unit, text in given.items() if text is None)
    if not any(text != ABSENT for text in text_by_unit.values()):
        return
    usual, odd = odd_ones(text_by_unit)
    if len(text_by_unit) > 1:
        untold = [unit for unit, text in given.items() if text is None]
        expected = f"{usual}, as others have it" if usual else "what others tell"
        yield from (_unknown(key, unit, expected) for unit in untold)
    if not usual:
        yield from () if declared.majority else _no_culprit(declared, key, text_by_unit)
        return
    noun = declared.parts or "host"
    expected = f"{usual}, as on {len(text_by_unit) - len(odd)} of {counted(len(text_by_unit), noun)}"
    alike: dict[tuple[str, str], list[str]] = defaultdict(list)
    for host, part in text_by_unit:
        if (host, part) in odd:
            alike[host, text_by_unit[host, part]].append(part)
    for (host, text), parts in alike.items():
        whole = sum(member_host == host for member_host, _ in text_by_unit)
        yield _finding(declared, key, host, _named(parts, whole, noun), declared.status, expected, text)


def _tells(check: str, group: Sequence[Member]) -> bool:
    texts = (
        text for member in group for key, parts in member.values.items() if key[0] == check for text in parts.values()
    )
    return any(text and text != ABSENT for text in texts)


def _values(member: Member, key: Key, declared: Field) -> Mapping[str, str | None]:
    values = member.values.get(key)
    if values is not None:
        return values
    return {"": ABSENT} if declared.absence and not declared.parts and key[0] in member.looked else {}


def _named(parts: Sequence[str], whole: int, noun: str) -> str:
    if len(parts) > 1 and len(parts) == whole:
        return f"all {counted(whole, noun)}"
    return few(list(filter(None, parts)))


def _finding(declared: Field, key: Key, host: str, parts: str, status: Status, expected: str, actual: str) -> Finding:
    subject = ": ".join(filter(None, (key[1], parts)))
    return Finding(host, declared.check.id, status, subject, "none", expected, actual, declared.check.remedy)


def _unknown(key: Key, unit: Unit, expected: str) -> Finding:
    subject = ": ".join(filter(None, (key[1], unit[1])))
    return Finding(unit[0], key[0], Status.UNKNOWN, subject, "none", expected, "not read", LOOK_THERE)


def _no_culprit(declared: Field, key: Key, text_by_unit: Mapping[Unit, str]) -> Iterator[Finding]:
    by_host: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for (host, part), text in text_by_unit.items():
        by_host[host][text].append(part)
    shown = {host: _spread(texts) for host, texts in by_host.items()}
    noun = declared.parts or "host"
    for host, actual in shown.items():
        others: dict[str, list[str]] = defaultdict(list)
        for name, other in shown.items():
            if other != actual:
                others[other].append(name)
        alternatives = "".join(f"; {few(names)}: {other}" for other, names in list(others.items())[:_NAMED])
        expected = f"one value on all {noun}s{alternatives}"
        yield _finding(declared, key, host, "", Status.WARNING, expected, actual)


def _spread(texts: Mapping[str, Sequence[str]]) -> str:
    if len(texts) == 1:
        return next(iter(texts))
    return ", ".join(f"{text} ({few(list(parts))})" for text, parts in texts.items())


def _twice(members: Sequence[Member]) -> Iterator[Finding]:
    holders: dict[Claim, list[Member]] = defaultdict(list)
    for member in members:
        for claim in member.claims:
            holders[claim].append(member)
    shared = {
        claim: having for claim, having in holders.items() if len({member.holder(claim[0]) for member in having}) > 1
    }
    if not shared:
        return
    for member in members:
        kinds: dict[str, list[Claim]] = defaultdict(list)
        for claim in member.claims:
            if claim in shared:
                kinds[claim[0]].append(claim)
        for kind, claims in kinds.items():
            yield _double(member, kind, claims, shared)


def _double(member: Member, kind: str, claims: Sequence[Claim], holders: Mapping[Claim, Sequence[Member]]) -> Finding:
    others = dict.fromkeys(other.host for claim in claims for other in holders[claim] if other.host != member.host)
    shared = few([f"{claim[1]} ({member.claims[claim]})" for claim in claims])
    actual = f"{shared}: also that of {few(list(others))}"
    expected = f"no other host's {kind}" if kind == BOOT_ID else f"no other machine's {kind}"
    status, remedy = _WEAK.get(kind, (Status.FAILED, DUPLICATE.remedy))
    return Finding(member.host, DUPLICATE.id, status, kind, "none", expected, actual, remedy)
