"""A probe: one declaration, the options it is given, and the result it gives back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Generic, TypeVar, cast

from nodectl.model.finding import Finding, traces_first
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement, MeasurementKind
from nodectl.model.status import Status
from nodectl.probes.options import Seconds, Text, Whole, option, rounds
from nodectl.transport.base import Transport

# groups of probes by name; `all` are all of them
GROUPS = {
    "quick": "what fits these hosts within two minutes; taken where no probe is named",
    "network": "between hosts",
    "gpu": "GPUs, or processors in their place",
    "all": "every probe",
}


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """The options that probes have in common; None is the probe's own default.

    A probe with options of its own extends this. `ends_at` is a moment of the monotonic clock at which the probe is to
    be over, `trimmed` what was given up for that. Hardware profiles of `profile_dirs` go before nodectl's own.
    """

    duration_s: float | None = option(None, Seconds(0.001, 3600), "Seconds of a repetition.", flag="duration")
    repetitions: int | None = option(None, Whole(1, 100), "The median of so many counts.")
    rounds: int | None = option(
        None,
        Text("N|all", rounds),
        "N rounds drawn by chance, each host with another partner in each; all: every pair.",
        shown="all up to 16 hosts, else log2 of their number",
    )
    port: int | None = option(None, Whole(1, 65535), "Where servers listen.", shown="any free port")
    interface: str | None = option(None, Text(), "The network to measure.", shown="that of the host's address")
    forks: int = 64
    ends_at: float | None = None
    trimmed: tuple[str, ...] = ()
    profile_dirs: tuple[Path, ...] = ()


# of the common options, those that only say something between hosts
BETWEEN_HOSTS = frozenset({"rounds", "port", "interface"})


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Measurements, and findings for what could not be measured or is wrong."""

    measurements: tuple[Measurement, ...] = ()
    findings: tuple[Finding, ...] = ()

    def __add__(self, other: ProbeResult) -> ProbeResult:
        return ProbeResult(self.measurements + other.measurements, self.findings + other.findings)


@dataclass(frozen=True, slots=True)
class Amount:
    """How much is measured: repetitions of each, the seconds of one, and rounds of pairs (or of hosts)."""

    repetitions: int
    duration_s: float
    rounds: int = 1


class Need(StrEnum):
    """A thing that hosts must have for a probe to say something there."""

    GPU = "a GPU"
    RDMA = "an RDMA device"
    IPERF3 = "iperf3"
    TORCH = "torch"


Own = TypeVar("Own", bound=ProbeOptions)
# a line for the operator while it goes on
Note = Callable[[str], None]
Run = Callable[[Transport, Sequence[Host], Own, Note], ProbeResult]


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe(Generic[Own]):
    """One probe, declared as `PROBE` in a file below nodectl/probes, and found by being there.

    `summary` is its line in lists, `help` the rest of its own --help. `usual` is what is measured if nothing is
    asked for, `least` what is left of it for a short budget, `cost_s` the seconds of such an amount on one host, or of
    one round of pairs. `in_a_trial` is what `tune trial` measures in one turn, if that is not the usual, once.

    `floors` names the conditions by which a hardware profile's floor may be chosen, besides those that identify a
    measurement. `feels` are the settings of a tuning that its values can change with: groups, or parts such as
    `sysctl.net`; of the others a trial says nothing. A probe that is not `listed` is no command of its own: other
    commands measure it.
    """

    name: str
    summary: str
    run: Run[Own]
    options: type[Own]
    results: MeasurementKind
    usual: Amount
    least: Amount
    cost_s: Callable[[Amount], float]
    in_a_trial: Own | None = None
    help: str = ""
    between_hosts: bool = False
    has_ranks: bool = False
    groups: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    floors: tuple[str, ...] = ()
    feels: tuple[str, ...] = ("sysctl", "limits", "nic", "gpu")
    listed: bool = True

    @property
    def floor_conditions(self) -> frozenset[str]:
        """The conditions by which a hardware profile's floor may be chosen."""
        return frozenset({*self.results.identity, *self.floors})

    @property
    def trial_options(self) -> Own:
        """Return what one turn of a trial measures; the pairs of turns are its repetitions."""
        return self.options(repetitions=1) if self.in_a_trial is None else self.in_a_trial

    def given(self, common: ProbeOptions, **own: object) -> Own:
        """Return the probe's own options, with the values of the common ones."""
        shared = {field.name: getattr(common, field.name) for field in dataclasses.fields(ProbeOptions)}
        return cast("Callable[..., Own]", self.options)(**shared, **own)


def host_finding(
    probe: str,
    host: str,
    status: Status,
    actual: str,
    remedy: str = "",
    *,
    subject: str = "",
    action: str = "none",
    expected: str = "",
    evidence: str = "",
) -> Finding:
    """Return a finding that blames one host."""
    finding = Finding(host, probe, status, subject, action, expected, actual, remedy, evidence, "host", (host,))
    return traces_first(finding)


def path_finding(probe: str, sender: str, receiver: str, actual: str, remedy: str = "") -> Finding:
    """Return a finding for a failed measurement between two hosts, either of which may be the culprit."""
    hosts = (sender, receiver)
    subject = " -> ".join(hosts)
    return Finding(sender, probe, Status.FAILED, subject, actual=actual, remedy=remedy, kind="path", hosts=hosts)


def spread(values: Sequence[float], median: float) -> float | None:
    """(max - min) / median; None for a single value, which shows none."""
    return (max(values) - min(values)) / median if len(values) > 1 and median else None
