"""What a turn asks of the probes: short, and over the interface that is named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from nodectl.errors import UsageError
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement
from nodectl.probes.base import Note, ProbeOptions, ProbeResult
from nodectl.probes.registry import declarations
from nodectl.transport.router import LocalTransport
from nodectl.trials.measuring import TRAINING, Measuring, WithEnvironment, least_turn_s, refuse_too_short

HOSTS = [Host(name, "192.0.2.1", 22, "root") for name in "abcd"]


@dataclass
class Asked:
    """A probe that notes what it was asked."""

    name: str
    calls: list[tuple[str, float | None, int | None, str | None]] = field(default_factory=list)
    findings: tuple[Finding, ...] = ()
    measures: bool = True

    def __call__(self, _: Any, hosts: Sequence[Host], options: ProbeOptions, note: Note) -> ProbeResult:
        note("not for the operator: a turn has one line")
        order = "".join(each.name for each in hosts)
        self.calls.append((order, options.duration_s, options.repetitions, options.interface))
        value = Measurement(self.name, ("a", "b"), 1.0, "Gbit/s")
        return ProbeResult((value,) if self.measures else (), self.findings)


def measuring(*probes: Asked, **options: Any) -> Measuring:
    transport: Any = None
    return Measuring(transport, HOSTS, [replace(declarations()[each.name], run=each) for each in probes], options)


def test_short_unless_told_otherwise() -> None:
    tcp, nccl = Asked("tcp"), Asked("nccl")
    measuring(tcp, nccl)()
    assert tcp.calls == [("abcd", 2.0, 1, None)]
    assert nccl.calls == [("abcd", 0.1, 3, None)]
    measuring(tcp, duration_s=7.0, repetitions=4)()
    assert tcp.calls[-1] == ("abcd", 7.0, 4, None)


def test_all_measure_over_the_interface_that_is_named() -> None:
    probes = [Asked(name) for name in ("tcp", "nccl", TRAINING)]
    measuring(*probes, interface="eth1")()
    assert [each.calls[-1][3] for each in probes] == ["eth1"] * 3


def test_a_budget_that_cannot_hold_is_known_by_what_the_probes_declare() -> None:
    probes = [declarations()["tcp"], declarations()["latency"]]
    asked: dict[str, object] = {"duration_s": 4.0, "repetitions": 2}
    assert least_turn_s(probes, asked) >= 8 and least_turn_s(probes, {}) < least_turn_s(probes, asked)
    with pytest.raises(UsageError, match="5 pairs take at least 3 min 20 s here, and 60 s are left"):
        refuse_too_short(60, 10, 2)
    refuse_too_short(200, 10, 2)


def test_a_measurement_has_its_hosts_variables() -> None:
    transport = WithEnvironment(LocalTransport(), {"a": {"NCCL_ALGO": "Ring,Tree", "NCCL_NSOCKS_PERTHREAD": ""}})
    argv = ["sh", "-c", 'echo "$NCCL_ALGO ${NCCL_NSOCKS_PERTHREAD-unset}"']
    here, other = (Host(name, "127.0.0.1", connection="local") for name in "ab")
    assert transport.run(here, argv, timeout_s=20).stdout == "Ring,Tree \n"
    assert transport.run(other, argv, timeout_s=20).stdout == " unset\n"
