"""Which tests a pair of hosts runs on which of their NICs, as both ends are told."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nodectl.common.spelling import meant
from nodectl.common.units import MIB
from nodectl.errors import UsageError
from nodectl.probes.base import Amount
from nodectl.probes.rdma.argv import LATENCY_BYTES, PROGRAMS, Size, command, is_latency
from nodectl.probes.rdma.look import Program
from nodectl.probes.rdma.options import DEFAULT, RdmaOptions
from nodectl.probes.rdma.ready import Nic

USUAL = Amount(repetitions=3, duration_s=1.0)
MESSAGE_BYTES = MIB
# exchanges of a run of latency: perftest tells percentiles only of a count, not of a time
EXCHANGES = 1000
# connecting, starting Python on both hosts; starting both programs of a test; a run of latency
_START_S, _TEST_S, _LATENCY_S = 1.5, 0.7, 0.5
# what a test may take beyond its duration: slow paths, and messages under way at its end
_SLACK_S = 25.0


@dataclass(frozen=True, slots=True)
class Case:
    """One test: who is the client, and how both ends are told."""

    operation: str
    rail: str
    client: str
    server: str
    nics: tuple[Nic, Nic]
    size: Size

    @property
    def flow(self) -> tuple[str, str]:
        """From where to where the data goes: a read's comes from the server."""
        return (self.server, self.client) if self.operation.startswith("read") else (self.client, self.server)


def operations_of(options: RdmaOptions) -> tuple[str, ...]:
    """Those asked for; UsageError for one that is none."""
    for name in options.operations:
        if name not in PROGRAMS:
            raise UsageError(f"no operation '{name}'", f"{meant(name, PROGRAMS)}one of: {', '.join(PROGRAMS)}")
    return options.operations or DEFAULT


def measurable(operations: Sequence[str], memory: str) -> tuple[str, ...]:
    """perftest has no latency of writes to GPU memory."""
    return tuple(operation for operation in operations if memory == "host" or operation != "write_lat")


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
    """Every rail that both hosts have, each operation, forth and back in turn; latency from the first host only."""
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


def plan_of(
    cases: Sequence[Case], leader: str, programs: Mapping[str, Mapping[str, Program]]
) -> list[dict[str, object]]:
    """What the payload is given; `leader` is the host that measures."""
    return [_test(case, leader, programs[case.client]) for case in cases]


def _test(case: Case, leader: str, programs: Mapping[str, Program]) -> dict[str, object]:
    client, server = case.nics
    return {
        "client": command(case.operation, client.end, case.size),
        "server": command(case.operation, server.end, case.size),
        "client_cpus": client.port.cpus,
        "server_cpus": server.port.cpus,
        "client_port": [client.port.device, client.port.port],
        "server_port": [server.port.device, server.port.port],
        "server_here": case.server == leader,
        "json": "--out_json" in programs[PROGRAMS[case.operation]].options,
        "deadline_s": deadline_s(case.size),
        "group": f"{case.rail} {case.operation}",
    }


def deadline_s(size: Size) -> float:
    """For one test, at its worst."""
    return (size.seconds or 0) + _SLACK_S


def cost_s(amount: Amount, rails: int = 1, operations: Sequence[str] = DEFAULT) -> float:
    """What all rounds take where nothing is slow."""
    latencies = sum(map(is_latency, operations))
    throughputs = len(operations) - latencies
    one_s = throughputs * 2 * (math.ceil(amount.duration_s) + _TEST_S) + latencies * (_LATENCY_S + _TEST_S)
    return amount.rounds * (_START_S + rails * amount.repetitions * one_s)
