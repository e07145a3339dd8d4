"""A fleet against itself: where no profile says what should be, what most hosts have is expected of the others."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from nodectl.checks.catalogue import comparisons, fields
from nodectl.checks.check import LOOK_THERE, Check, Key, Subject
from nodectl.checks.fleet.alike import is_own
from nodectl.checks.fleet.names import Named, misnamed
from nodectl.checks.network.infiniband import ports_of
from nodectl.checks.network.nics import nics_of
from nodectl.common.few import few
from nodectl.facts.gpus import Gpus
from nodectl.facts.host_files import HostFiles
from nodectl.model.finding import Finding
from nodectl.model.status import Status

_FEW = 3  # with fewer hosts a difference has no culprit
_NAMED = 4
DUPLICATE = Check(
    "fleet_duplicate",
    looks_at="addresses, machine-ids, GPU serials and UUIDs, port GUIDs",
    fires="two machines have the same",
    remedy="give each host its own, or correct the inventory where it names one machine twice",
)
# systemd's own way; DHCP, journals and licences go by it
_NEW_ID = "a cloned image: `rm /etc/machine-id /var/lib/dbus/machine-id; systemd-machine-id-setup` there, then reboot"
ADDRESS = "address"
MACHINE_ID = "machine-id"
# a kind of identity, and the identity
Claim = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Member:
    """What one host brings to the comparison: `group` is its kind of hardware.

    `values` has a text, or None where the host could not tell; `claims` are what no two machines may both have;
    `machine` tells machines apart, so that one seen twice is not held against itself. `copied`: copies of a recording
    have other identities, and their addresses all the same. `names` is what it calls the others, and its own addresses.
    """

    host: str
    group: str
    values: Mapping[Key, str | None] = field(default_factory=dict)
    claims: Mapping[Claim, str] = field(default_factory=dict)
    machine: str | None = None
    copied: bool = False
    names: Named | None = None

    def holder(self, kind: str) -> object:
        """Who it is that has a thing of that kind."""
        if self.copied and kind == ADDRESS:
            return frozenset(claim for claim in self.claims if claim[0] == ADDRESS)
        return self.machine or self.host


def values_of(host: Subject) -> dict[Key, str | None]:
    """The host's value of each field, None where it could not tell; fields of which it has nothing are not there."""
    return {key: value for comparison in comparisons() for key, value in comparison.values(host).items()}


def claims_of(host: Subject) -> dict[tuple[str, str], str]:
    """What no other machine may have: (kind, value) → where this one has it."""
    claims: dict[tuple[str, str], str] = {}
    for nic in nics_of(host).values():
        if is_own(nic):
            addresses = [address.partition("/")[0] for address in nic.addresses if _is_global(address)]
            claims.update({(ADDRESS, address): nic.name for address in addresses})
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


def _is_global(address: str) -> bool:
    return not address.startswith(("127.", "169.254.", "fe80:", "::1"))


def compare(members: Sequence[Member]) -> Iterator[Finding]:
    """What differs between hosts of one kind, and what hosts of any kind have twice."""
    groups: dict[str, list[Member]] = defaultdict(list)
    for member in members:
        groups[member.group].append(member)
    for group in groups.values():
        if len(group) > 1:
            for key in dict.fromkeys(key for member in group for key in member.values):
                yield from _differing(
                    key, {member.host: member.values[key] for member in group if key in member.values}
                )
    yield from _twice(members)
    yield from misnamed({member.host: member.names for member in members if member.names})


def _differing(key: Key, values: Mapping[str, str | None]) -> Iterator[Finding]:
    known = {host: value for host, value in values.items() if value is not None}
    counts = Counter(known.values())
    if len(known) > 1:
        yield from (_unknown(key, host, counts) for host, value in values.items() if value is None)
    if len(counts) < 2:
        return
    (common, number), *_ = counts.most_common()
    if len(known) < _FEW or 2 * number <= len(known):
        yield from (_no_culprit(key, host, value, known) for host, value in known.items())
        return
    expected = f"{common}, as on {number} of {len(known)} hosts"
    for host, value in known.items():
        if value != common:
            yield _finding(key, host, fields()[key[0]].status, expected, value)


def _finding(key: Key, host: str, status: Status, expected: str, actual: str) -> Finding:
    check = fields()[key[0]].check
    return Finding(host, check.id, status, key[1], "none", expected, actual, check.remedy)


def _unknown(key: Key, host: str, counts: Counter[str]) -> Finding:
    common = counts.most_common(1)[0][0]
    return Finding(host, key[0], Status.UNKNOWN, key[1], "none", f"{common}, as on others", "not read", LOOK_THERE)


def _no_culprit(key: Key, host: str, value: str, known: Mapping[str, str]) -> Finding:
    others: dict[str, list[str]] = defaultdict(list)
    for name, other in known.items():
        if other != value:
            others[other].append(name)
    shown = [f"{few(names)}: {other}" for other, names in list(others.items())[:_NAMED]]
    return _finding(key, host, Status.WARNING, f"one value on all hosts; {'; '.join(shown)}", value)


def _twice(members: Sequence[Member]) -> Iterator[Finding]:
    holders: dict[Claim, list[Member]] = defaultdict(list)
    for member in members:
        for claim in member.claims:
            holders[claim].append(member)
    shared = {claim: having for claim, having in holders.items() if _are_several(claim[0], having)}
    if not shared:
        return
    for member in members:
        kinds: dict[str, list[Claim]] = defaultdict(list)
        for claim in member.claims:
            if claim in shared:
                kinds[claim[0]].append(claim)
        for kind, claims in kinds.items():
            yield _double(member, kind, claims, shared)


def _are_several(kind: str, having: Sequence[Member]) -> bool:
    return len(having) > 1 and len({member.holder(kind) for member in having}) > 1


def _double(member: Member, kind: str, claims: Sequence[Claim], holders: Mapping[Claim, Sequence[Member]]) -> Finding:
    others = dict.fromkeys(other.host for claim in claims for other in holders[claim] if other.host != member.host)
    shared = few([f"{claim[1]} ({member.claims[claim]})" for claim in claims])
    actual = f"{shared}: also that of {few(list(others))}"
    expected = f"no other machine's {kind}"
    remedy = _NEW_ID if kind == MACHINE_ID else DUPLICATE.remedy
    return Finding(member.host, DUPLICATE.id, Status.FAILED, kind, "none", expected, actual, remedy)
