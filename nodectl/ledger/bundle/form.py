"""The text for a vendor's form: what NVIDIA asks for before it takes a GPU back, of what nodectl knows.

After NVIDIA's own words: "RMA Process" (docs.nvidia.com/deploy/rma-process, R525: nvidia-bug-report right after the
fault, field diagnosis, that causes in the system are ruled out); "GPU Debug Guidelines"
(docs.nvidia.com/deploy/gpu-debug-guidelines: what was observed, when, how, on how many, how often, what has changed);
DCGM's "General Problem Reporting" (nvidia-bug-report.log.gz and `dcgmi -v`); "XID Errors" (the log's lines).
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

from nodectl import __version__
from nodectl.common.counting import counted
from nodectl.common.few import few
from nodectl.facts.catalogue import facts_named, read_facts
from nodectl.facts.gpu_services import DcgmDiag, DcgmHealth, FabricManager
from nodectl.facts.gpus import Gpu, Gpus
from nodectl.facts.parsers.linux.dmesg import Dmesg, KernelEvent
from nodectl.facts.parsers.nvidia.smi_nvlink import NvidiaSmiNvlink
from nodectl.facts.versions import Versions
from nodectl.ledger.bundle.evidence import Evidence, has_report, told
from nodectl.ledger.events import Event, EventKind
from nodectl.ledger.parts import SUBJECTS, concerned, parts_of
from nodectl.model.acceptance import Part, PartKind
from nodectl.model.finding import Finding
from nodectl.model.recording import Recording
from nodectl.model.status import Status

_SUBJECTS = (
    *("versions", "host_serial", "gpus", "nvlink", "kernel_events", "dcgm_diag", "dcgm_health", "fabric_manager"),
    *SUBJECTS,
)
_NOT_TOLD = "unknown"
_WORST = (Status.FAILED, Status.WARNING, Status.UNKNOWN)
_SHOWN = 200
_FALLEN = 79
_ERRORS = {"xid": "Xid", "sxid": "SXid", "gpu_lost": "GPU lost"}
_T = TypeVar("_T")


@dataclass(frozen=True)
class Look:
    """Hold what a host said at a time."""

    recording: Recording

    @cached_property
    def facts(self) -> Mapping[str, object]:
        """The facts that the form has."""
        return read_facts(self.recording, facts_named(*dict.fromkeys(_SUBJECTS)))

    def get(self, subject: str, kind: type[_T]) -> _T | None:
        """Return a fact, None where it was not told."""
        value = self.facts.get(subject)
        return value if isinstance(value, kind) else None

    def said(self, key: str, pattern: str) -> str:
        """Return what an output says, also where a line beside it lets nobody read all of it as a fact."""
        entry = self.recording.entries.get(key)
        found = re.search(pattern, entry.stdout, re.MULTILINE) if entry else None
        return found[1].strip()[:_SHOWN] if found else ""

    @property
    def boot(self) -> str:
        """The boot's id."""
        return self.said("boot", r"\A([0-9a-f-]{36})$")

    @property
    def booted(self) -> float | None:
        """The time of its boot, in seconds since 1970."""
        uptime_s = self.said("boot", r"^(\d+\.\d+) \d")
        return self.recording.time - float(uptime_s) if self.recording.time and uptime_s else None


@dataclass(frozen=True)
class Case:
    """A host, the part that is asked about, and all that is known of both.

    `now` is what the host says, None where it is silent, with the reason in `silent`. `life` is the ledger's journal,
    `known` are parts that it saw in the host, `faults` the boots in which health saw each fault.
    """

    host: str
    part: Part | None = None
    now: Recording | None = None
    silent: str = ""
    findings: tuple[Finding, ...] = ()
    before: tuple[Evidence, ...] = ()
    life: tuple[Event, ...] = ()
    known: tuple[Part, ...] = ()
    faults: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @cached_property
    def looks(self) -> tuple[Look, ...]:
        """Looks at the host, the newest first."""
        recordings = [*([self.now] if self.now else []), *(evidence.recording for evidence in self.before)]
        return tuple(map(Look, recordings))

    def said(self, key: str, pattern: str) -> str:
        """Return what an output of the newest look that has it says."""
        return next(filter(None, (look.said(key, pattern) for look in self.looks)), "")

    @property
    def model(self) -> str:
        """The maker's name for the machine."""
        words = (self.said("firmware", rf"^{name}\s+(\S.*)$") for name in ("sys_vendor", "product_name"))
        return " ".join(filter(None, words)) or self._of_host("model")

    @property
    def serial(self) -> str:
        """The machine's serial number."""
        said = self.said("host-serial", r"^serial number: (?=\D*\d)(\S{4,64})$")
        return self.newest("host_serial", str) or said or self._of_host("serial")

    def _of_host(self, name: str) -> str:
        hosts = (part for part in self.parts if part.kind is PartKind.HOST)
        return next((str(getattr(part, name)) for part in hosts if getattr(part, name)), _NOT_TOLD)

    def newest(self, subject: str, kind: type[_T]) -> _T | None:
        """Return a fact of the newest look that tells it."""
        return next((value for look in self.looks if (value := look.get(subject, kind)) is not None), None)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """Parts of the host by any look, or by the ledger; each once, as it was seen last."""
        seen = [part for look in self.looks for part in parts_of(self.host, look.facts)]
        own = [self.part] if self.part else []
        return tuple({(part.kind, part.id): part for part in reversed([*seen, *own, *self.known])}.values())[::-1]

    @cached_property
    def told(self) -> tuple[Finding, ...]:
        """Findings of what is wrong: what a reset would end goes first; of a silent host what was found last."""
        wrong = [one for one in self.findings if one.status in _WORST]
        if self.now is None:
            kept = [seen.finding for event in reversed(self.life) for each in event.parts for seen in each.findings]
            wrong = list(dict.fromkeys([*wrong, *kept]))
        return tuple(sorted(wrong, key=lambda one: (not one.ends_traces, one.status.rank)))

    @cached_property
    def suspects(self) -> tuple[Part, ...]:
        """Return the part asked about; else the GPUs that the findings name, else those that are lost, else all."""
        if self.part is not None and self.part.kind is not PartKind.HOST:
            return (self.part,)
        gpus = tuple(part for part in self.parts if part.kind is PartKind.GPU)
        for wrong in ([one for one in self.told if one.ends_traces], self.told):
            named = {part.id for one in wrong for part in concerned(one, self.host, gpus)}
            if named:
                return tuple(part for part in gpus if part.id in named)
        return tuple(self._fallen(gpus)) or gpus

    def _fallen(self, gpus: Iterable[Part]) -> Iterator[Part]:
        """Yield the GPUs that are lost; one that nobody saw before by its place, and as lspci calls it."""
        shown = self.newest("gpus", Gpus)
        lost = [pci for kind, pci, code in self.errors if code == _FALLEN or kind == "gpu_lost"]
        lost += [address.rpartition(".")[0] for address in (shown.lost if shown else ())]
        for bus in dict.fromkeys(place.lower().partition(".")[0][-10:] for place in lost):
            known = next((part for part in gpus if part.place.endswith(f"{bus}.0")), None)
            model = self.said("lspci-acs", rf"(?i)^(?:0000:)?{re.escape(bus[5:])}\.0 [^\n]*?: (NVIDIA [^\n(]+)")
            yield known or Part(PartKind.GPU, "", self.host, model, f"GPU at {bus}.0")

    def gpu(self, part: Part) -> tuple[Gpu, Look] | None:
        """Return what nvidia-smi said last of a GPU, and when."""
        for look in self.looks:
            gpus = look.get("gpus", Gpus)
            found = next((gpu for gpu in gpus.devices if gpu.uuid == part.id), None) if gpus else None
            if found is not None:
                return found, look
        return None

    @cached_property
    def errors(self) -> dict[tuple[str, str, int], dict[str, str]]:
        """Xids, SXids and lost GPUs of all looks by kind, device and number: the text of each by its time."""
        found: dict[tuple[str, str, int], dict[str, str]] = {}
        for look in reversed(self.looks):
            log = look.get("kernel_events", Dmesg)
            for event in log.events if log else ():
                if event.kind in _ERRORS:
                    texts = found.setdefault((event.kind, event.pci or "?", event.code or 0), {})
                    texts.setdefault(f"{_moment(look, event)} {event.text}", event.text)
        return found


def _error_lines(case: Case) -> Iterator[str]:
    """Yield each error with how often and when it came, and its last text."""
    for (kind, pci, code), texts in case.errors.items():
        first, last = (list(texts)[at].partition(" ")[0] for at in (0, -1))
        when = f"at {first}" if first == last else f"first {first}, last {last}"
        often, text = counted(len(texts), "time"), list(texts.values())[-1][:_SHOWN]
        yield f"{_ERRORS[kind]}{f' {code}' if code else ''} on {pci}: {often}, {when}: {text}"


def _moment(look: Look, event: KernelEvent) -> str:
    """Return an event's time as UTC where boot and look tell it, else as the log has it."""
    try:
        since = float(str(event.time))
    except ValueError:
        return (event.time or "?").replace(" ", "_")
    return _utc(look.booted + since) if look.booted else f"{since:.0f}s-after-boot"


def _utc(seconds: float | None) -> str:
    return _NOT_TOLD if seconds is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def form(case: Case, made: float) -> str:
    """Return the text for the form; times are UTC. What nobody told is said so, and left to who sends it."""
    blocks = [
        _head(case, made),
        ["FAULT", *_fault(case)],
        ["SYSTEM", *_system(case)],
        *(
            [f"GPU {number} OF {len(case.suspects)}", *_part(case, part)]
            for number, part in enumerate(case.suspects, 1)
        ),
        ["XID AND SXID ERRORS", *_rows("none in the logs that were kept", _error_lines(case))],
        ["DIAGNOSIS", *_diagnosis(case)],
        ["WHAT WAS TRIED", *_tried(case)],
        ["FINDINGS", *_rows("nothing is wrong now", (f"{one.status} {told(one)}" for one in case.told[:50]))],
        ["FOR YOU TO FILL IN", *_OPEN],
    ]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


_OPEN = (
    "Contact, contract, shipping address:",
    "What ran when it was observed:",
    "What has changed lately (hardware, firmware, driver, application):",
    "Whether the fault stayed with the slot or went with the GPU when it was swapped, cables and seat looked at:",
)


def _rows(nothing: str, lines: Iterable[str]) -> list[str]:
    return list(lines) or [nothing]


def _row(name: str, value: object) -> str:
    return f"{name}: {_word(value)}"


def _word(value: object) -> object:
    return _NOT_TOLD if value in (None, "") else {True: "yes", False: "no"}[value] if isinstance(value, bool) else value


def _head(case: Case, made: float) -> Iterator[str]:
    yield f"GPU fault report, by nodectl {__version__}, {_utc(made)}"
    if case.now is None:
        yield f"The host did not answer ({case.silent}): this is what was kept of it."
    elif case.now.recorded:
        yield f"From a recording: {case.now.recorded}"
    yield _row("State as of", _utc(case.looks[0].recording.time) if case.looks else None)


def _fault(case: Case) -> Iterator[str]:
    """Yield when it was first seen, and one paragraph."""
    wrong = {f"{one.check}|{one.subject}" for one in case.told if one.ends_traces}
    boots = max((len(boots) for fault, boots in case.faults.items() if fault in wrong), default=0)
    yield _row("First seen", _first_seen(case))
    yield _row("Last seen", _utc(case.looks[0].recording.time) if case.looks else None)
    yield _row("Observed by", "nodectl: driver and kernel log, NVML, DCGM")
    main = next((one for one in case.told if one.status is not Status.UNKNOWN), None)
    kept = next(
        ("; ".join(one.reasons) for one in case.before if one.reasons), "no check fails; the sender names the part"
    )
    what = f"{told(main) if main else kept}."
    parts = few([" ".join(filter(None, (part.place, part.model, part.id))) for part in case.suspects], 3)
    xids = few([f"{_ERRORS[kind]} {code or ''} ({len(texts)})" for (kind, _, code), texts in case.errors.items()], 5)
    often = f" Seen in {boots} boots: it came back after a reboot." if boots > 1 else ""
    nameless = "a GPU that tells no identity" if case.errors else "no GPU is named; the machine itself"
    yield (
        f"Description: {parts or nameless} in {case.model}, serial number {case.serial}:"
        f" {what}{f' The kernel log has {xids}.' if xids else ''}{often}"
    )


def _first_seen(case: Case) -> str:
    """Return the time of the first sign of what is wrong; texts of UTC sort by time."""
    wrong = [one for one in case.told if one.status is not Status.UNKNOWN]
    faults = {f"{one.check}|{one.subject}" for one in wrong}
    times = [when for fault, boots in case.faults.items() if fault in faults for when in boots.values()]
    times += [evidence.time for evidence in case.before if evidence.reasons]
    times += [event.time for event in case.life if any(kept.findings for kept in event.parts)]
    times += [look.recording.time for look in case.looks[:1] if wrong and look.recording.time]
    logged = [next(iter(texts))[:20] for (_, pci, _), texts in case.errors.items() if any(pci in one for one in faults)]
    return min([*map(_utc, times), *(moment for moment in logged if moment.endswith("Z"))], default=_NOT_TOLD)


def _system(case: Case) -> Iterator[str]:
    versions, gpus = case.newest("versions", Versions), case.newest("gpus", Gpus)
    manager = case.newest("fabric_manager", FabricManager)
    bios = (case.said("firmware", rf"^{name}\s+(\S.*)$") for name in ("bios_version", "bios_date"))
    yield _row("System model", case.model)
    yield _row("System serial number", case.serial)
    yield _row("BIOS", ", ".join(filter(None, bios)))
    yield _row("OS", case.said("os-release", r'^PRETTY_NAME="?([^"\n]+)'))
    yield _row("Kernel", case.said("uname", r"^Linux (\S+ \S+)"))
    flavour = f" ({versions.driver_flavour})" if versions and versions.driver_flavour else ""
    yield _row(
        "Driver", f"{getattr(versions, 'driver', None) or getattr(gpus, 'driver_version', None) or _NOT_TOLD}{flavour}"
    )
    yield _row("CUDA of the driver", getattr(versions, "driver_cuda", None) or getattr(gpus, "cuda_version", None))
    yield _row("CUDA toolkit", versions and versions.cuda)
    yield _row("Fabric manager", manager and f"{manager.version}, {manager.unit_state or 'state not told'}")
    yield _row("DCGM", case.said("dcgmi-version", r"^(.*\d\.\d.*)$"))
    yield _row("GPUs that the driver shows", gpus and gpus.count)


def _part(case: Case, part: Part) -> Iterator[str]:
    """Yield what the form asks of a GPU; of one that is lost, what was told before."""
    found = case.gpu(part)
    gpu, look = found or (Gpu(), None)
    yield _row("GPU name", gpu.name or part.model)
    yield _row("Place", part.place)
    yield _row("PCI bus id", gpu.bus_id or part.place.partition(" at ")[2])
    yield _row("UUID", part.id)
    yield _row("Serial number", gpu.serial or part.serial)
    yield _row("GPU part number", gpu.part_number)
    yield _row("Board part number", gpu.board_part_number)
    yield _row("VBIOS", gpu.vbios_version)
    yield _row("InfoROM", gpu.inforom_version)
    shown = "" if look and look.recording is case.now else "; the driver no longer shows it"
    yield _row("State as of", f"{_utc(look.recording.time if look else None)}{shown if case.now else ''}")
    if look is not None:
        for name, words in _STATE.items():
            yield _row(name, ", ".join(f"{word} {_word(getattr(gpu, at))}".strip() for word, at in words.items()))
        yield _row("NVLink", _nvlink(look, part))


# of nvidia-smi -q, the field of each word
_STATE = {
    "ECC errors, volatile": {"correctable": "ecc_volatile_correctable", "uncorrectable": "ecc_volatile_uncorrectable"},
    "ECC errors, aggregate": {
        "correctable": "ecc_aggregate_correctable", "uncorrectable": "ecc_aggregate_uncorrectable",
    },
    "Remapped rows": {
        "correctable": "remapped_correctable", "uncorrectable": "remapped_uncorrectable",
        "pending": "remap_pending", "failure": "remap_failure",
    },
    "Retired pages": {
        "single bit": "retired_pages_single_bit", "double bit": "retired_pages_double_bit",
        "pending": "retired_pages_pending",
    },
    "Recovery action of the driver": {"": "recovery_action"},
}  # fmt: skip


def _nvlink(look: Look, part: Part) -> str:
    links = look.get("nvlink", NvidiaSmiNvlink)
    own = next((gpu for gpu in links.gpus if gpu.uuid == part.id), None) if links else None
    if own is None or own.links is None:
        return ""
    active = sum(1 for link in own.links if link.active)
    errors = {f"link {link.link} {name}": count for link in own.links for name, count in link.errors.items() if count}
    said = few([f"{name}: {count}" for name, count in errors.items()], 8) or "no errors counted"
    return f"{active} of {counted(len(own.links), 'link')} active; {said}"


def _diagnosis(case: Case) -> Iterator[str]:
    diag, health = case.newest("dcgm_diag", DcgmDiag), case.newest("dcgm_health", DcgmHealth)
    ends = ", ".join(f"{name} {code or 'passed'}" for name, code in diag.results.items()) if diag else ""
    yield _row("dcgmi diag, last results", ends)
    yield _row("DCGM health", health and "; ".join((health.overall, *health.complaints)))
    seen = [(event, seen) for event in case.life for kept in event.parts for seen in kept.findings]
    for event, one in seen:
        if one.step == "diag" or one.finding.check == "dcgm":
            yield f"dcgmi diag on {_utc(event.time)}: {told(one.finding)}"
    ended = [look for look in case.looks if has_report(look.recording)]
    missing = "not there, or it needs root: the raw outputs have what it would show"
    yield _row("nvidia-bug-report.sh --safe-mode", few([_utc(look.recording.time) for look in ended], 5) or missing)


def _tried(case: Case) -> Iterator[str]:
    """Yield reboots (other boots in what was kept), moves of the part, cordons and returns, in order."""
    rows: list[tuple[float, str]] = []
    for before, after in pairwise([look for look in reversed(case.looks) if look.boot]):
        if before.boot != after.boot:
            rows.append((after.recording.time or 0.0, f"rebooted, at about {_utc(after.booted)}"))
    place = ""
    for event in case.life:
        where = f"{event.host} {event.parts[0].part.place}".strip() if event.parts and case.part else ""
        if event.kind is EventKind.SEEN and where and where != place:
            rows.append((event.time, f"{'moved: ' if place else ''}seen in {where}"))
            place = where
        if event.kind is not EventKind.SEEN:
            rows.append((event.time, f"{event.kind}: {event.reason}"))
        if event.verdict is not None:
            failed = f"; failed: {', '.join(event.failed)}" if event.failed else ""
            rows.append((event.time, f"acceptance: {event.verdict}{failed}"))
    rows += [(kept.time, f"raw outputs kept: {'; '.join(kept.reasons) or 'a recording'}") for kept in case.before]
    yield from _rows("nothing that nodectl knows of", (f"{_utc(when)}: {text}" for when, text in sorted(rows)))
