"""What the hosts of a job must agree on, and which of them are the odd ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median_low

from nodectl.checks.check import Check, odd_ones
from nodectl.checks.launch.candidate import Candidate, JobNeeds, judges_together
from nodectl.checks.system.basics import CLOCK_FAILED_S_LIMIT, CLOCK_WARNING_S_LIMIT
from nodectl.common.few import few
from nodectl.facts.gpus import Gpus
from nodectl.facts.job import FreePorts, JobVenv, Launcher, Names
from nodectl.facts.services import Clock
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 20

_VERSION_REMEDY = "run `nodectl provision` on all hosts of the job, with one stack profile"

PORTS = Check("launch_ports", fires="too few of them are free on all hosts")


@judges_together(PORTS, reads=("free_ports",))
def ports(hosts: Sequence[Candidate]) -> Iterator[Finding]:
    """Judge the ports: the same few must be free on every host."""
    needs = hosts[0].needs
    enough = len(common_ports(hosts, needs)) >= needs.ports_needed
    for host in hosts:
        free = host.known("free_ports", FreePorts).free
        taken = [str(port) for port in needs.candidate_ports if port not in free]
        yield host.finding(
            PORTS,
            Status.FAILED if taken and not enough else Status.OK,
            expected=f"{needs.ports_needed} of {len(needs.candidate_ports)} tried ports free on all hosts",
            actual=f"taken here: {few(taken)}" if taken else "all free",
            remedy="launch again: nodectl will try other ports; `ss -lntup` shows who listens",
        )


def common_ports(hosts: Sequence[Candidate], needs: JobNeeds) -> tuple[int, ...]:
    """Candidates that are free on every host; those that some host may give to outgoing connections come last."""
    port_facts = [host.known("free_ports", FreePorts) for host in hosts]
    free = [port for port in needs.candidate_ports if all(port in ports.free for ports in port_facts)]
    ranges = [ports.ephemeral for ports in port_facts if ports.ephemeral]
    return tuple(sorted(free, key=lambda port: any(first <= port <= last for first, last in ranges)))


HOSTNAME = Check("launch_hostname", fires="two hosts have one", expected="a name of its own")


@judges_together(HOSTNAME, reads=("names",))
def unique_names(hosts: Sequence[Candidate]) -> Iterator[Finding]:
    """Two hosts of one name take each other's place in rendezvous and in logs."""
    names = {host.host: host.known("names", Names).hostname for host in hosts}
    for host in hosts if len(hosts) > 1 else ():
        name = names[host.host]
        others = [other for other, their_name in names.items() if their_name == name and other != host.host]
        yield host.finding(
            HOSTNAME,
            Status.FAILED if others else Status.OK,
            name,
            actual=f"{few(others)} has it too" if others else name,
            remedy=f"`hostnamectl set-hostname` on {host.host}, or list one machine once in the inventory",
        )


def _equal(
    hosts: Sequence[Candidate], check: Check, value: Callable[[Candidate], str], otherwise: Status
) -> Iterator[Finding]:
    """Yield findings of hosts with another value; an empty value is no vote, since its own check fires for it."""
    values = {host.host: value(host) for host in hosts if len(hosts) > 1 and value(host)}
    reference, odd = odd_ones(values)
    for host in hosts:
        if host.host in values:
            expected = reference or f"one for all; there are {_spread(values)}"
            status = otherwise if host.host in odd else Status.OK
            yield host.finding(check, status, expected=expected, actual=values[host.host])


NETWORK = Check(
    "launch_network",
    fires="two hosts have one address; warning: not one network for all",
    remedy="choose an interface in one network with --interface, or make sure that the networks are routed",
)


@judges_together(NETWORK, reads=("job_address",))
def network(hosts: Sequence[Candidate]) -> Iterator[Finding]:
    """All addresses in one network, each once: a container engine gives its bridge the same one on every host."""
    addresses = Counter(host.address.address for host in hosts if host.address.address)
    twice = [host for host in hosts if addresses[host.address.address] > 1]
    for host in twice:
        others = [other.host for other in twice if other is not host and other.address.address == host.address.address]
        expected = "an address of its own, by which the others reach it"
        actual = f"{host.address.address} of {host.address.interface}, as on {few(others)}"
        remedy = "name the job's interface or network with --interface"
        yield host.finding(NETWORK, Status.FAILED, expected=expected, actual=actual, remedy=remedy)
    alone = [host for host in hosts if host not in twice]
    yield from _equal(alone, NETWORK, lambda host: host.address.network, Status.WARNING)


MTU = Check(
    "launch_mtu",
    fires="warning: not one for all",
    remedy="set one MTU on all hosts and switch ports: large packets vanish where one is smaller",
)


@judges_together(MTU, reads=("job_address",))
def mtu(hosts: Sequence[Candidate]) -> Iterator[Finding]:
    """One MTU."""
    yield from _equal(hosts, MTU, lambda host: str(host.address.mtu), Status.WARNING)


LAUNCHER_VERSION = Check("launch_script_version", fires="not one for all", remedy=_VERSION_REMEDY)


@judges_together(LAUNCHER_VERSION, reads=("launcher",))
def launcher_version(hosts: Sequence[Candidate]) -> Iterator[Finding]:
    """One launch script."""
    yield from _equal(hosts, LAUNCHER_VERSION, lambda host: host.known("launcher", Launcher).sha256[:12], Status.FAILED)


PYTHON = Check("launch_python", fires="not one minor version", remedy=_VERSION_REMEDY)
TORCH = Check("launch_torch", fires="not one version", remedy=_VERSION_REMEDY)
NCCL = Check("launch_nccl", fires="not one version", remedy=_VERSION_REMEDY)
ENGINE_VERSION = Check("launch_engine_version", fires="not one version")


@judges_together(PYTHON, TORCH, NCCL, ENGINE_VERSION, reads=("job_venv",))
def versions(hosts: Sequence[Candidate]) -> Iterator[Finding]:
    """One Python, torch and NCCL, where ranks run in the launcher's environment."""
    if hosts[0].needs.venv is not None:
        yield from _equal(hosts, PYTHON, lambda host: ".".join(_venv(host).python.split(".")[:2]), Status.FAILED)
        yield from _equal(hosts, TORCH, lambda host: _venv(host).torch, Status.FAILED)
        yield from _equal(hosts, NCCL, lambda host: _venv(host).nccl or "none", Status.FAILED)
        yield from _equal(hosts, ENGINE_VERSION, lambda host: _venv(host).engine, Status.FAILED)


DRIVER = Check(
    "launch_driver",
    fires="not one version on all hosts with GPUs",
    remedy="install one version on all hosts: `nodectl provision --tags nvidia_driver`, but a kept driver as it came",
)


@judges_together(DRIVER, reads=("gpus",))
def driver(hosts: Sequence[Candidate]) -> Iterator[Finding]:
    """NCCL and CUDA of one environment over two drivers fail in places that name neither."""

    def version(host: Candidate) -> str:
        gpus = host.fact("gpus", Gpus)
        return (gpus and gpus.count and gpus.driver_version) or ""

    yield from _equal(hosts, DRIVER, version, Status.FAILED)


def _venv(host: Candidate) -> JobVenv:
    return host.known("job_venv", JobVenv)


CLOCK = Check(
    "launch_clock",
    fires="beyond the threshold; unknown: its time did not arrive",
    thresholds=(CLOCK_WARNING_S_LIMIT, CLOCK_FAILED_S_LIMIT),
)


@judges_together(CLOCK, reads=("time",))
def clocks(hosts: Sequence[Candidate]) -> Iterator[Finding]:
    """Judge the clocks against each other: torchrun compares times of one host with the clock of another."""
    clock_by_host = {host.host: clock for host in hosts if (clock := host.fact("time", Clock))}
    for host in hosts if len(hosts) > 1 else ():
        host_clock = clock_by_host.get(host.host)
        yield _clock(
            host, [] if host_clock is None else [_certain_s(host_clock, other) for other in clock_by_host.values()]
        )


def _certain_s(clock: Clock, other: Clock) -> float:
    """Return by how much the other's clock is ahead for certain: each is up to its error above its offset."""
    least_s = other.offset_s - clock.offset_s - clock.error_s
    most_s = other.offset_s + other.error_s - clock.offset_s
    return least_s if least_s > 0 else min(0.0, most_s)


def _clock(host: Candidate, to_others_s: Sequence[float]) -> Finding:
    least_s, most_s = host.threshold(CLOCK_WARNING_S_LIMIT), host.threshold(CLOCK_FAILED_S_LIMIT)
    expected = f"within {least_s:g} s of the others"
    if not to_others_s:
        actual, remedy = "its time did not arrive", f"run `date` on {host.host}"
        return host.finding(CLOCK, Status.UNKNOWN, expected=expected, actual=actual, remedy=remedy)
    # against one real host in the middle, so that of two hosts both show the whole difference
    off_s = max(to_others_s, key=abs) if len(to_others_s) == 2 else median_low(to_others_s)
    if abs(off_s) < least_s:
        return host.finding(CLOCK, Status.OK, expected=expected, actual=f"{abs(off_s):.2f} s")
    status = Status.FAILED if abs(off_s) >= most_s else Status.WARNING
    actual = f"{abs(off_s):.1f} s {'behind' if off_s > 0 else 'ahead'}"
    remedy = f"synchronise the clock of {host.host} (chrony): `chronyc tracking`"
    return host.finding(CLOCK, status, expected=expected, actual=actual, remedy=remedy)


def _spread(values: Mapping[str, str]) -> str:
    by_value: dict[str, list[str]] = {}
    for host, value in values.items():
        by_value.setdefault(value, []).append(host)
    return "; ".join(f"{value} on {few(hosts)}" for value, hosts in by_value.items())
