"""A roll, which is one upgrade of a fleet: its plan, in which batches, how far each host has come; kept in one file."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from hashlib import sha256
from itertools import islice
from pathlib import Path
from statistics import median
from typing import IO, Any

from nodectl.common.counting import counted
from nodectl.common.documents import values_of
from nodectl.common.files import read_json, replace_file
from nodectl.common.nodeset import fold
from nodectl.common.paths import state_dir
from nodectl.errors import UsageError
from nodectl.facts.gpus import Gpus
from nodectl.model.host import UPGRADE_SIDE, Host
from nodectl.profiles.host import of_host, of_variables
from nodectl.profiles.overrides import OVERRIDES, merge_fields
from nodectl.profiles.resolve import Resolved

# what a stack decides on: an upgrade leaves limits, kernel settings, interfaces and clock alone
ROLES = (
    *("python", "pytorch", "launcher", "nvidia_repository", "nvidia_driver", "cuda", "cudnn", "nccl"),
    *("fabric_manager", "dcgm", "deepspeed", "nccl_tests"),
)
# a run of the playbook with three acceptances, and a reboot, where no upgrade was ever done
ESTIMATE_S, REBOOT_S = 340.0, 420.0
# of a host that lost its figures for another reason than the new stack
STILL = "put back, and still: "
_REMEDY = "remove it, end its cordons (nodectl ledger list), and begin another: nodectl upgrade --to STACK"


class Phase(StrEnum):
    """How far a host has come, which is written before what it names begins."""

    WAITING = "old"
    DRAINING = "old, cordoned"
    CHANGING = "half changed"
    PROVED = "new, cordoned"
    DONE = "new"
    REJECTED = "half changed, rejected"
    BACK = "old, rejected"


SETTLED = (Phase.WAITING, Phase.DONE, Phase.BACK)


@dataclass(frozen=True, slots=True)
class HostRoll:
    """One host of a roll; `variables` stand in for its own in the inventory.

    `before`, `before_too` (a second look, for the noise) and `after` are ids of acceptances, `back_to` is the run whose
    state a rollback puts back, `took_s` the time from its drain to its return, without waiting for jobs.
    """

    host: str
    batch: int
    variables: Mapping[str, Any]
    changes: tuple[str, ...] = ()
    reboots: bool = False
    phase: Phase = Phase.WAITING
    before: str = ""
    before_too: str = ""
    after: str = ""
    back_to: str = ""
    evidence: tuple[str, ...] = ()
    took_s: float = 0.0

    @property
    def is_bad(self) -> bool:
        """Return whether it was no longer what it had been when its old stack was back."""
        return bool(self.evidence) and self.evidence[-1].startswith(STILL)


@dataclass(frozen=True, slots=True)
class Roll:
    """An upgrade to `what`, fixed at its start; `ended` in seconds since 1970."""

    id: str
    fleet: str
    what: str
    hosts: tuple[HostRoll, ...]
    ended: float | None = None

    @property
    def reason(self) -> str:
        """The reason of its cordons, by which they are known as its own."""
        return f"upgrade to {self.what} ({self.id})"

    @property
    def progress(self) -> str:
        """Return `upgrading 3 of 8 to next`, or where it ended `upgraded`."""
        done = sum(row.phase.startswith("new") for row in self.hosts)
        word = "upgrading" if self.ended is None else "upgraded"
        return f"{word} {done} of {counted(len(self.hosts), 'host')} to {self.what}"

    @property
    def states(self) -> str:
        """Return `new: node[01-03]; half changed: node04; old: node[05-08]`."""
        groups: dict[str, list[str]] = {}
        for row in self.hosts:
            groups.setdefault(row.phase, []).append(row.host)
        return "; ".join(f"{phase}: {fold(names)}" for phase, names in groups.items())

    def of(self, host: str) -> HostRoll:
        """Return the row of this host."""
        return next(row for row in self.hosts if row.host == host)

    def changed(self, names: Iterable[str], **values: Any) -> Roll:
        """Return it with these values in the rows of these hosts."""
        chosen = set(names)
        return replace(self, hosts=tuple(replace(r, **values) if r.host in chosen else r for r in self.hosts))

    def again(self) -> Roll:
        """Return it with the hosts that were put back to be tried once more, the bad by their figures of then."""
        back = [row for row in self.hosts if row.phase is Phase.BACK]
        good = [row.host for row in back if not row.is_bad]
        again = self.changed([row.host for row in back], phase=Phase.WAITING)
        return again.changed(good, before="", before_too="", after="", evidence=(), took_s=0.0)


def variables_of(host: Host, stack: str, driver: str) -> dict[str, Any]:
    """Return what stands in for the host's variables: the stack's name, and its overrides with the driver's branch."""
    variables: dict[str, Any] = {"nodectl_stack": stack} if stack else {}
    if driver:
        given = host.variables.get(OVERRIDES)
        variables[OVERRIDES] = {**given} if isinstance(given, Mapping) else {}
        merge_fields(variables[OVERRIDES], {"stack": {"driver": {"branch": driver}}})
    return variables


def planned(
    host: Host, was: Host, stack: str, branch: str, facts: Mapping[str, Any], extra_dirs: Sequence[Path]
) -> HostRoll:
    """Return the host's row, without a batch, from what it `was` made; ProfileError where it cannot have that."""
    variables = variables_of(host, stack, branch)
    wanted = of_variables({**host.variables, **variables}, extra_dirs=extra_dirs)
    old, new = _brought(of_host(was, extra_dirs=extra_dirs)), _brought(wanted)
    names = [name for name in dict.fromkeys([*new, *old]) if new.get(name) != old.get(name)]
    changes = [f"{name} {old.get(name, 'none')} → {new.get(name, 'none')}" for name in names]
    gpus, driver = facts.get("gpus"), wanted.stack.driver
    present = gpus.driver_version or "none" if isinstance(gpus, Gpus) else ""
    reboots = bool(present and driver and present.partition(".")[0] != driver.branch)
    if driver and reboots:
        changes.append(f"driver {present} → branch {driver.branch}")
    return HostRoll(host.name, 0, variables, tuple(changes), reboots)


def _brought(resolved: Resolved | None) -> dict[str, str]:
    """Return the stack's name, and the version of each thing that it brings."""
    if resolved is None or "stack" not in resolved.names:
        return {}
    pins = dict(text.split("==", 1) for text in resolved.stack.requirements)
    return {"stack": resolved.names["stack"], **pins, **({"CUDA": cuda} if (cuda := resolved.stack.cuda) else {})}


def in_batches(rows: Sequence[HostRoll], at_once: int, canary: str, busy: Mapping[str, str]) -> tuple[HostRoll, ...]:
    """Return the rows in their order: the canary alone, a host without work where none is named, then N at a time."""
    names = [row.host for row in rows]
    if canary and canary not in names:
        raise UsageError(f"--canary {canary}: not among the hosts", f"name one of {', '.join(names[:8])}")
    canary = canary or next((name for name in names if name not in busy), names[0])
    ordered = sorted(rows, key=lambda row: row.host != canary)
    return tuple(replace(row, batch=(place + at_once - 1) // at_once) for place, row in enumerate(ordered))


def as_rolled(roll: Roll | None, hosts: Sequence[Host]) -> tuple[Host, ...]:
    """Return the hosts with the variables that a roll under way gives those that are new, each on its side."""
    if roll is None:
        return tuple(hosts)
    given = {row.host: {**row.variables, UPGRADE_SIDE: "new"} for row in roll.hosts if not row.phase.startswith("old")}
    return tuple(replace(h, variables={**h.variables, **given.get(h.name, {UPGRADE_SIDE: "old"})}) for h in hosts)


def save(roll: Roll) -> None:
    """Write it whole onto the disk, or leave what was there before."""
    replace_file(_folder() / f"{roll.id}.json", json.dumps(asdict(roll), indent=1) + "\n", sync=True)


def latest(fleet: str) -> Roll | None:
    """Return the fleet's last roll; None where there was none. UsageError for a file that holds none."""
    return next(_of_fleet(fleet), None)


def under_way(fleet: str) -> Roll | None:
    """Return the fleet's last roll where not all of its hosts are new."""
    return next((roll for roll in islice(_of_fleet(fleet), 1) if roll.ended is None), None)


def usual_s(fleet: str, *, reboots: bool) -> float | None:
    """Return what a host took in the fleet's last five rolls, the median; None where none has come to its end."""
    rows = [row for roll in islice(_of_fleet(fleet), 5) for row in roll.hosts if row.phase is Phase.DONE]
    return median(took) if (took := [row.took_s for row in rows if row.reboots == reboots]) else None


def lock(fleet: str) -> IO[str]:
    """Return a file that keeps other rolls of the fleet away until it is closed; UsageError where one is under way."""
    file = (_folder() / f"{sha256(fleet.encode()).hexdigest()[:32]}.lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise UsageError("another nodectl upgrade is under way", "wait for it, or end it by Ctrl-C") from error
    return file


def is_running(fleet: str) -> bool:
    """Return whether a nodectl on this machine carries out a roll of the fleet now."""
    try:
        lock(fleet).close()
    except UsageError:
        return True
    return False


def _of_fleet(fleet: str) -> Iterator[Roll]:
    """Yield the fleet's rolls, the latest first."""
    for path in sorted(_folder().glob("*.json"), reverse=True):
        try:
            (roll,) = values_of(Roll, [read_json(path, _REMEDY)], extra="ignore")
        except ValueError as error:
            raise UsageError(f"{path}: malformed upgrade: {error}", _REMEDY) from error
        if roll.fleet == fleet:
            yield roll


def _folder() -> Path:
    path = state_dir() / "upgrades"
    path.mkdir(mode=0o700, exist_ok=True)
    return path
