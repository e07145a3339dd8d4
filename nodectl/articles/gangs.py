"""What measurements by a gang of ranks share: who can take part, with which backend, and who is to blame."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address

from nodectl.facts.versions import venv_of
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.result import Outcome
from nodectl.model.status import Status
from nodectl.probes.base import ProbeOptions, host_finding
from nodectl.probes.endpoints import Endpoint, find_endpoints
from nodectl.probes.events import Event, failure
from nodectl.probes.gang import Played, culprits
from nodectl.transport.base import Transport

_NOT_PROVISIONED = "run `nodectl provision` for it, or name its environment with the variable pytorch_venv"

_OTHER_NETWORK = "name another one with --interface"


def with_torch(
    transport: Transport, hosts: Sequence[Host], name: str, options: ProbeOptions
) -> tuple[list[Endpoint], list[Finding]]:
    """The hosts that have a torch, and an unknown finding for each that has none or does not answer."""
    found, findings = find_endpoints(transport, hosts, name, options)
    alone = [each for each in found if len(hosts) > 1 and _only_itself(each)]
    findings += [host_finding(name, each.host.name, Status.UNKNOWN, _said(each), _OTHER_NETWORK) for each in alone]
    endpoints = [each for each in found if each not in alone]
    ready = [endpoint for endpoint in endpoints if endpoint.torch]
    bare = [each.host for each in endpoints if not each.torch]
    findings += [
        host_finding(name, host.name, Status.UNKNOWN, f"no torch in {venv_of(host)}", _NOT_PROVISIONED) for host in bare
    ]
    return ready, findings


def _only_itself(endpoint: Endpoint) -> bool:
    """Its address is one at which it reaches itself alone, and it was not asked for by such a one."""
    own = endpoint.host.address
    return _is_loopback(endpoint.address) and own != "localhost" and not _is_loopback(own)


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def _said(endpoint: Endpoint) -> str:
    return f"the other hosts cannot reach it at {endpoint.address} ({endpoint.interface or 'loopback'})"


def device_of(endpoints: Sequence[Endpoint]) -> str:
    """`cuda` where every host has GPUs and a torch that is not built for CPUs, else `cpu`."""
    return "cuda" if all(endpoint.gpus and "+cpu" not in (endpoint.torch or "") for endpoint in endpoints) else "cpu"


def python_of(endpoint: Endpoint) -> str:
    """The interpreter that has torch."""
    return f"{venv_of(endpoint.host)}/bin/python"


def common(events: Sequence[Event], key: str) -> object:
    """The value that all have, or the list of their values; None where nobody said one."""
    values = {str(event[key]): event[key] for event in events if event.get(key) is not None}
    texts = [values[text] for text in sorted(values)]
    return texts[0] if len(texts) == 1 else texts or None


def failures(name: str, played: Sequence[Played]) -> tuple[Finding, ...]:
    """A finding for each host that failed by itself; the others ended with it."""
    return tuple(_failed(name, culprit) for culprit in culprits(played))


def _failed(name: str, played: Played) -> Finding:
    host = played.member.host.name
    if played.done is None:
        return host_finding(name, host, Status.UNKNOWN, "stopped answering while it was measured", "is its link up?")
    status = Status.FAILED if played.done.outcome is Outcome.RAN else Status.UNKNOWN
    return host_finding(name, host, status, *failure(played.done, played.events))
