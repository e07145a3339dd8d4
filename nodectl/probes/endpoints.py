"""The place where each host takes part in a probe, asked before anything is measured."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from nodectl.facts.versions import venv_of
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.probes.base import ProbeOptions, host_finding
from nodectl.probes.events import Event, failure, run_program
from nodectl.transport.base import Transport
from nodectl.transport.fanout import fan_out

_DEADLINE_S = 30.0
NOT_PROVISIONED = "run `nodectl provision` for it, activate its environment here, or name it by pytorch_venv"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A host's side of a probe; None if the tool is not there.

    `machine` is the same for hosts that are containers of one machine, or of a lab; empty if it is not known.
    """

    host: Host
    address: str
    interface: str
    mtu: int | None
    free_port: int
    iperf3: str | None
    torch: str | None
    gpus: int
    machine: str = ""
    speed_mbit: int | None = None

    @property
    def name(self) -> str:
        """Return the name of the host."""
        return self.host.name


def without_torch(probe: str, host: Host) -> Finding:
    """Return the finding for a host whose environment has no torch."""
    return host_finding(probe, host.name, Status.UNKNOWN, f"no torch in {venv_of(host)}", NOT_PROVISIONED)


T = TypeVar("T")


def on_one_machine(endpoints: Sequence[Endpoint]) -> bool:
    """Return whether some of them share a machine, whose processors make one wait for another."""
    machines = [endpoint.machine for endpoint in endpoints if endpoint.machine]
    return len(set(machines)) < len(machines)


@dataclass(frozen=True, slots=True)
class Look:
    """The program that asks a host, its arguments, the event in which it answers, and the Python where not python3."""

    module: str
    args: Callable[[Host], Sequence[str]]
    event: str
    timeout_s: float
    python: Callable[[Host], str] | None = None


def ask_all(
    transport: Transport,
    hosts: Sequence[Host],
    probe: str,
    look: Look,
    read: Callable[[Host, Event], T | Finding],
    forks: int,
) -> tuple[list[T], list[Finding]]:
    """Return what `read` makes of each host's answer, in the hosts' order, and a finding for each that is not ready."""

    def ask(host: Host) -> T | Finding:
        python = look.python(host) if look.python else None
        args = look.args(host)
        done, events = run_program(transport, host, look.module, args, timeout_s=look.timeout_s, python=python)
        answers = events.of(look.event)
        if done.ok and answers:
            return read(host, answers[0])
        return host_finding(probe, host.name, Status.UNKNOWN, *failure(done, events))

    answers = dict(fan_out(hosts, ask, forks))
    ready, findings = [], []
    for host in hosts:
        answer = answers[host]
        if isinstance(answer, Finding):
            findings.append(answer)
        else:
            ready.append(answer)
    return ready, findings


def find_endpoints(
    transport: Transport, hosts: Sequence[Host], probe: str, options: ProbeOptions
) -> tuple[list[Endpoint], list[Finding]]:
    """Return the endpoints of hosts that answer, in the hosts' order, and a finding for each that does not."""

    def args(host: Host) -> list[str]:
        interface = ["--interface", options.interface] if options.interface else []
        return ["--address", host.address, "--venv", venv_of(host), *interface]

    look = Look("probes.endpoints", args, "endpoint", _DEADLINE_S)

    def endpoint(host: Host, answer: Event) -> Endpoint:
        return Endpoint(host=host, **{key: value for key, value in answer.items() if key != "event"})

    return ask_all(transport, hosts, probe, look, endpoint, options.forks)
