"""What is judged of each GPU: a rule a check, and how a value that is refused, missing or not told counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nodectl.checks.base import About, Subject
from nodectl.model.finding import Finding
from nodectl.model.gpus import Gpu, Gpus
from nodectl.model.status import Status

REPORT = "nvidia-smi-q"
# the GPU has no such thing; any other refusal is a failure to look
_HAS_NONE = ("", "n/a", "not supported", "requested functionality has been deprecated")


class Fault(NamedTuple):
    """What is wrong with one GPU; empty fields are the rule's."""

    status: Status
    actual: str
    action: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    """One check of a GPU's value `field`: `fault` is asked only where the GPU tells it."""

    check: str
    field: str
    looks_at: str
    fires: str
    expected: str
    remedy: str
    fault: Callable[[Subject, Gpu], Fault | None]
    action: str = "none"

    @property
    def about(self) -> About:
        """The line of the catalogue."""
        return About(self.check, self.looks_at, self.fires)


def flag(check: str, field: str, fires: str, expected: str, said: str, remedy: str, action: str) -> Rule:
    """The rule of a value that is true where something is wrong."""

    def fault(host: Subject, gpu: Gpu) -> Fault | None:
        return Fault(Status.FAILED, said) if getattr(gpu, field) else None

    return Rule(check, field, "nvidia-smi -q", fires, expected, remedy, fault, action)


def is_failure(said: str) -> bool:
    """A refusal that is a failure to look; the others say that the GPU has no such thing."""
    return said.strip("[] ").lower() not in _HAS_NONE


def name_of(gpu: Gpu) -> str:
    """The same over boots: where the GPU sits."""
    return f"{gpu.label} ({gpu.bus_id})" if gpu.index is not None and gpu.bus_id else gpu.label


def identity(gpu: Gpu) -> str:
    """By which a card that comes back from repair is known again."""
    known = (("UUID", gpu.uuid), ("serial", gpu.serial), ("bus", gpu.bus_id))
    return ", ".join(f"{name} {value}" for name, value in known if value)


def gpus_of(host: Subject) -> tuple[Gpu, ...]:
    """The GPUs of a full report; none where there is none, which the check gpu_report tells."""
    found = host.fact("gpus", Gpus)
    return found.devices if found is not None and found.source == REPORT else ()


def judged(host: Subject, rules: Sequence[Rule]) -> Iterator[Finding]:
    """Each rule over all GPUs: its faults, what could not be told, or one line that all is well."""
    devices = gpus_of(host)
    for rule in rules if devices else ():
        yield from _one(host, rule, devices)


def _one(host: Subject, rule: Rule, devices: Sequence[Gpu]) -> Iterator[Finding]:
    tell = [gpu for gpu in devices if getattr(gpu, rule.field) is not None]
    quiet = True
    for gpu in devices:
        found = _of(host, rule, gpu, some_tell=bool(tell))
        if found is not None:
            quiet = False
            yield found
    if quiet and tell:
        actual = f"{len(tell)} of {len(devices)} GPUs" if len(tell) < len(devices) else f"all {len(devices)} GPUs"
        yield host.finding(rule.check, Status.OK, expected=rule.expected, actual=actual)
    elif quiet:
        said = devices[0].unavailable.get(rule.field, "not printed")
        yield host.finding(rule.check, Status.SKIPPED, expected=rule.expected, actual=f"nvidia-smi: {said}")


def _of(host: Subject, rule: Rule, gpu: Gpu, *, some_tell: bool) -> Finding | None:
    if getattr(gpu, rule.field) is None:
        said = gpu.unavailable.get(rule.field, "")
        # what its siblings print and this one does not is missing from its part of the report
        if not is_failure(said) and (said or not some_tell):
            return None
        remedy = "run `nvidia-smi -q` there; a GPU that refuses values may need a reset"
        actual = f"nvidia-smi says {said!r}" if said else "missing from its part of the report"
        return _finding(host, rule, gpu, Fault(Status.UNKNOWN, actual, "none", remedy))
    fault = rule.fault(host, gpu)
    return None if fault is None else _finding(host, rule, gpu, fault)


def _finding(host: Subject, rule: Rule, gpu: Gpu, fault: Fault) -> Finding:
    return host.finding(
        rule.check,
        fault.status,
        name_of(gpu),
        expected=rule.expected,
        actual=fault.actual,
        remedy=fault.remedy or rule.remedy,
        action=fault.action or rule.action,
        evidence=identity(gpu),
    )
