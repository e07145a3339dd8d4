"""Plans of tests: on which NICs a pair of hosts, or a host by itself, runs which, as both ends are told."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nodectl.common.units import MIB
from nodectl.probes.base import Amount
from nodectl.probes.options import refuse_unknown
from nodectl.probes.rdma.argv import (
    DEFAULT,
    DEFAULT_ALONE,
    LATENCY_BYTES,
    PROGRAMS,
    SCOPES,
    RdmaOptions,
    Size,
    command,
    is_latency,
)
from nodectl.probes.rdma.ready import Nic

USUAL = Amount(repetitions=3, duration_s=1.0)
MESSAGE_BYTES = MIB
# exchanges of a run of latency: perftest tells percentiles only of a count, not of a time
EXCHANGES = 1000
# connecting, starting Python on both hosts; starting both programs of a test; a run of latency
_START_S, _TEST_S, _LATENCY_S = 1.5, 0.7, 0.5
# what a test may take beyond its duration: slow paths, and messages under way at its end
_SLACK_S = 25.0
# how data gets from a host's NIC to one of the same host
LOOPBACK, NIC_TO_NIC = "loopback", "nic to nic"


@dataclass(frozen=True, slots=True)
class Case:
    """One test: who is the client, and how both ends are told; `nics` are the client's and the server's."""

    operation: str
    rail: str
    client: str
    server: str
    nics: tuple[Nic, Nic]
    size: Size

    @property
    def flow(self) -> tuple[str, str]:
        """Return from which host to which the data goes: a read's comes from the server."""
        return (self.server, self.client) if self.comes_back else (self.client, self.server)

    @property
    def path(self) -> tuple[Nic, Nic]:
        """The NICs in the order of `flow`."""
        return self.nics[::-1] if self.comes_back else self.nics

    @property
    def way(self) -> str | None:
        """How the data gets to a NIC of the same host; None between hosts."""
        if self.client != self.server:
            return None
        return LOOPBACK if self.nics[0].port.label == self.nics[1].port.label else NIC_TO_NIC

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return those of `flow`, each once."""
        return tuple(dict.fromkeys(self.flow))

    @property
    def direction(self) -> str:
        """`node01 -> node02`, or of one host `node01 mlx5_0/1 -> mlx5_1/1`."""
        if self.way is None:
            return " -> ".join(self.flow)
        return f"{self.client} {' -> '.join(dict.fromkeys(nic.port.label for nic in self.path))}"

    @property
    def comes_back(self) -> bool:
        """Return whether the server sends."""
        return self.operation.startswith("read")


def operations_of(options: RdmaOptions) -> tuple[str, ...]:
    """Return those asked for that can be measured; UsageError for one that is none, or for a scope that is none."""
    refuse_unknown("scope", [options.scope], SCOPES)
    refuse_unknown("operation", options.operations, PROGRAMS)
    wanted = options.operations or (DEFAULT_ALONE if options.by_itself else DEFAULT)
    # perftest has no latency of writes to GPU memory
    return tuple(name for name in wanted if options.memory == "host" or name != "write_lat")


def size_of(operation: str, options: RdmaOptions) -> Size:
    """Throughput for a time, latency for a count, unless a count is asked for."""
    latency = is_latency(operation)
    message = options.message_bytes or (LATENCY_BYTES if latency else MESSAGE_BYTES)
    if options.iterations is not None:
        return Size(message, iterations=options.iterations)
    if latency:
        return Size(message, iterations=EXCHANGES)
    return Size(message, seconds=max(1, math.ceil(options.duration_s or USUAL.duration_s)))


def cases_of(
    pair: tuple[str, str], nics: Mapping[str, Mapping[str, Nic]], operations: Sequence[str], options: RdmaOptions
) -> list[Case]:
    """Every rail that both hosts have, each operation, forth and back; latency from the first host only."""
    first, second = pair
    cases = []
    for rail in [nic for nic in nics[first] if nic in nics[second]]:
        for operation in operations:
            size = size_of(operation, options)
            ways = [(first, second)] if is_latency(operation) else [(first, second), (second, first)]
            for client, server in ways * (options.repetitions or USUAL.repetitions):
                ends = (nics[client][rail], nics[server][rail])
                if ends[0].port.link_layer == ends[1].port.link_layer:
                    cases.append(Case(operation, rail, client, server, ends, size))
    return cases


def cases_alone(
    host: str, pairs: Sequence[tuple[Nic, Nic]], operations: Sequence[str], options: RdmaOptions
) -> list[Case]:
    """Every pair of a host's NICs, each operation, forth and back in turn; latency, and a NIC with itself, forth."""
    cases = []
    for pair in pairs:
        rail = ",".join(dict.fromkeys(nic.rail for nic in pair))
        for operation in operations:
            forth = Case(operation, rail, host, host, pair, size_of(operation, options))
            is_one_way = is_latency(operation) or forth.way == LOOPBACK
            ways = [forth] if is_one_way else [forth, replace(forth, nics=pair[::-1])]
            cases += ways * (options.repetitions or USUAL.repetitions)
    return cases


def test_of(case: Case) -> dict[str, object]:
    """Return what the payload is given."""
    client, server = case.nics
    return {
        "client": command(case.operation, client.end, case.size),
        "server": command(case.operation, server.end, case.size),
        "client_cpus": client.port.cpus,
        "server_cpus": server.port.cpus,
        "client_port": [client.port.device, client.port.port],
        "server_port": [server.port.device, server.port.port],
        "deadline_s": deadline_s(case.size),
        "group": f"{case.rail} {case.operation}",
    }


def deadline_s(size: Size) -> float:
    """For one test, at its worst."""
    return (size.seconds or 0) + _SLACK_S


def cost_s(amount: Amount, rails: int = 1, operations: Sequence[str] = DEFAULT) -> float:
    """Return what all rounds take if nothing is slow."""
    latencies = sum(map(is_latency, operations))
    throughputs = len(operations) - latencies
    one_s = throughputs * 2 * (math.ceil(amount.duration_s) + _TEST_S) + latencies * (_LATENCY_S + _TEST_S)
    return amount.rounds * (_START_S + rails * amount.repetitions * one_s)
