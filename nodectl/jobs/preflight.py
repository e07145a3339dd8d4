"""How preflight is carried out: one look at every host at once, and one try of the way from each to the first."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nodectl.checks.launch.preflight import common_ports, judge
from nodectl.errors import ParseError
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.preflight import NodeInfo, PreflightRequest
from nodectl.model.result import CommandResult, Outcome
from nodectl.model.status import Status
from nodectl.parsers.linux.preflight import parse_preflight
from nodectl.transport.base import Transport
from nodectl.transport.fanout import fan_out
from nodectl.transport.payload import run_payload

__all__ = ["NodeInfo", "PreflightReport", "PreflightRequest", "run_preflight"]

_LOOK_DEADLINE_S = 60.0
_REACH_S = 5.0
# every host resolves every name: beyond this many, only the first host's
_NAMES_RESOLVED = 64
_SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True)
class PreflightReport:
    """`findings` of all checks, the fine ones too; `nodes` by host name, those that answered; `ports` free on all."""

    findings: tuple[Finding, ...]
    nodes: Mapping[str, NodeInfo]
    ports: tuple[int, ...]


def run_preflight(
    transport: Transport, hosts: Sequence[Host], request: PreflightRequest, forks: int
) -> PreflightReport:
    """Look at `hosts` (the first of them is where ranks meet), judge, and try the way to the first.

    A host that cannot be asked is an unknown finding; nothing is raised for it.
    """
    looks = dict(_look_at_all(transport, hosts, request, forks))
    nodes = {name: found for name, found in looks.items() if isinstance(found, NodeInfo)}
    reached = [found for found in looks.values() if isinstance(found, Finding)]
    if not nodes:
        return PreflightReport(tuple(reached), {}, ())
    in_order = [nodes[host.name] for host in hosts if host.name in nodes]
    ports = common_ports(in_order, request)
    findings = [*reached, *judge(in_order, request)]
    findings += _reach(transport, [host for host in hosts if host.name in nodes], nodes, ports, forks)
    return PreflightReport(tuple(findings), nodes, ports)


def _look_at_all(
    transport: Transport, hosts: Sequence[Host], request: PreflightRequest, forks: int
) -> Sequence[tuple[str, NodeInfo | Finding]]:
    def work(host: Host) -> NodeInfo | Finding:
        return _look(transport, host, hosts, request)

    found = {host.name: result for host, result in fan_out(hosts, work, forks)}
    return [(host.name, found[host.name]) for host in hosts]


def _look(transport: Transport, host: Host, hosts: Sequence[Host], request: PreflightRequest) -> NodeInfo | Finding:
    heard = _Heard()
    asked = json.dumps(_question(host, hosts, request)).encode()
    done = run_payload(transport, host, "preflight", ["look"], timeout_s=_LOOK_DEADLINE_S, stdin=asked, on_output=heard)
    if not done.ok:
        return _not_reached(done, heard)
    try:
        return parse_preflight(heard.text, host.name, heard.clock_offset_s)
    except ParseError as error:
        return _unknown(host.name, error.message, f"run `nodectl exec --limit {host.name} -- python3 -V`")


def _question(host: Host, hosts: Sequence[Host], request: PreflightRequest) -> dict[str, object]:
    named = hosts if len(hosts) <= _NAMES_RESOLVED else hosts[:1]
    return {
        "address": host.address,
        "others": [other.address for other in hosts if other != host][:8],
        "peers": [other.name for other in named],
        "ports": list(request.candidate_ports),
        "interface": request.interface or "",
        "launcher": request.launcher,
        "venv": request.venv or "",
        "checkpoint_dir": request.checkpoint_dir or "",
    }


@dataclass(slots=True)
class _Heard:
    """What a host says, and how far its clock is off.

    The time of a line's arrival can only be late, never early, so the largest difference is the truest.
    """

    said: dict[str, bytearray] = field(default_factory=lambda: {"stdout": bytearray(), "stderr": bytearray()})
    clock_offset_s: float | None = None
    first_line: threading.Event = field(default_factory=threading.Event)
    _read: int = 0

    def __call__(self, stream: str, data: bytes) -> None:
        arrived_at = time.time()
        self.said[stream] += data
        while stream == "stdout" and (end := self.said["stdout"].find(b"\n", self._read)) >= 0:
            self._note_clock(bytes(self.said["stdout"][self._read : end]), arrived_at)
            self._read = end + 1
            self.first_line.set()

    def _note_clock(self, line: bytes, arrived_at: float) -> None:
        if line.startswith(b'{"clock": '):
            offset_s = float(line[len(b'{"clock": ') : -1]) - arrived_at
            self.clock_offset_s = offset_s if self.clock_offset_s is None else max(offset_s, self.clock_offset_s)

    @property
    def text(self) -> str:
        """Standard output."""
        return self.said["stdout"].decode(errors="replace")


def _not_reached(done: CommandResult, heard: _Heard) -> Finding:
    if done.outcome is not Outcome.RAN:
        return _unknown(done.host, done.error, done.remedy or "bring it back, or leave it out with --limit")
    last_words = heard.said["stderr"].decode(errors="replace").strip().splitlines()
    said = (done.error or (last_words[-1] if last_words else f"exit status {done.exit_status}"))[:_SHOWN_CHARS]
    if not done.error:
        return _unknown(
            done.host, said, f"run `nodectl exec --limit {done.host} -- python3 -V`: 3.8 or later is needed"
        )
    # it was reached, and what a job needs first is missing there: Python, or room for the payload
    remedy = done.remedy or f"make room in the state folder of the login user on {done.host}"
    return Finding(
        done.host, "payload", Status.FAILED, expected="nodectl's programs run there", actual=said, remedy=remedy
    )


def _unknown(host: str, actual: str, remedy: str) -> Finding:
    return Finding(host, "reachable", Status.UNKNOWN, expected="answers over SSH", actual=actual, remedy=remedy)


def _reach(
    transport: Transport, hosts: Sequence[Host], nodes: Mapping[str, NodeInfo], ports: Sequence[int], forks: int
) -> list[Finding]:
    """Let every host open both ports of the first one: a firewall shows here, not ten minutes into the start."""
    if len(hosts) < 2 or len(ports) < 2 or not all(node.address for node in nodes.values()):
        return []
    first = nodes[hosts[0].name]
    common = {"address": first.address, "tcp_port": ports[0], "udp_port": ports[1], "token": secrets.token_hex(8)}
    waves = -(-len(hosts) // forks)
    listening = {**common, "expected": len(hosts) - 1, "seconds": 3 * _REACH_S * waves}
    heard = _Heard()
    server = threading.Thread(target=_listen, args=(transport, hosts[0], listening, heard), daemon=True)
    server.start()
    heard.first_line.wait(2 * _REACH_S)

    def work(host: Host) -> Finding:
        asked = {**common, "source": nodes[host.name].address, "seconds": _REACH_S}
        return _try_way(transport, host, asked, hosts[0].name)

    findings = [finding for _, finding in fan_out(hosts[1:], work, forks)]
    if all(finding.status is Status.OK for finding in findings):
        server.join(_REACH_S)  # the job wants these ports next
    return findings


def _listen(transport: Transport, host: Host, request: Mapping[str, object], heard: _Heard) -> None:
    asked = json.dumps(request).encode()
    run_payload(transport, host, "preflight", ["listen"], timeout_s=_LOOK_DEADLINE_S, stdin=asked, on_output=heard)
    heard.first_line.set()


def _try_way(transport: Transport, host: Host, request: Mapping[str, object], first: str) -> Finding:
    asked = json.dumps(request).encode()
    done = run_payload(transport, host, "preflight", ["connect"], timeout_s=4 * _REACH_S, stdin=asked)
    expected = f"opens TCP {request['tcp_port']} and UDP {request['udp_port']} of {first} ({request['address']})"
    if not done.ok:
        said = done.error or done.stderr.strip()[-_SHOWN_CHARS:]
        return Finding(host.name, "way_to_first", Status.UNKNOWN, first, expected=expected, actual=said)
    answer = json.loads(done.stdout)
    wrong = [f"{protocol.upper()}: {answer[protocol]}" for protocol in ("tcp", "udp") if answer[protocol]]
    if not wrong:
        return Finding(host.name, "way_to_first", Status.OK, first, expected=expected, actual="both answer")
    return Finding(
        host.name,
        "way_to_first",
        Status.FAILED,
        first,
        expected=expected,
        actual="; ".join(wrong),
        remedy=f"open the firewalls between {host.name} and {first} for the job's ports, or choose another --interface",
    )
