"""A probe: one declaration, the options it is given, and the result it gives back."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Generic, TypeVar, cast

from nodectl.common.spelling import misspelt
from nodectl.errors import DeclarationError, UsageError
from nodectl.model.finding import Finding, traces_first
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement, MeasurementKind, Unit
from nodectl.model.status import Status
from nodectl.probes.options import Choice, Seconds, Text, Whole, declared, misfit, option, rounds
from nodectl.profiles import SETTINGS
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
    pairs: str = option(
        "auto",
        Choice(("auto", "all", "ring", "first", "sample")),
        "Which pairs of hosts; auto is all up to 16 hosts, else sample: log2(n) rounds.",
    )
    rounds: int | None = option(
        None,
        Text("N|all", rounds),
        "N rounds drawn by chance, each host with another partner in each; all: every pair.  Not with --pairs.",
    )
    port: int | None = option(None, Whole(1, 65535), "Where servers listen.", shown="any free port")
    interface: str | None = option(None, Text(), "The network to measure.", shown="that of the host's address")
    forks: int = 64
    ends_at: float | None = None
    trimmed: tuple[str, ...] = ()
    profile_dirs: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        if self.rounds is not None and self.pairs != "auto":
            raise UsageError("--rounds and --pairs both say which pairs to measure", "give one of them")


# of the common options, those that only say something between hosts
BETWEEN_HOSTS = frozenset({"pairs", "rounds", "port", "interface"})


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

    `summary` is its line in lists, `help` the rest of its own --help. `usual` is what is measured where nothing is
    asked for, `least` what is left of it for a short budget, `cost_s` the seconds of such an amount on one host, or of
    one round of pairs. `in_a_trial` is what `tune trial` measures in one turn, where that is not the usual, once.

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

    def __post_init__(self) -> None:
        """Refuse a wrong declaration when its file is imported, and not when an operator asks for it."""
        parts: dict[str, tuple[object, type]] = {
            "results.units": (self.results.units, Unit),
            "results.identity": (self.results.identity, str),
            "results.places": (self.results.places, str),
            "groups": (self.groups, str),
            "needs": (self.needs, Need),
            "floors": (self.floors, str),
            "feels": (self.feels, str),
        }
        wrong = [
            f"{name} is no tuple of {kind.__name__}: {value!r}"
            for name, (value, kind) in parts.items()
            if not isinstance(value, tuple) or not all(isinstance(part, kind) for part in value)
        ]
        wrong += [
            f"results.units: {name!r} is no known time or rate: say whether lower_is_better"
            for name in self._without_direction()
        ]
        groups = ", ".join(SETTINGS)
        wrong += [f"feels: {part!r} is a part of none of {groups}" for part in self._strange_feelings()]
        amounts = {"usual": self.usual, "least": self.least}
        wrong += [f"{name} is no Amount: {value!r}" for name, value in amounts.items() if not isinstance(value, Amount)]
        try:
            _ = self.results.formatted
        except ValueError as error:
            wrong.append(f"results.shown {self.results.shown!r}: {error}")
        problems = {
            f"the name {self.name!r} is not a word of a to z and 0 to 9": not re.fullmatch("[a-z][a-z0-9]*", self.name),
            f"{self.name!r} is the name of a group": self.name in GROUPS,
            "the summary is not one line that ends with a full stop": not re.fullmatch(r"\S.*\.", self.summary),
            "run is no function": not callable(self.run),
            "cost_s is no function": not callable(self.cost_s),
            "results: a unit is needed": not self.results.units,
            "results.places are none of identity": not set(self.results.places) <= set(self.results.identity),
            f"groups: known are {', '.join(GROUPS)}": not set(self.groups) <= set(GROUPS),
            "least is more than usual": all(isinstance(value, Amount) for value in amounts.values())
            and (self.least.repetitions > self.usual.repetitions or self.least.duration_s > self.usual.duration_s),
        }
        if isinstance(self.options, type) and issubclass(self.options, ProbeOptions):
            wrong += [
                f"option {option.flag}: {problem}" for option in declared(self.options) if (problem := misfit(option))
            ]
            problems[f"in_a_trial is no {self.options.__name__}"] = type(self.trial_options) is not self.options
        else:
            problems["options is no class of ProbeOptions"] = True
        wrong += [text for text, is_wrong in problems.items() if is_wrong]
        if wrong:
            raise DeclarationError(f"probe {self.name}: {'; '.join(wrong)}")

    def _without_direction(self) -> list[str]:
        """Return the units of which nobody says which of two values is better."""
        units = self.results.units if isinstance(self.results.units, tuple) else ()
        names = [unit.name for unit in units if isinstance(unit, Unit)]
        return [name for name in names if self.results.lower_is_better(name) is None]

    def _strange_feelings(self) -> list[str]:
        """Return what of `feels` is in no group of a tuning's settings: a trial would never hold it to be felt."""
        feels = self.feels if isinstance(self.feels, tuple) else ()
        return [part for part in feels if str(part).partition(".")[0] not in SETTINGS]

    @property
    def floor_conditions(self) -> frozenset[str]:
        """The conditions by which a hardware profile's floor may be chosen."""
        return frozenset({*self.results.identity, *self.floors})

    @property
    def trial_options(self) -> Own:
        """Return what one turn of a trial measures; the pairs of turns are its repetitions."""
        return self.options(repetitions=1) if self.in_a_trial is None else self.in_a_trial

    def refuse_undeclared(self, measurements: Sequence[Measurement]) -> None:
        """Raise DeclarationError where its own measurements are not what it declares.

        That is another name, a unit that it does not list, or a condition whose name is misspelt there: the table
        and the history would show what is not so.
        """
        ours = {unit.name for unit in self.results.units}
        names = dict.fromkeys(name for measurement in measurements for name in measurement.conditions)
        wrong = [
            f"it measures as {measurement.probe!r}"
            if measurement.probe != self.name
            else f"it measures in {measurement.unit!r}, and results.units has {', '.join(map(repr, sorted(ours)))}"
            for measurement in measurements
            if measurement.probe != self.name or measurement.unit not in ours
        ]
        wrong += [
            f"{where} names {name!r}, which no measurement has; did you mean {near!r}?"
            for where, asked in (("results.identity", self.results.identity), ("results.shown", self.results.formatted))
            for name in asked
            # optional ones are not there either
            if measurements and (near := misspelt(name, names)) not in {"", *asked}
        ]
        if wrong:
            home = getattr(self.run, "__module__", "")
            raise DeclarationError(f"{home}: probe {self.name}: {'; '.join(dict.fromkeys(wrong))}")

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
