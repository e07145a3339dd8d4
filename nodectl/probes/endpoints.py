"""Where each host takes part in a probe, asked before anything is measured."""

from collections.abc import Sequence
from dataclasses import dataclass

from nodectl.facts.versions import venv_of
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.result import CommandResult, Outcome
from nodectl.model.status import Status
from nodectl.probes.base import ProbeOptions, host_finding
from nodectl.probes.events import Event, Events
from nodectl.transport.base import Transport
from nodectl.transport.fanout import fan_out
from nodectl.transport.payload import run_payload

_DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A host's side of a probe; None where the tool is not there."""

    host: Host
    address: str
    interface: str
    mtu: int | None
    free_port: int
    iperf3: str | None
    torch: str | None
    gpus: int


def find_endpoints(
    transport: Transport, hosts: Sequence[Host], probe: str, options: ProbeOptions
) -> tuple[list[Endpoint], list[Finding]]:
    """The endpoints of the hosts that answer, in the hosts' order, and a finding for each that does not."""
    found = dict(fan_out(hosts, lambda host: _ask(transport, host, options), options.forks))
    endpoints = [each for host in hosts if isinstance(each := found[host], Endpoint)]
    findings = [
        host_finding(probe, host.name, Status.UNKNOWN, each[0], each[1])
        for host in hosts
        if isinstance(each := found[host], tuple)
    ]
    return endpoints, findings


def failure(done: CommandResult, events: Events) -> tuple[str, str]:
    """(reason, remedy) of a payload run that failed, in its own words where it has some."""
    errors = events.of("error")
    if errors:
        return str(errors[0].get("text")), str(errors[0].get("remedy", ""))
    if done.outcome is not Outcome.RAN:
        return done.error or str(done.outcome), done.remedy
    return events.complaint() or done.error or f"exit status {done.exit_status}", done.remedy


def _ask(transport: Transport, host: Host, options: ProbeOptions) -> Endpoint | tuple[str, str]:
    events = Events()
    args = ["--address", host.address, "--venv", venv_of(host)]
    if options.interface:
        args += ["--interface", options.interface]
    done = run_payload(transport, host, "endpoint", args, timeout_s=_DEADLINE_S, on_output=events.add)
    answers = events.of("endpoint")
    return _endpoint(host, answers[0]) if done.ok and answers else failure(done, events)


def _endpoint(host: Host, answer: Event) -> Endpoint:
    values = {key: value for key, value in answer.items() if key != "event"}
    return Endpoint(host=host, **values)
