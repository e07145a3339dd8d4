"""What measurements by a gang of ranks share: who can take part, the programs of the ranks, and who is to blame."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from itertools import accumulate

from nodectl.common.resources import payload_dir
from nodectl.facts.versions import venv_of
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.probes.base import ProbeOptions, host_finding
from nodectl.probes.endpoints import Endpoint, find_endpoints, without_torch
from nodectl.probes.events import Event
from nodectl.probes.gang import Member
from nodectl.transport.base import Transport

_OTHER_NETWORK = "name another one with --interface"


def with_torch(
    transport: Transport, hosts: Sequence[Host], name: str, options: ProbeOptions
) -> tuple[list[Endpoint], list[Finding]]:
    """Return all hosts if each has a torch and can be reached by the others; else none, and a finding for each.

    Fewer ranks or other shards would be another measurement.
    """
    endpoints, findings = find_endpoints(transport, hosts, name, options)
    ready = []
    for endpoint in endpoints:
        if len(hosts) > 1 and _only_itself(endpoint):
            actual = f"the other hosts cannot reach it at {endpoint.address} ({endpoint.interface or 'loopback'})"
            findings.append(host_finding(name, endpoint.host.name, Status.UNKNOWN, actual, _OTHER_NETWORK))
        elif not endpoint.torch:
            findings.append(without_torch(name, endpoint.host))
        else:
            ready.append(endpoint)
    if len(ready) == len(hosts):
        return ready, []
    actual = "not measured: another host cannot take part"
    return [], [
        *findings,
        *(host_finding(name, ready_endpoint.host.name, Status.UNKNOWN, actual) for ready_endpoint in ready),
    ]


def _only_itself(endpoint: Endpoint) -> bool:
    """Return whether the host answers at a loopback address, though the operator reaches it at another one."""
    address = endpoint.host.address
    return _is_loopback(endpoint.address) and address != "localhost" and not _is_loopback(address)


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def device_of(endpoints: Sequence[Endpoint]) -> str:
    """`cuda` where every host has GPUs and a torch that is not built for CPUs, else `cpu`."""
    return "cuda" if all(endpoint.gpus and "+cpu" not in (endpoint.torch or "") for endpoint in endpoints) else "cpu"


def rank_members(
    ready: Sequence[Endpoint],
    ranks: Sequence[int],
    module: str,
    device: str,
    options: ProbeOptions,
    given: Mapping[str, object],
    timeout_s: float,
) -> list[Member]:
    """Return the payload program `module` for each host that has ranks, numbered in the hosts' order.

    The workloads' modules go to its standard input as JSON (name: source), so that they are run from memory.
    """
    first, sources = ready[0], workload_sources()
    shared = {
        "world-size": sum(ranks),
        "master-addr": first.address,
        "master-port": options.port or first.free_port,
        "backend": "nccl" if device == "cuda" else "gloo",
        "timeout": timeout_s,
        **given,
    }
    flags = ["--interface-asked"] * bool(options.interface)
    members = []
    for endpoint, count, end in zip(ready, ranks, accumulate(ranks), strict=False):
        own = {"rank-base": end - count, "nproc": count, "interface": endpoint.interface, **shared}
        arguments = (*(f"--{name}={value}" for name, value in own.items()), *flags)
        python = f"{venv_of(endpoint.host)}/bin/python"
        members.append(Member(endpoint.host, module, arguments, python, sources))
    return members


def workload_sources() -> bytes:
    """Return the workloads' modules by name, as JSON."""
    folder = payload_dir().parent / "workloads"
    return json.dumps({path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))}).encode()


def common(events: Sequence[Event], key: str) -> object:
    """Return the value that all events have, or the list of their values, sorted; None if none has one."""
    values = {str(event[key]): event[key] for event in events if event.get(key) is not None}
    texts = [values[text] for text in sorted(values)]
    return texts[0] if len(texts) == 1 else texts or None
