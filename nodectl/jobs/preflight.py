"""Carries preflight out: looks at every host at once, and tries the connection from each to the first."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from nodectl.checks.catalogue import launch_checks, launch_judgements
from nodectl.checks.launch.candidate import PAYLOAD, REACHABLE, WAY_TO_FIRST, Candidate, JobNeeds, JointJudgement
from nodectl.checks.launch.together import common_ports
from nodectl.common import bounded_json
from nodectl.common.nodeset import fold
from nodectl.common.spelling import meant
from nodectl.errors import ParseError, UsageError
from nodectl.facts.catalogue import commands_for, facts_named, read_facts
from nodectl.facts.job import KEY, KINDS, RdmaDevices, job_facts
from nodectl.facts.network import Nic, nics_in
from nodectl.model.facts import Unread
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.recording import Recording
from nodectl.model.result import CommandResult
from nodectl.model.status import Status
from nodectl.payload.common.frames import Reader
from nodectl.payload.jobs.container import APPTAINER, ENGINES
from nodectl.recordings.collect import collect
from nodectl.topology.interfaces import Network, choose, interfaces_of, networks_of
from nodectl.transport.base import Transport
from nodectl.transport.fanout import fan_out
from nodectl.transport.payload import (
    INSTALL_PYTHON,
    copy_payload,
    lacks_payload,
    lacks_python,
    payload_argv,
    run_payload,
)

__all__ = ["JobNeeds", "PreflightReport", "run_preflight"]

_PROGRAM = "jobs.preflight.answer"
_LOOK_DEADLINE_S = 60.0
_REACH_S = 5.0
_REACH_AGAIN_S = 15.0
_LISTENS_S = 120.0
_SHOWN_CHARS = 200
# engines that an environment holds as a package of their name, beside torch
_PACKAGES = ("deepspeed", "accelerate")


@dataclass(frozen=True, slots=True)
class PreflightReport:
    """`findings` of all checks, the fine ones too; those hosts that answered, by name; `ports` free on all of them."""

    findings: tuple[Finding, ...]
    candidates: Mapping[str, Candidate]
    ports: tuple[int, ...]


def run_preflight(transport: Transport, hosts: Sequence[Host], needs: JobNeeds, forks: int) -> PreflightReport:
    """Judge each host and its connection to the first one; a host that cannot be asked is an unknown finding."""

    def work(host: Host) -> Candidate | Finding:
        return _look(transport, host, hosts, needs)

    answers = {host.name: answer for host, answer in fan_out(hosts, work, forks)}
    in_order = [answers[host.name] for host in hosts]
    not_asked = [answer for answer in in_order if isinstance(answer, Finding)]
    candidates = with_best_interface(hosts, [answer for answer in in_order if isinstance(answer, Candidate)])
    if not candidates:
        return PreflightReport(tuple(not_asked), {}, ())
    ports = common_ports(candidates, needs)
    findings = [*not_asked, *judge(candidates), *_reach(transport, hosts, candidates, ports, forks)]
    return PreflightReport(tuple(findings), {candidate.host: candidate for candidate in candidates}, ports)


def with_best_interface(hosts: Sequence[Host], candidates: Sequence[Candidate]) -> list[Candidate]:
    """Give candidates the interface that topology would take, if nobody named one and all share a network."""
    needs, by_name = candidates[0].needs if candidates else None, {host.name: host for host in hosts}
    if needs is None or needs.interface is not None or len(candidates) < 2:
        return list(candidates)
    rdma = all(candidate.known("rdma_devices", RdmaDevices).names for candidate in candidates)
    named = [(by_name[candidate.host], nics_in(candidate.facts)) for candidate in candidates]
    # a virtual NIC, whose speed the kernel does not know, may lead nowhere
    real = [(host, {name: nic for name, nic in nics.items() if (nic.speed_mbit or 0) > 0}) for host, nics in named]
    best = choose(real, rdma=rdma)
    chosen = {host.name: nics.get(best[host.name].interface) for host, nics in named}
    networks = [networks_of(nic) for nic in chosen.values() if nic is not None]
    shared = set.intersection(*networks) if len(networks) == len(candidates) else set()
    if len(shared) != 1:
        return list(candidates)
    return [_on(candidate, chosen[candidate.host], next(iter(shared))) for candidate in candidates]


def _on(candidate: Candidate, nic: Nic | None, network: Network) -> Candidate:
    there = candidate.address
    if nic is None or nic.name == there.interface:
        return candidate
    shared = next(interface for interface in interfaces_of(nic) if interface.network == network)
    address = replace(
        there,
        address=str(shared.ip),
        network=str(network),
        interface=nic.name,
        mtu=nic.mtu,
        link_up=nic.carrier is not False,
    )
    return replace(candidate, facts={**candidate.facts, "job_address": address})


def judge(candidates: Sequence[Candidate]) -> list[Finding]:
    """Judge each host by itself, then all together."""
    alone = [judgement for judgement in launch_judgements() if not isinstance(judgement, JointJudgement)]
    together = [judgement for judgement in launch_judgements() if isinstance(judgement, JointJudgement)]
    return [
        *(finding for candidate in candidates for judgement in alone for finding in judgement(candidate)),
        *(finding for judgement in together for finding in judgement(candidates)),
    ]


def _look(transport: Transport, host: Host, hosts: Sequence[Host], needs: JobNeeds) -> Candidate | Finding:
    needs = needs.of(host.name)
    argv = payload_argv(_PROGRAM, ["look", json.dumps(_question(host, hosts, needs))], bare=True)
    read = {"nics", *(name for judgement in launch_judgements() for name in judgement.reads)}
    facts = *job_facts(argv), *facts_named(*sorted(read - set(KINDS)))
    answer = collect(transport, host, commands_for(host, facts))
    if isinstance(answer, Recording) and lacks_payload(*_status(answer)):
        copied = copy_payload(transport, host, timeout_s=_LOOK_DEADLINE_S)
        if not copied.ok:
            return _not_copied(copied)
        answer = collect(transport, host, commands_for(host, facts))
    if not isinstance(answer, Recording):
        return _unknown(host.name, answer.error, answer.remedy or "repair the host, or leave it out with --limit")
    values = read_facts(answer, facts)
    look = values["names"]
    if not isinstance(look, Unread):
        return Candidate(host.name, values, None, host.variables, needs=needs, hosts=len(hosts))
    if lacks_python(*_status(answer)):
        return _no_payload(host.name, "the host has no python3", INSTALL_PYTHON)
    entry = answer.entries.get(KEY)
    lines = entry.stderr.strip().splitlines() if entry is not None and entry.exit_status else []
    actual = (lines[-1] if lines else look.reason)[:_SHOWN_CHARS]
    return _unknown(host.name, actual, _OLD_PYTHON.format(host=host.name))


_OLD_PYTHON = "run `nodectl exec --limit {host} -- python3 -V`: 3.8 or later is needed"


def _question(host: Host, hosts: Sequence[Host], needs: JobNeeds) -> dict[str, object]:
    # Apptainer runs a file
    engines = [engine for engine in ENGINES if needs.image and (engine == APPTAINER) == needs.image.startswith("/")]
    return {
        "address": host.address,
        "others": [other.address for other in hosts if other != host][:8],
        "ports": list(needs.candidate_ports),
        "interface": needs.interface or "",
        "launcher": needs.launcher,
        "venv": needs.venv or "",
        "checkpoint_dir": needs.checkpoint_dir or "",
        "paths": needs.paths,
        "image": needs.image,
        "engines": engines,
        "engine": needs.engine if needs.engine in _PACKAGES else "",
    }


def _status(recording: Recording) -> tuple[int | None, str]:
    entry = recording.entries.get(KEY)
    return (None, "") if entry is None else (entry.exit_status, entry.stderr)


def _not_copied(copied: CommandResult) -> Finding:
    if copied.exit_status is None:
        return _unknown(copied.host, copied.error, copied.remedy or "repair the host, or leave it out with --limit")
    room = f"make room in the state folder of the login user on {copied.host}"
    return _no_payload(copied.host, copied.error[:_SHOWN_CHARS], copied.remedy or room)


def _no_payload(host: str, actual: str, remedy: str) -> Finding:
    expected = "nodectl's programs run there"
    return Finding(host, PAYLOAD.id, Status.FAILED, expected=expected, actual=actual, remedy=remedy)


def _unknown(host: str, actual: str, remedy: str) -> Finding:
    return Finding(host, REACHABLE.id, Status.UNKNOWN, expected="an answer", actual=actual, remedy=remedy)


def _reach(
    transport: Transport, all_hosts: Sequence[Host], candidates: Sequence[Candidate], ports: Sequence[int], forks: int
) -> list[Finding]:
    """Let every host open both ports of the first one; a host without an answer tries again, for longer."""
    addresses = {candidate.host: candidate.address.address for candidate in candidates}
    if len(addresses) < 2 or len(ports) < 2 or not all(addresses.values()):
        return []
    hosts = [host for host in all_hosts if host.name in addresses]
    common = {
        "address": addresses[hosts[0].name],
        "tcp_port": ports[0],
        "udp_port": ports[1],
        "token": secrets.token_hex(8),
    }
    # a host that asks before the listener is ready asks again, so it is not waited for
    listener = _Listener(transport, hosts[0], {**common, "expected": len(hosts) - 1, "seconds": _LISTENS_S})
    findings: dict[str, Finding] = {}
    asking = hosts[1:]
    for seconds in (_REACH_S, _REACH_AGAIN_S):

        def work(host: Host, seconds: float = seconds) -> Finding:
            asked = {**common, "source": addresses[host.name], "seconds": seconds}
            return _try_way(transport, host, asked, hosts[0].name)

        findings |= {host.name: finding for host, finding in fan_out(asking, work, forks)}
        asking = [host for host in asking if findings[host.name].status is Status.FAILED]
        if not asking:
            break
        if not listener.listens():
            return [_cannot_listen(host, hosts[0], listener.problem) for host in hosts[1:]]
    if all(finding.status is Status.OK for finding in findings.values()):
        listener.join(_REACH_S)  # the job wants these ports next
    return [findings[host.name] for host in hosts[1:]]


def _cannot_listen(host: Host, first: Host, problem: str) -> Finding:
    return Finding(
        host.name,
        WAY_TO_FIRST.id,
        Status.UNKNOWN,
        first.name,
        expected=f"opens the job's ports of {first.name}",
        actual=f"{first.name} could not listen: {problem}",
        remedy="launch again: nodectl will try other ports",
    )


class _Listener:
    """The listener on the first host, run in a thread."""

    def __init__(self, transport: Transport, host: Host, request: Mapping[str, object]) -> None:
        self.problem = "it did not begin in time"
        self._reader = Reader()
        self._begun = threading.Event()
        self._is_listening = False
        asked = json.dumps(request).encode()

        def run() -> None:
            done = run_payload(
                transport, host, _PROGRAM, ["listen"],
                timeout_s=_LISTENS_S + _LOOK_DEADLINE_S, stdin=asked, bare=True, on_output=self._take,
            )  # fmt: skip
            if not self._is_listening:
                lines = (done.error or done.stderr).strip().splitlines()
                self.problem = lines[-1][:_SHOWN_CHARS] if lines else f"exit status {done.exit_status}"
            self._begun.set()

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def listens(self) -> bool:
        """Tell whether the listener is ready; False if it fails or is not ready in time."""
        self._begun.wait(_LOOK_DEADLINE_S)
        return self._is_listening

    def join(self, timeout_s: float) -> None:
        """Wait until the listener has released its ports."""
        self._thread.join(timeout_s)

    def _take(self, stream: str, data: bytes) -> None:
        with suppress(ValueError):  # its report is damaged
            if stream == "stdout" and self._reader.feed(data):
                self._is_listening = True
                self._begun.set()


def _try_way(transport: Transport, host: Host, request: Mapping[str, object], first: str) -> Finding:
    asked = json.dumps(request).encode()
    done = run_payload(transport, host, _PROGRAM, ["connect"], timeout_s=_LOOK_DEADLINE_S, stdin=asked, bare=True)
    expected = f"opens TCP {request['tcp_port']} and UDP {request['udp_port']} of {first} ({request['address']})"
    finding = Finding(host.name, WAY_TO_FIRST.id, Status.OK, first, expected=expected, actual="both answer")
    if not done.ok:
        return replace(finding, status=Status.UNKNOWN, actual=done.error or done.stderr.strip()[-_SHOWN_CHARS:])
    try:
        answer = bounded_json.document(host.name, done.stdout)
        wrong = [f"{protocol.upper()}: {answer[protocol]}" for protocol in ("tcp", "udp") if answer[protocol]]
    except (ParseError, KeyError, TypeError) as error:
        return replace(finding, status=Status.UNKNOWN, actual=f"its answer cannot be understood: {error!r}")
    if not wrong:
        return finding
    remedy = f"open the firewalls between {host.name} and {first} for the job's ports, or choose another --interface"
    return replace(finding, status=Status.FAILED, actual="; ".join(wrong), remedy=remedy)


_BAD = (Status.FAILED, Status.UNKNOWN)


def passing(hosts: Sequence[Host], findings: Sequence[Finding]) -> list[Host]:
    """Return the hosts without a fault; the first host has it if most others find no way to it."""
    bad = [finding for finding in findings if finding.status in _BAD]
    ways = {finding.host for finding in bad if finding.check == WAY_TO_FIRST.id}
    faulty = {finding.host for finding in bad if finding.check != WAY_TO_FIRST.id}
    faulty |= {hosts[0].name} if 2 * len(ways) > len(hosts) - 1 else ways
    return [host for host in hosts if host.name not in faulty]


_CHECK_PREFIX = "launch_"
# checks that cannot be skipped: without what they look at, nothing can be started
_NEEDED = ("launch_reachable", "launch_payload", "launch_interface", "launch_ports")
_FINE = (Status.OK, Status.SKIPPED)


def skipped_checks(names: Iterable[str]) -> tuple[str, ...]:
    """Ids of the named checks, with or without `launch_`; UsageError for what is none, or cannot be left out."""
    launch_ids = launch_checks()
    checks = []
    for name in dict.fromkeys(names):
        check = name if name in launch_ids else _CHECK_PREFIX + name
        if check not in launch_ids:
            short = [check_id.removeprefix(_CHECK_PREFIX) for check_id in launch_ids if check_id not in _NEEDED]
            raise UsageError(
                f"--skip {name}: preflight has no check of that name",
                f"{meant(name, short)}there are: {', '.join(short)}",
            )
        if check in _NEEDED:
            raise UsageError(f"--skip {name}: no job can start without this check", "mend what it finds")
        checks.append(check)
    return tuple(checks)


def parted(findings: Sequence[Finding], checks: Collection[str]) -> tuple[list[Finding], list[Finding]]:
    """Separate the findings that count from those that are skipped."""
    kept = [finding for finding in findings if finding.check not in checks]
    return kept, [finding for finding in findings if finding.check in checks]


def skipped_lines(checks: Sequence[str], skipped: Sequence[Finding]) -> tuple[str, ...]:
    """Return a line a check and what it had found: `launch_clock: failed on node03: 6.0 s ahead`."""
    lines = []
    for check in checks:
        bad = [finding for finding in skipped if finding.check == check and finding.status not in _FINE]
        statuses = {finding.actual: finding.status for finding in bad}
        for actual, status in statuses.items():
            hosts = fold(finding.host for finding in bad if finding.actual == actual)
            lines.append(f"{check}: {status} on {hosts}: {actual}")
        if not bad:
            lines.append(f"{check}: it had found nothing")
    return tuple(lines)
