"""The GPUs that the driver shows, all that `nvidia-smi -q` tells, lost ones, links."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from nodectl.common.counting import counted
from nodectl.errors import ParseError
from nodectl.facts.base import (
    DEADLINE,
    NOT_INSTALLED,
    AbsentError,
    Fact,
    UnknownError,
    UnrecordedError,
    entry,
    output,
    parsed,
    parsed_as,
    tally,
)
from nodectl.facts.parsers.nvidia.smi_q.fields import GpuStatus
from nodectl.facts.parsers.nvidia.smi_q.report import parse_nvidia_smi_q
from nodectl.facts.parsers.nvidia.smi_query import CsvRow, NvidiaSmiQuery, parse_nvidia_smi_query
from nodectl.facts.parsers.nvidia.words import is_lost, lost_gpu, needs_reset
from nodectl.facts.parsers.text import bus_id
from nodectl.model.recording import Command, Recording

if TYPE_CHECKING:
    from nodectl.facts.parsers.nvidia.smi_nvlink import NvidiaSmiNvlink
    from nodectl.facts.parsers.nvidia.smi_topo import NvidiaSmiP2p, NvidiaSmiTopo


_COLUMNS = "index,name,uuid,pci.bus_id,memory.total,driver_version,vbios_version"
REPORT = Command("nvidia-smi-q", ("nvidia-smi", "-q"), deadline_s=20, hardware=True)
_TABLE = Command(
    "nvidia-smi-query", ("nvidia-smi", f"--query-gpu={_COLUMNS}", "--format=csv"), deadline_s=20, hardware=True
)
# alone it goes on after a GPU of which the driver gives no handle
_LIST = Command("nvidia-smi-list", ("nvidia-smi", "-L"), deadline_s=20, hardware=True)
GPUS_COMMANDS = (REPORT, _TABLE, _LIST)
_LISTED = re.compile(r"^GPU (\d{1,4}): (.*?) ?\(UUID: ([^()]+)\)\r?$", re.MULTILINE)
# nvidia-smi's exit statuses: a GPU is out of reach, an InfoROM is corrupted
_LOST, _CORRUPTED = 15, 14
_SAID, _UNREAD = (_LOST, _CORRUPTED), (NOT_INSTALLED, DEADLINE)
_ATTACHED = re.compile(r"^Attached v?GPUs +: (\d{1,4})\r?$|<attached_gpus>(\d{1,4})<", re.MULTILINE)
_HEADER_CHARS = 4096
# of a program's own fault; the collector ends what takes too long by others
_CRASHES = (4, 6, 7, 8, 11)


@dataclass(frozen=True, slots=True)
class Gpu(GpuStatus):
    """One GPU with its index; commands other than `nvidia-smi -q` fill the first few fields only."""

    index: int | None = None

    @property
    def is_consumer(self) -> bool:
        """Return whether it is sold to players: DCGM diagnoses such a card at its first level alone."""
        return bool(self.name) and ("GeForce" in str(self.name) or "TITAN" in str(self.name))

    @property
    def label(self) -> str:
        """How findings name it: its index, if there is none its place on the bus."""
        return f"GPU {self.index}" if self.index is not None else f"GPU {self.bus_id or self.uuid or '?'}"


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs that the loaded driver shows, all that `nvidia-smi -q` tells of each, and those that are lost.

    `source` is the command that told: all but nvidia-smi-q leave most values None. `lost` are those that the driver
    names but cannot reach, `warnings` nvidia-smi's own. `disputed` says what tells of another number than these and the
    lost ones, or of no good end; `confirmed`: another source has as many. `unread`: why a fuller command was not read.
    """

    count: int
    devices: tuple[Gpu, ...]
    lost: tuple[str, ...] = ()
    driver_version: str | None = None
    cuda_version: str | None = None
    warnings: tuple[str, ...] = ()
    source: str = "nvidia-smi-query"
    disputed: str = ""
    confirmed: bool = False
    unread: str = ""


def _read_gpus(recording: Recording) -> Gpus:
    """Read the first command that tells; if none does, what they name as lost, else raise the first one's reason."""
    ways: tuple[tuple[str, Callable[[Recording], Gpus]], ...] = (
        (REPORT.key, _from_report),
        (_TABLE.key, _from_table),
        (_LIST.key, _from_list),
    )
    reasons: list[Exception] = []
    number = (_status(recording, REPORT.key) or 0) - 128
    # what it had printed by then is no report
    crash = f"nvidia-smi -q was killed by signal {number}" if number in _CRASHES else ""
    for key, way in ways:
        if key not in recording.entries:
            continue
        if crash and key == REPORT.key:
            reasons.append(UnknownError(crash))
            continue
        try:
            # the driver is loaded and answers: none is a number here, not a failure
            if _no_devices(recording, key):
                return Gpus(0, (), source=key, confirmed=True)
            told = _compared(recording, way(recording))
            return replace(told, disputed=crash or told.disputed, unread=str(reasons[0]) if reasons else "")
        except (AbsentError, UnknownError, ParseError) as error:
            reasons.append(error)
    # most commands stop at the first GPU that they cannot reach, and then may print nothing else
    lost = max((_named_as_lost(recording, key) for key, _ in ways), key=len)
    if lost:
        return Gpus(0, (), lost)
    raise reasons[0] if reasons else UnrecordedError(f"{REPORT.key} is not in the recording")


def _compared(recording: Recording, gpus: Gpus) -> Gpus:
    gpus = _without_lost(recording, gpus)
    table = _table(recording)
    report = recording.entries.get(REPORT.key)
    match = _ATTACHED.search(report.stdout[:_HEADER_CHARS]) if report else None
    counts = {
        "the header of nvidia-smi -q says": int(match[1] or match[2]) if match else None,
        "nvidia-smi's query lists": len(table.gpus) + len(table.lost) if table and gpus.source == REPORT.key else None,
    }
    others = {name: number for name, number in counts.items() if number is not None}
    all_of_them = gpus.count + len(gpus.lost)
    # a command that stops at a lost GPU lists those before it
    least = 0 if gpus.lost else gpus.count
    odd = [f"{name} {number}" for name, number in others.items() if not least <= number <= all_of_them]
    # of a lost GPU nobody tells all
    others_say = [] if gpus.lost else [*_bad_ends(recording), *_other_uuids(table, gpus)]
    disputed = " and ".join(odd or ([gpus.disputed] if gpus.disputed else others_say))
    return replace(gpus, disputed=disputed, confirmed=all_of_them in others.values())


def _without_lost(recording: Recording, gpus: Gpus) -> Gpus:
    """Return them without the lost ones: those that any command calls lost, or nvidia-smi's own status."""
    by_index = {gpu.index: gpu.bus_id for gpu in gpus.devices}
    named = [*(gpu.bus_id or gpu.label for gpu in gpus.devices if _is_lost(gpu))]
    if gpus.source != _TABLE.key and (table := _table(recording)):
        named += [gpu.bus_id or by_index.get(gpu.index) or gpu.label for gpu in map(_row, table.gpus) if _is_lost(gpu)]
    # a line without an address may mean a GPU that another command names by its address
    nameless: tuple[str, ...] = ()
    for told in (gpus.lost, *(_named_as_lost(recording, key) for key in (REPORT.key, _TABLE.key, _LIST.key))):
        named += [place for place in told if bus_id(place)]
        nameless = max(nameless, tuple(place for place in told if not bus_id(place)), key=len)
    named += nameless[len(set(named)) :]
    if not named and any(_status(recording, key) == _LOST for key in (REPORT.key, _TABLE.key)):
        named = [f"one that nvidia-smi does not name, which ended with {_LOST}"]
    lost = tuple(dict.fromkeys(named))
    devices = tuple(gpu for gpu in gpus.devices if (gpu.bus_id or gpu.label) not in lost)
    corrupted = any(_status(recording, key) == _CORRUPTED for key in (REPORT.key, _TABLE.key))
    warnings = gpus.warnings or ((f"nvidia-smi ended with {_CORRUPTED}: an infoROM is corrupted",) if corrupted else ())
    return replace(gpus, count=len(devices), devices=devices, lost=lost, warnings=warnings)


def _is_lost(gpu: Gpu) -> bool:
    return any(is_lost(word) for word in gpu.unavailable.values())


def _status(recording: Recording, key: str) -> int | None:
    return recording.entries[key].exit_status if key in recording.entries else None


def _bad_ends(recording: Recording) -> list[str]:
    ends = {key: _status(recording, key) for key in (REPORT.key, _TABLE.key)}
    bad = [f"{key} ended with {status}" for key, status in ends.items() if status not in (None, 0, *_SAID, *_UNREAD)]
    try:
        _from_table(recording)
    except ParseError as error:
        bad.append(f"the query cannot be read: {error}")
    except (AbsentError, UnknownError) as error:
        bad += [] if any(_TABLE.key in each for each in bad) else [str(error)]
    return bad


def _other_uuids(table: NvidiaSmiQuery | None, gpus: Gpus) -> list[str]:
    if table is None:
        return []
    asked = {_text(row, "uuid") for row in table.gpus}
    uuids = {gpu.uuid for gpu in gpus.devices}
    odd = sorted(filter(None, asked ^ uuids))
    return [f"only one of nvidia-smi -q and its query names {odd[0]}"] if odd and None not in asked | uuids else []


def _single(key: str, gpus: Gpus) -> Gpus:
    """Return the GPUs; raise ParseError if one occurs twice: the outputs of two runs or machines are mixed."""
    places = Counter(gpu.bus_id or gpu.uuid for gpu in gpus.devices)
    twice = [place for place, number in places.items() if place and number > 1]
    if twice:
        raise ParseError(f"{key}: {twice[0]} stands in it twice")
    return gpus


def _named_as_lost(recording: Recording, key: str) -> tuple[str, ...]:
    done = recording.entries.get(key)
    lines = (done.stdout[:4096] + done.stderr[:4096]).splitlines() if done else []
    return tuple(dict.fromkeys(gpu.bus_id or gpu.text for gpu in map(lost_gpu, lines) if gpu))


def _no_devices(recording: Recording, key: str) -> bool:
    done = entry(recording, key, in_part=True)
    # the whole answer, not one line of a long one
    return "no devices were found" in (done.stdout[:4096] + done.stderr).lower()


def _from_report(recording: Recording) -> Gpus:
    report = parsed(recording, REPORT.key, parse_nvidia_smi_q, in_part=True)
    if len(_ATTACHED.findall(recording.entries[REPORT.key].stdout)) > 1:
        raise ParseError(f"{REPORT.key}: the report stands twice in its output")
    table = _table(recording)
    asked = map(_row, table.gpus) if table else ()
    # the query's numbers: a lost GPU leaves a gap that the report does not show
    indexes = {gpu.bus_id or gpu.uuid: gpu.index for gpu in asked if gpu.index is not None}
    # a part that is cut is no observation of its GPU
    whole = report.gpus[:-1] if report.is_cut else report.gpus
    numbers = (indexes.get(gpu.bus_id, indexes.get(gpu.uuid, number)) for number, gpu in enumerate(whole))
    devices = tuple(Gpu(*(*_all_values(gpu), number)) for gpu, number in zip(whole, numbers, strict=True))
    # older drivers say only in place of the values that a GPU needs a reset
    devices = tuple(
        replace(gpu, reset_required=True) if any(map(needs_reset, gpu.unavailable.values())) else gpu for gpu in devices
    )
    gpus = Gpus(
        len(devices),
        devices,
        tuple(gpu.bus_id or gpu.text for gpu in report.lost),
        driver_version=report.driver_version,
        cuda_version=report.cuda_version,
        warnings=report.warnings,
        source=REPORT.key,
        disputed="its last part is cut" if report.is_cut else "",
    )
    return _single(REPORT.key, gpus)


# in the order of its fields, which are the first of Gpu's
_all_values = attrgetter(*(item.name for item in fields(GpuStatus)))


def _table(recording: Recording) -> NvidiaSmiQuery | None:
    try:
        return parsed(recording, _TABLE.key, parse_nvidia_smi_query)
    except (AbsentError, UnknownError, ParseError):
        return None


def _from_table(recording: Recording) -> Gpus:
    table = parsed(recording, _TABLE.key, parse_nvidia_smi_query)
    lost = tuple(gpu.bus_id or gpu.text for gpu in table.lost)
    driver = _text(table.gpus[0], "driver_version") if table.gpus else None
    gpus = Gpus(len(table.gpus), tuple(_row(row) for row in table.gpus), lost, driver_version=driver)
    return _single(_TABLE.key, gpus)


def _from_list(recording: Recording) -> Gpus:
    rows = _LISTED.findall(entry(recording, _LIST.key, in_part=True).stdout)
    if not rows:
        raise ParseError(f"{_LIST.key}: no 'GPU 0: <name> (UUID: …)'")
    devices = tuple(Gpu(index=int(index), name=name or None, uuid=uuid) for index, name, uuid in rows)
    return _single(_LIST.key, Gpus(len(devices), devices, source=_LIST.key))


def _row(row: CsvRow) -> Gpu:
    index, memory_mib = row.values.get("index"), row.values.get("memory.total")
    address = _text(row, "pci.bus_id")
    return Gpu(
        index=index if isinstance(index, int) else None,
        name=_text(row, "name"),
        uuid=_text(row, "uuid"),
        # nvidia-smi prints a domain of eight digits, everything else one of four
        bus_id=bus_id(address) or address if address else None,
        memory_total_mib=memory_mib if isinstance(memory_mib, int) else None,
        vbios_version=_text(row, "vbios_version"),
        serial=_text(row, "serial"),
        unavailable=row.unavailable,
    )


def _text(row: CsvRow, column: str) -> str | None:
    value = row.values.get(column)
    return None if value is None else str(value)


def _gpus_words(gpus: Gpus) -> str:
    names = Counter(gpu.name or "?" for gpu in gpus.devices)
    shown = ", ".join(f"{number} x {name}" for name, number in names.items()) or "none"
    return shown + (f"; lost: {', '.join(gpus.lost)}" if gpus.lost else "")


GPUS_FACT = Fact("gpus", GPUS_COMMANDS, _read_gpus, _gpus_words, row=600)


_GPU_TOPOLOGY_KEY = "nvidia-smi-topo"


def _between(recording: Recording, key: str) -> Any:
    if key in recording.entries and _no_devices(recording, key):
        raise AbsentError("nvidia-smi finds no device")
    return parsed_as(recording, key)


def _gpu_topology_words(matrix: NvidiaSmiTopo) -> str:
    pairs = Counter(
        link
        for number, gpu in enumerate(matrix.gpus)
        for other, link in matrix.links.get(gpu, {}).items()
        if other in matrix.gpus[number + 1 :]
    )
    nics = f", {counted(len(matrix.nics), 'NIC')}" if matrix.nics else ""
    return (tally(pairs) or f"{len(matrix.gpus)} GPU alone") + nics


GPU_TOPOLOGY_FACT: Fact[NvidiaSmiTopo] = Fact(
    "gpu_topology",
    (Command(_GPU_TOPOLOGY_KEY, ("nvidia-smi", "topo", "-m"), deadline_s=20, hardware=True),),
    lambda recording: _between(recording, _GPU_TOPOLOGY_KEY),
    _gpu_topology_words,
    row=610,
    about="The matrix of links between GPUs and NICs (`nvidia-smi topo -m`), with CPU and NUMA affinity.",
)


_P2P_KEY = "nvidia-smi-p2p"


P2P_FACT: Fact[NvidiaSmiP2p] = Fact(
    "p2p",
    (Command(_P2P_KEY, ("nvidia-smi", "topo", "-p2p", "r"), deadline_s=20, hardware=True),),
    lambda recording: _between(recording, _P2P_KEY),
    lambda matrix: tally(Counter(word for row in matrix.status.values() for word in row.values())) or "one GPU alone",
    row=620,
    about="Between which GPUs the driver allows reads from peer to peer.",
)


_STATE = Command("nvidia-smi-nvlink", ("nvidia-smi", "nvlink", "-s"), deadline_s=20, hardware=True)
_ERRORS = Command("nvidia-smi-nvlink-errors", ("nvidia-smi", "nvlink", "-e"), deadline_s=20, hardware=True)


def _read_nvlink(recording: Recording) -> NvidiaSmiNvlink:
    done = entry(recording, _STATE.key, in_part=True)
    if done.exit_status and not _LISTED.search(done.stdout):
        output(recording, _STATE.key)  # raises its reason
    if not done.stdout.strip():
        # some GPUs without NVLink print nothing at all, others that they have none
        raise AbsentError("the GPUs have no NVLink")
    state: NvidiaSmiNvlink = parsed_as(recording, _STATE.key)
    if all(gpu.links == () for gpu in state.gpus):
        raise AbsentError("the GPUs have no NVLink")
    try:
        counters: NvidiaSmiNvlink = parsed_as(recording, _STATE.key, _ERRORS.key)
    except (AbsentError, UnknownError, ParseError):
        return state
    counted = {(gpu.index, link.link): link for gpu in counters.gpus for link in gpu.links or ()}
    gpus = []
    for gpu in state.gpus:
        links = [
            replace(
                counted.get((gpu.index, link.link), link),
                active=link.active,
                speed_gb_s=link.speed_gb_s,
                unavailable=link.unavailable,
            )
            for link in gpu.links or ()
        ]
        gpus.append(gpu if gpu.links is None else replace(gpu, links=tuple(links)))
    return replace(state, gpus=tuple(gpus))


def _nvlink_words(nvlink: NvidiaSmiNvlink) -> str:
    active = Counter(sum(1 for link in gpu.links or () if link.active) for gpu in nvlink.gpus)
    return ", ".join(f"{gpus} x {counted(links, 'link')} active" for links, gpus in active.most_common())


NVLINK_FACT = Fact(
    "nvlink",
    (_STATE, _ERRORS),
    _read_nvlink,
    _nvlink_words,
    row=630,
    about="The GPUs' NVLinks: state, rate and error counters of each.",
)
