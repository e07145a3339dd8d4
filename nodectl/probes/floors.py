"""Floors for measurements: of hardware profiles, else of links between GPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nodectl.common.spelling import meant, misspelt
from nodectl.common.units import format_value, parse_size
from nodectl.errors import ProfileError
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.probes.base import ProbeResult
from nodectl.probes.registry import declarations, kind_of, listed
from nodectl.profiles import links
from nodectl.profiles.gpus import floors_of, gpu_kind
from nodectl.profiles.host import WITHOUT_REFERENCE, hardware_name, hardware_of
from nodectl.profiles.schema import Floor, Hardware

# conditions of a floor that say more than that the measurement has the same
_OF_ANY_PROBE = {"size", "gpus", "nodes", "nvls"}
# not `interfaces_used`, which a measurement has besides its `interfaces`
_MISSPELT_CONDITION = 0.85
_REMEDY = "measure once more with nothing else running; then look at clocks, links and errors with `nodectl health`"
_NVLS_REMEDY = (
    "NCCL did without NVLS: is NCCL_NVLS_ENABLE or NCCL_ALGO set, NCCL older than 2.17, or the fabric manager not"
    " Completed? NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=NVLS says why"
)


@dataclass(frozen=True, slots=True)
class Reference:
    """The hardware profile of a host."""

    name: str
    hardware: Hardware


def held_against(result: ProbeResult, references: Mapping[str, Reference]) -> ProbeResult:
    """Return the measurements with `expected` and where that comes from, and a finding for each that misses it."""
    measurements, findings = [], []
    for measurement in result.measurements:
        reference = _reference(measurement, references)
        if isinstance(reference, str):
            measurements.append(measurement.with_conditions(reference=None, no_reference=reference))
            continue
        name, floor = reference
        compared = measurement.with_conditions(reference=f"{name}: {floor.source}")
        compared = replace(compared, expected=floor.value)
        measurements.append(compared)
        # what is no number reaches nothing
        part = floor.tolerance_percent / 100
        if _is_ceiling(measurement):
            is_reached = measurement.value <= floor.value * (1 + part)
        else:
            is_reached = measurement.value >= floor.value * (1 - part)
        if not is_reached:
            findings.append(_finding(compared, name, floor))
    return ProbeResult(tuple(measurements), (*result.findings, *findings))


def _reference(measurement: Measurement, references: Mapping[str, Reference]) -> tuple[str, Floor] | str:
    """(profile, floor) that hold for it, or why none does; of several hosts the one of which least is expected."""
    if measurement.conditions.get("complete") is False:
        return "the run was cut short"
    own_floors = []
    for host in measurement.hosts:
        host_reference = references.get(host)
        if host_reference is None:
            return f"no hardware profile is known for {host}"
        # the device that was measured, or that all are which took part
        name, device = host_reference.name, str(measurement.conditions.get("device") or "")
        floor = _floor(measurement, host_reference.hardware.floors)
        if floor is None and name != WITHOUT_REFERENCE:
            known = tuple(floors_of(device)), (links.predicted(measurement.probe, measurement.conditions),)
            name = gpu_kind(device) or name
            fitting = (_floor(measurement, tuple(filter(None, of))) for of in known)
            floor = next(filter(None, fitting), None)
        if floor is None and device == "cpu":
            return "measured on processors"
        if floor is None:
            return f"the hardware profile {host_reference.name} has no floor for these conditions"
        own_floors.append((name, floor))
    if not own_floors:
        return "of no host"
    return (max if _is_ceiling(measurement) else min)(own_floors, key=lambda pair: pair[1].value)


def _floor(measurement: Measurement, floors: Sequence[Floor]) -> Floor | None:
    """Return the floor with most conditions; of equals that of the nearest size, fewest nodes, then the stricter."""
    ceiling = _is_ceiling(measurement)
    link = measurement.conditions.get("link_class")
    fitting = [
        floor
        for floor in floors
        if (floor.probe, floor.unit) == (measurement.probe, measurement.unit)
        and _is_met(floor, measurement)
        # the class of links between the GPUs of one node says nothing of what leaves it
        and (floor.link_class is None or (floor.link_class == link and len(measurement.hosts) == 1))
    ]
    sign = -1 if ceiling else 1

    def rank(floor: Floor) -> tuple[float, ...]:
        given = floor.conditions
        size, nodes = parse_size(str(given.get("size", ""))) or 0, given.get("nodes")
        few = -nodes if isinstance(nodes, int) else 0
        return len(given), floor.link_class is not None, sign * size, few, sign * floor.value

    return max(fitting, key=rank, default=None)


def _is_met(floor: Floor, measurement: Measurement) -> bool:
    given = measurement.conditions
    if given.get("device") == "cpu" and not {"device", "backend"} & set(floor.conditions):
        # no GPU took part, and the floors of these probes are GPUs' unless they say otherwise
        return False
    if (
        "size" not in floor.conditions
        and not _is_ceiling(measurement)
        and given.get("verdict_size", "large") != "large"
    ):
        # what is reached without a word of the size is reached at a large one
        return False
    if given.get("way") and "way" not in floor.conditions:
        # what a host does by itself takes another way than what floors speak of that name none
        return False
    return all(_agrees(name, wanted, measurement) for name, wanted in floor.conditions.items())


def _agrees(name: str, wanted: object, measurement: Measurement) -> bool:
    given = measurement.conditions
    if name == "size":
        size, bound = given.get("size_bytes"), parse_size(str(wanted))
        if not isinstance(size, int) or bound is None:
            return False
        # what a small message takes at most says nothing of a larger one
        return size <= bound if _is_ceiling(measurement) else size >= bound
    if name == "gpus":
        # those of one node, as far as the probe tells; all ranks of a run on one node are
        alone = given.get("ranks") if len(measurement.hosts) == 1 else None
        return given.get("gpus", alone) == wanted
    if name == "nodes":
        # what so many nodes reach, fewer reach as well; it says nothing of one alone
        return isinstance(wanted, int) and 2 <= len(measurement.hosts) <= wanted
    if name == "nvls":
        # where a profile expects it, that it is absent is a finding and no excuse
        return wanted is True or _has_nvls(measurement) is False
    value = given.get(name)
    if isinstance(wanted, str) and isinstance(value, str):
        return wanted.casefold() == value.casefold()
    if isinstance(wanted, bool) is not isinstance(value, bool):
        return False
    return _plain(value) == _plain(wanted)


def _has_nvls(measurement: Measurement) -> bool | None:
    nvls, algorithm = measurement.conditions.get("nvls"), measurement.conditions.get("algorithm")
    if isinstance(nvls, bool):
        return nvls
    return algorithm.upper().startswith("NVLS") if isinstance(algorithm, str) else None


def _plain(value: object) -> object:
    return list(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _is_ceiling(measurement: Measurement) -> bool:
    return kind_of(measurement.probe).lower_is_better(measurement.unit) is True


def _finding(measurement: Measurement, name: str, floor: Floor) -> Finding:
    """Return the finding for a missed floor, which blames a host that was measured alone, and no pair or group."""
    hosts, unit = measurement.hosts, measurement.unit
    alone = len(hosts) == 1
    word = "at most" if _is_ceiling(measurement) else "at least"
    tolerance = f", {floor.tolerance_percent:g} % tolerated" if floor.tolerance_percent else ""
    share = 100 * measurement.value / floor.value
    where = "" if alone else measurement.direction or ", ".join(hosts)
    return Finding(
        hosts[0],
        measurement.probe,
        Status.WARNING if floor.is_predicted else Status.FAILED,
        subject=": ".join(filter(None, [where, _subject(measurement, floor)])),
        expected=f"{word} {floor.value:g} {unit} ({name}{', predicted' * floor.is_predicted}){tolerance}",
        actual=f"{format_value(measurement.value, unit)}, {share:.0f} % of what {name} reaches",
        remedy=_NVLS_REMEDY if floor.conditions.get("nvls") is True and _has_nvls(measurement) is False else _REMEDY,
        evidence=floor.source,
        kind="host" if alone else "",
        hosts=hosts,
    )


def _subject(measurement: Measurement, floor: Floor) -> str:
    """Return what tells this measurement from the host's others; else what the floor asks for."""
    identity = kind_of(measurement.probe).subject(measurement.conditions)
    size = measurement.conditions.get("size_bytes")
    sized = [f"{size} B"] if isinstance(size, int) else []
    asked_for = [f"{name} {value}" for name, value in floor.conditions.items()]
    return ", ".join([identity, *sized] if identity else sized) or ", ".join(asked_for)


def judged(hosts: Sequence[Host], result: ProbeResult, profile_dirs: Sequence[Path]) -> ProbeResult:
    """Return the result with what was expected of each measurement, and findings for those that miss it."""
    taking_part = {name for measurement in result.measurements for name in measurement.hosts}
    references: dict[str, Reference] = {}
    wrong: dict[tuple[str, str], list[str]] = defaultdict(list)
    for host in (host for host in hosts if host.name in taking_part):
        try:
            hardware = hardware_of(host, profile_dirs)
            refuse_wrong_floors(hardware, f"hardware {hardware_name(host)}")
            references[host.name] = Reference(hardware_name(host), hardware)
        except ProfileError as error:
            wrong[error.message, error.remedy].append(host.name)
    findings = [
        Finding(
            names[0],
            "profile",
            Status.UNKNOWN,
            "hardware",
            actual=f"{message}: measured without a reference",
            remedy=remedy,
            hosts=tuple(names),
        )
        for (message, remedy), names in wrong.items()
    ]
    held = held_against(result, references)
    return ProbeResult(held.measurements, (*held.findings, *findings))


def refuse_wrong_floors(hardware: Hardware, where: str) -> None:
    """Raise ProfileError with the field of each floor that nothing would ever be held against.

    It names no probe, another unit, or has a condition or size that is misspelt.
    """
    wrong = [
        f"floors.{number}.{problem}" for number, floor in enumerate(hardware.floors) for problem in _problems(floor)
    ]
    if wrong:
        raise ProfileError(f"{where}: {'; '.join(wrong)}", "correct the field")


def _problems(floor: Floor) -> Iterator[str]:
    probe = declarations().get(floor.probe)
    if probe is None:
        names = ", ".join(probe.name for probe in listed())
        yield f"probe: no probe {floor.probe!r}; {meant(floor.probe, declarations())}one of: {names}"
        return
    units = [unit.name for unit in probe.results.units]
    if floor.unit not in units:
        yield f"unit: {floor.probe} measures in {', '.join(units)}, and {floor.unit!r} is none of it"
    conditions = probe.floor_conditions | _OF_ANY_PROBE
    for name in floor.conditions:
        if near := misspelt(name, conditions, _MISSPELT_CONDITION):
            yield f"conditions.{name}: {floor.probe} has no such condition; did you mean {near}?"
    size = floor.conditions.get("size")
    if size is not None and parse_size(str(size)) is None:
        yield f"conditions.size: {str(size)!r} is not a size; write 64K, 8M or 16G"
