"""One group of ranks measured by nccl-tests' own programs, and what they print."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from nodectl.common.counting import counted
from nodectl.errors import ParseError
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.parsers.nccl.nccl_tests import NcclTests, NcclTestsRow, NcclTestsSide, parse_nccl_tests
from nodectl.probes.base import ProbeResult, host_finding
from nodectl.probes.budget import left_s
from nodectl.probes.events import Event, failure, run_program
from nodectl.probes.nccl.groups import Group
from nodectl.probes.nccl.hosts import NAME
from nodectl.probes.nccl.models import with_fits
from nodectl.probes.nccl.proof import HostLog, choice, host_log_of, judged
from nodectl.probes.nccl.run import Case, Run, incomplete, left_out, measurements, unsupported, wrong
from nodectl.transport.base import Transport

_RUN_S = 3600.0
_MARGIN_S = 2.0
_ITERATIONS = 20
_ENDED = 124


@dataclass(frozen=True, slots=True)
class Printed:
    """Hold what the outputs of one collective come to."""

    cases: tuple[Case, ...] = ()
    findings: tuple[Finding, ...] = ()
    cut: tuple[str, ...] = ()


@dataclass(slots=True)
class _Series:
    """Hold what all repetitions printed of one size."""

    out_of_place: list[NcclTestsSide] = field(default_factory=list)
    in_place: list[NcclTestsSide] = field(default_factory=list)


def measure(transport: Transport, group: Group, run: Run) -> ProbeResult:
    """One group from start to end."""
    first = group.parts[0].ready
    if refused := _refusal(group):
        return ProbeResult(findings=(host_finding(NAME, first.name, Status.UNKNOWN, refused, "take --engine torch"),))
    left = left_s(run.options.ends_at)
    args = ("programs", *(f"--{name}={value}" for name, value in _args(group, run, left).items()))
    deadline = _RUN_S if left is None else left + 60.0
    done, events = run_program(transport, first.host, "probes.nccl.probe", args, timeout_s=deadline)
    outputs: dict[str, list[Event]] = defaultdict(list)
    for event in events.of("printed"):
        outputs[event["collective"]].append(event)
    # the runs that were timed log warnings only
    logged = [(event["collective"], event["log"]) for event in (*events.of("proven"), *events.of("printed"))]
    proofs = {
        name: host_log_of(first.name, [line for of, own in logged if of == name for line in own]) for name in outputs
    }
    printed = [read(name, own, group, first.name, proofs[name]) for name, own in outputs.items()]
    cut = [reason for outputs_read in printed for reason in outputs_read.cut]
    cut += [f"{event['collective']}: {event['reason']}" for event in events.of("cut")]
    findings = [
        *(
            unsupported(group.hosts, name, f"nccl-tests has no {name} here", event["text"])
            for event in events.of("unsupported")
            if (name := event["collective"])
        ),
        *(
            left_out(group.hosts, event["collective"], event["asked_bytes"], event["reason"])
            for event in events.of("left")
        ),
        *(finding for outputs_read in printed for finding in outputs_read.findings),
    ]
    if not outputs and not done.ok:
        findings.append(host_finding(NAME, first.name, Status.FAILED, *failure(done, events)))
    logs = [host_log_of(first.name, [line for _, own in logged for line in own])]
    findings += judged(logs[0], run.route_on(first.name), alone=len(group.parts) == 1 and not run.options.through_nics)
    cases = [case for outputs_read in printed for case in outputs_read.cases]
    complete = done.ok and not cut and not any(finding.status is Status.FAILED for finding in findings)
    if not complete:
        findings.append(incomplete(group, len(cases), cut or [finding.actual for finding in findings[:1]]))
    loaded = {"nccl": logs[0].log.version if logs[0].log else None, "programs": first.programs}
    measured = measurements(cases, group, run, logs, loaded, complete=complete)
    return ProbeResult(tuple(with_fits(measured)), tuple(findings))


def read(
    collective: str, outputs: Sequence[Mapping[str, object]], group: Group, host: str, proof: HostLog | None = None
) -> Printed:
    """The repetitions of one collective; text that ends before its summary is incomplete, never a pass.

    `proof` is what NCCL logged of this collective alone.
    """
    findings: list[Finding] = []
    cut: list[str] = []
    sizes: dict[int, _Series] = {}
    for output in outputs:
        if output["status"] == _ENDED:
            cut.append(f"{collective}: the time was over")
        try:
            tests = parse_nccl_tests(str(output["text"]))
        except ParseError as error:
            if output["status"] and output["status"] != _ENDED:
                findings.append(host_finding(NAME, host, Status.FAILED, f"{collective}: {error.message}", error.remedy))
            else:
                cut.append(f"{collective}: {error.message}")
            continue
        if tests.ok is None:
            cut.append(f"{collective}: the output ends before its summary")
        findings += _judged(collective, tests, group, host, output["status"])
        for row in tests.rows:
            series = sizes.setdefault(row.size_bytes, _Series())
            series.out_of_place += [row.out_of_place] if row.out_of_place else []
            series.in_place += [row.in_place] if row.in_place else []
    logs = [proof] if proof else []
    cases = [
        replace(case, chosen=choice(logs, collective, size, group.ranks))
        for size, series in sizes.items()
        if (case := _case(collective, size, series))
    ]
    return Printed(tuple(cases), tuple(dict.fromkeys(findings)), tuple(dict.fromkeys(cut)))


def _case(collective: str, size_bytes: int, series: _Series) -> Case | None:
    """Return None for a size that took no time: nothing was sent."""
    seconds = tuple(side.time_us / 1e6 for side in series.out_of_place if side.time_us)
    if not seconds or not size_bytes:
        return None
    known = [side.wrong for side in (*series.out_of_place, *series.in_place) if side.wrong is not None]
    in_place = [side.busbw_gb_s for side in series.in_place if side.busbw_gb_s is not None]
    printed = [side.busbw_gb_s for side in series.out_of_place if side.busbw_gb_s is not None]
    more = {
        "in_place_busbw_gb_s": median(in_place) if in_place else None,
        "printed_busbw_gb_s": median(printed) if printed else None,
    }
    return Case(collective, size_bytes, seconds, _ITERATIONS, sum(known) if known else None, more=more)


def _judged(collective: str, tests: NcclTests, group: Group, host: str, status: object) -> Iterator[Finding]:
    bad = [row for row in tests.rows if _wrong(row)]
    for row in bad:
        yield wrong(host, collective, row.size_bytes, _wrong(row), f"over {', '.join(group.hosts)}")
    if tests.failures:
        yield host_finding(NAME, host, Status.FAILED, f"{collective}: {tests.failures[0]}")
    elif tests.ok is False and not bad:
        yield host_finding(NAME, host, Status.FAILED, f"{collective}: nccl-tests says FAILED")
    elif status and status != _ENDED and not bad:
        yield host_finding(NAME, host, Status.FAILED, f"{collective}: it ended with exit status {status}")
    if tests.ranks and len(tests.ranks) != group.ranks:
        actual = f"{collective} ran on {counted(len(tests.ranks), 'rank')}, not on {group.ranks}"
        yield host_finding(NAME, host, Status.FAILED, actual, "is it built with MPI, and does mpirun reach all hosts?")


def _wrong(row: NcclTestsRow) -> int:
    return sum(side.wrong or 0 for side in (row.out_of_place, row.in_place) if side is not None)


def _refusal(group: Group) -> str:
    """Why nccl-tests cannot do it; several hosts are one test under mpirun only."""
    if len(group.parts) == 1:
        return ""
    first = group.parts[0].ready
    if group.rail:
        return "nccl-tests cannot be bound to a rail of each host"
    if not all(part.ready.with_mpi for part in group.parts):
        names = ", ".join(part.ready.name for part in group.parts if not part.ready.with_mpi)
        return f"nccl-tests over several hosts must be built with MPI, and they are not on {names}"
    if first.mpirun is None:
        return f"nccl-tests over several hosts need mpirun, and {first.name} has none"
    if any(part.ready.programs != first.programs for part in group.parts):
        return "nccl-tests over several hosts must lie in the same folder on all"
    return ""


def _args(group: Group, run: Run, left: float | None) -> dict[str, object]:
    first, options = group.parts[0], run.options
    several = len(group.parts) > 1
    hosts = [f"{part.ready.endpoint.address}:{part.ranks}" for part in group.parts]
    return {
        "folder": first.ready.programs,
        "gpus": first.ranks,
        "devices": ",".join(map(str, first.devices)),
        "hosts": ",".join(hosts) if several else "",
        "nccl-interface": options.interface or "",
        "nics-only": int(options.through_nics),
        "collectives": ",".join(run.collectives),
        "sizes": ",".join(map(str, options.sizes.bytes)),
        "grow": options.sizes.grow,
        "more": run.more_text,
        "repetitions": run.repetitions,
        "seconds": run.duration_s,
        "deadline": 0.0 if left is None else max(0.1, left - _MARGIN_S),
    }
