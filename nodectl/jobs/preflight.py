"""How preflight is carried out: one look at every host at once, and one try of the way from each to the first."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nodectl.checks.catalogue import launch_judgements
from nodectl.checks.launch.candidate import PAYLOAD, REACHABLE, WAY_TO_FIRST, Candidate, JobNeeds, JointJudgement
from nodectl.checks.launch.together import common_ports
from nodectl.common import bounded_json
from nodectl.facts.base import Fact
from nodectl.facts.catalogue import commands_for, facts_named, read_facts
from nodectl.facts.job import KEY, KINDS, job_facts
from nodectl.model.facts import Unread
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.recording import Entry, Recording
from nodectl.model.result import CommandResult
from nodectl.model.status import Status
from nodectl.recordings.collect import collect
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
# every host resolves every name: beyond this many, only the first host's
_NAMES_RESOLVED = 64
_SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True)
class PreflightReport:
    """`findings` of all checks, the fine ones too; those hosts that answered, by name; `ports` free on all of them."""

    findings: tuple[Finding, ...]
    candidates: Mapping[str, Candidate]
    ports: tuple[int, ...]


def run_preflight(transport: Transport, hosts: Sequence[Host], needs: JobNeeds, forks: int) -> PreflightReport:
    """Look at `hosts` (the first of them is where ranks meet), judge, and try the way to the first.

    A host that cannot be asked is an unknown finding; nothing is raised for it.
    """

    def work(host: Host) -> Candidate | Finding:
        return _look(transport, host, hosts, needs)

    answers = {host.name: answer for host, answer in fan_out(hosts, work, forks)}
    in_order = [answers[host.name] for host in hosts]
    not_asked = [answer for answer in in_order if isinstance(answer, Finding)]
    candidates = [answer for answer in in_order if isinstance(answer, Candidate)]
    if not candidates:
        return PreflightReport(tuple(not_asked), {}, ())
    ports = common_ports(candidates, needs)
    findings = [*not_asked, *judge(candidates), *_reach(transport, hosts, candidates, ports, forks)]
    return PreflightReport(tuple(findings), {candidate.host: candidate for candidate in candidates}, ports)


def judge(candidates: Sequence[Candidate]) -> list[Finding]:
    """The findings of all checks: of each host by itself, then of all together."""
    alone = [judgement for judgement in launch_judgements() if not isinstance(judgement, JointJudgement)]
    together = [judgement for judgement in launch_judgements() if isinstance(judgement, JointJudgement)]
    return [
        *(finding for candidate in candidates for judgement in alone for finding in judgement(candidate)),
        *(finding for judgement in together for finding in judgement(candidates)),
    ]


def _look(transport: Transport, host: Host, hosts: Sequence[Host], needs: JobNeeds) -> Candidate | Finding:
    facts = _facts(payload_argv(_PROGRAM, ["look", json.dumps(_question(host, hosts, needs))], bare=True))
    answer = collect(transport, host, commands_for(host, facts))
    if isinstance(answer, Recording) and lacks_payload(*_status(answer)):
        copied = copy_payload(transport, host, timeout_s=_LOOK_DEADLINE_S)
        if not copied.ok:
            return _not_copied(copied)
        answer = collect(transport, host, commands_for(host, facts))
    if not isinstance(answer, Recording):
        return _unknown(host.name, answer.error, answer.remedy or "bring it back, or leave it out with --limit")
    values = read_facts(answer, facts)
    look = values["names"]
    if not isinstance(look, Unread):
        return Candidate(host.name, values, None, needs=needs, hosts=len(hosts))
    if lacks_python(*_status(answer)):
        return _no_payload(host.name, "no python3 on the host", INSTALL_PYTHON)
    return _unknown(host.name, _last_words(answer.entries.get(KEY), look), _OLD_PYTHON.format(host=host.name))


_OLD_PYTHON = "run `nodectl exec --limit {host} -- python3 -V`: 3.8 or later is needed"


def _facts(argv: Sequence[str]) -> tuple[Fact[Any], ...]:
    """The facts that preflight's checks read, its own program's (`argv`) among them."""
    read = {name for judgement in launch_judgements() for name in judgement.reads}
    return *job_facts(argv), *facts_named(*sorted(read - set(KINDS)))


def _question(host: Host, hosts: Sequence[Host], needs: JobNeeds) -> dict[str, object]:
    named = hosts if len(hosts) <= _NAMES_RESOLVED else hosts[:1]
    return {
        "address": host.address,
        "others": [other.address for other in hosts if other != host][:8],
        "peers": [other.name for other in named],
        "ports": list(needs.candidate_ports),
        "interface": needs.interface or "",
        "launcher": needs.launcher,
        "venv": needs.venv or "",
        "checkpoint_dir": needs.checkpoint_dir or "",
    }


def _status(recording: Recording) -> tuple[int | None, str]:
    entry = recording.entries.get(KEY)
    return (None, "") if entry is None else (entry.exit_status, entry.stderr)


def _last_words(entry: Entry | None, unread: Unread) -> str:
    """What the program on the host complained of last, else why its answer could not be read."""
    words = entry.stderr.strip().splitlines() if entry is not None and entry.exit_status else []
    return (words[-1] if words else unread.reason)[:_SHOWN_CHARS]


def _not_copied(copied: CommandResult) -> Finding:
    if copied.exit_status is None:
        return _unknown(copied.host, copied.error, copied.remedy or "bring it back, or leave it out with --limit")
    room = f"make room in the state folder of the login user on {copied.host}"
    return _no_payload(copied.host, copied.error[:_SHOWN_CHARS], copied.remedy or room)


def _no_payload(host: str, actual: str, remedy: str) -> Finding:
    """The finding on a host that answers but lacks Python, or room for the payload."""
    expected = "nodectl's programs run there"
    return Finding(host, PAYLOAD.id, Status.FAILED, expected=expected, actual=actual, remedy=remedy)


def _unknown(host: str, actual: str, remedy: str) -> Finding:
    return Finding(host, REACHABLE.id, Status.UNKNOWN, expected="answers over SSH", actual=actual, remedy=remedy)


def _reach(
    transport: Transport, all_hosts: Sequence[Host], candidates: Sequence[Candidate], ports: Sequence[int], forks: int
) -> list[Finding]:
    """Let every host open both ports of the first one: a firewall shows here, not ten minutes into the start."""
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
    waves = -(-len(hosts) // forks)
    listening = {**common, "expected": len(hosts) - 1, "seconds": 3 * _REACH_S * waves}
    listens = threading.Event()
    server = threading.Thread(target=_listen, args=(transport, hosts[0], listening, listens), daemon=True)
    server.start()
    listens.wait(2 * _REACH_S)

    def work(host: Host) -> Finding:
        asked = {**common, "source": addresses[host.name], "seconds": _REACH_S}
        return _try_way(transport, host, asked, hosts[0].name)

    findings = [finding for _, finding in fan_out(hosts[1:], work, forks)]
    if all(finding.status is Status.OK for finding in findings):
        server.join(_REACH_S)  # the job wants these ports next
    return findings


def _listen(transport: Transport, host: Host, request: Mapping[str, object], listens: threading.Event) -> None:
    """Let the host listen to its end; `listens` is set once it does, which it says by a line, or cannot."""

    def first_line(stream: str, data: bytes) -> None:
        if stream == "stdout" and b"\n" in data:
            listens.set()

    asked, deadline_s = json.dumps(request).encode(), _LOOK_DEADLINE_S
    run_payload(
        transport, host, _PROGRAM, ["listen"], timeout_s=deadline_s, stdin=asked, bare=True, on_output=first_line
    )
    listens.set()


def _try_way(transport: Transport, host: Host, request: Mapping[str, object], first: str) -> Finding:
    asked = json.dumps(request).encode()
    done = run_payload(transport, host, _PROGRAM, ["connect"], timeout_s=4 * _REACH_S, stdin=asked, bare=True)
    expected = f"opens TCP {request['tcp_port']} and UDP {request['udp_port']} of {first} ({request['address']})"
    finding = Finding(host.name, WAY_TO_FIRST.id, Status.OK, first, expected=expected, actual="both answer")
    if not done.ok:
        return replace(finding, status=Status.UNKNOWN, actual=done.error or done.stderr.strip()[-_SHOWN_CHARS:])
    try:
        answer = bounded_json.loads(done.stdout)
        wrong = [f"{protocol.upper()}: {answer[protocol]}" for protocol in ("tcp", "udp") if answer[protocol]]
    except (ValueError, KeyError, TypeError) as error:
        return replace(finding, status=Status.UNKNOWN, actual=f"its answer is not understood: {error!r}")
    if not wrong:
        return finding
    remedy = f"open the firewalls between {host.name} and {first} for the job's ports, or choose another --interface"
    return replace(finding, status=Status.FAILED, actual="; ".join(wrong), remedy=remedy)
