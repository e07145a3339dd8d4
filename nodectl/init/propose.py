"""From hosts as they were found to an inventory: those that are to be the same in a group, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodectl.common.counting import counted
from nodectl.common.natural import natural
from nodectl.common.nodeset import fold
from nodectl.init.choices import Reasons, choices
from nodectl.init.draft import Draft, Group, group_name, shared_variables
from nodectl.init.look import Found
from nodectl.lab.variables import lab_variables
from nodectl.profiles.fit import fitting_hardware, fitting_stacks
from nodectl.profiles.host import DEFAULTS
from nodectl.profiles.resolve import load_stacks, without_stack

_TUNING = "stock"


@dataclass(frozen=True, slots=True)
class Proposal:
    """Hold what a host is to be, and why; `notes` are what the operator has to look at."""

    hardware: str
    stack: str
    driver: str
    reasons: Reasons
    notes: tuple[str, ...] = ()


def draft_of(
    hosts: Sequence[Found],
    connections: Mapping[str, Mapping[str, object]],
    extra_dirs: Sequence[Path] = (),
) -> tuple[Draft, tuple[str, ...]]:
    """The inventory of these hosts, reached by `connections` (by host), and what is to be told about it."""
    members: dict[tuple[str, str, str], list[tuple[Found, Proposal]]] = defaultdict(list)
    for host in sorted(hosts, key=lambda one: natural(one.host.name)):
        proposal = propose(host, extra_dirs)
        members[proposal.hardware, proposal.stack, proposal.driver].append((host, proposal))
    own = {
        found.host.name: {**connections.get(found.host.name, {}), **(lab_variables() if found.lab else {})}
        for found in hosts
    }
    shared = shared_variables(list(own.values())) if len(own) > 1 else {}
    groups: list[Group] = []
    notes: list[str] = []
    for (hardware, _, _), alike in members.items():
        names, proposal = [found.host.name for found, _ in alike], alike[0][1]
        several = sum(other == hardware for other, _, _ in members) > 1
        base = f"{proposal.hardware}-{proposal.stack}" if several else proposal.hardware
        taken = [*own, *(group.name for group in groups)]
        profiles = {"hardware": proposal.hardware, "stack": proposal.stack, "tuning": _TUNING}
        groups.append(
            Group(
                group_name(base, taken),
                f"The profiles of {fold(names)}, proposed by `nodectl init --from`. It found there:\n{_seen(alike)}.",
                {name: {k: v for k, v in own[name].items() if k not in shared} for name in names},
                choices(profiles, proposal.reasons, proposal.driver),
            )
        )
        for note in dict.fromkeys(note for _, one in alike for note in one.notes):
            notes.append(f"{fold(found.host.name for found, one in alike if note in one.notes)}: {note}")
    about = "Written by `nodectl init --from`: the hosts, and how they are reached. It never writes a password."
    return Draft(about, tuple(groups), shared), tuple(notes)


def _seen(alike: Sequence[tuple[Found, Proposal]]) -> str:
    """Return what was found, a line for those that are alike."""
    lines: dict[str, list[str]] = defaultdict(list)
    for found, _ in alike:
        lines[described(found)].append(found.host.name)
    return "\n".join(line if len(lines) == 1 else f"{fold(names)}: {line}" for line, names in lines.items())


def described(found: Found) -> str:
    """Return what was found, on one line."""
    gpus = f"{found.seen.gpus} x {found.seen.named}" if found.seen.gpus else "no GPU"
    driver = f"driver {found.driver}" if found.driver else "no NVIDIA driver"
    recorded = f" (hardware recorded: {found.recorded})" if found.recorded else ""
    parts = [gpus, *([driver] if found.seen.gpus else []), found.fabric, found.system]
    return f"{', '.join(parts)}{recorded}"


def propose(found: Found, extra_dirs: Sequence[Path] = ()) -> Proposal:
    """The profiles that fit the host; `unknown` hardware, and why, where none does."""
    notes: list[str] = []
    names = fitting_hardware(found.seen, extra_dirs)
    hardware = names[0] if names else DEFAULTS["hardware"]
    why_hardware = ""
    if len(names) > 1:
        why_hardware = f"Nothing that was seen tells it apart from {', '.join(names[1:])}: choose."
        notes.append(f"nodectl_hardware is {hardware}; {' or '.join(names[1:])} would fit as well")
    if not names:
        what = f"{found.seen.gpus} x {found.seen.named}" if found.seen.gpus else "this"
        why_hardware = (
            f"No profile fits {what}. Hosts of unknown hardware are provisioned and measured,"
            " and held against nothing.\n"
            "`nodectl profile learn` makes a profile of hosts that are known to be good."
        )
        notes.append(
            f"no hardware profile fits {what}: nodectl_hardware is {hardware}; `nodectl profile learn` makes one"
        )
    stack, why_stack = _stack(found, hardware, extra_dirs, notes)
    driver, why_driver = _driver(found, stack, extra_dirs)
    return Proposal(hardware, stack, driver, Reasons(why_hardware, why_stack, "", why_driver), tuple(notes))


def _stack(found: Found, hardware: str, extra_dirs: Sequence[Path], notes: list[str]) -> tuple[str, str]:
    profile = without_stack(hardware, _TUNING, extra_dirs=extra_dirs).hardware
    fitting = fitting_stacks(profile, found.look, extra_dirs, installed=(found.torch, found.cuda))
    if not fitting:
        notes.append(f"no stack fits {found.system} with these GPUs and this driver: nodectl_stack is none")
        return "none", f"No stack fits {found.system} with these GPUs and this driver; none installs no PyTorch."
    best, others = fitting[0], fitting[1:4]
    stack = load_stacks(extra_dirs)[best]
    if not found.seen.gpus:
        why = f"{best} is {stack.description}: the hosts have no NVIDIA GPU."
    elif found.torch and stack.torch and found.torch.partition("+")[0] == stack.torch.partition("+")[0]:
        why = f"{best} is {stack.description}. Its PyTorch {found.torch} is installed there already."
    else:
        least = f" with driver {found.driver}" if found.driver else ""
        why = (
            f"{best} is {stack.description}: the newest that fits {found.system}{least},"
            " and that nothing is to be said against."
        )
    return best, f"{why}\nIt could also be {', '.join(others)}." if others else why


def _driver(found: Found, stack: str, extra_dirs: Sequence[Path]) -> tuple[str, str]:
    """keep or manage, and why; empty where the stack has no driver."""
    wanted = load_stacks(extra_dirs)[stack].driver
    if not found.seen.gpus or wanted is None:
        return "", ""
    if found.driver:
        return "keep", (
            f"keep: {found.driver} is loaded there, and the stack works from {wanted.min} on. With manage nodectl"
            f" installs branch {wanted.branch}, where the driver there is a package that it may replace."
        )
    return "manage", (
        f"manage: no driver is loaded there; nodectl installs branch {wanted.branch}. Where you look after the driver,"
        " write keep."
    )


def summary(draft: Draft) -> str:
    """A line a group: its hosts and what they are to be."""
    lines = []
    for group in draft.groups:
        values = [str(group.value(f"nodectl_{name}")) for name in ("hardware", "stack", "tuning")]
        lines.append(
            f"{fold(group.hosts)}: {', '.join(values)} ({counted(len(group.hosts), 'host')}, group {group.name})"
        )
    return "\n".join(lines)
