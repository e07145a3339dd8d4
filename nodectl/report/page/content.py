"""Content of a report: results of all kinds, each with where it is from; an empty one has nothing to show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from nodectl.model.acceptance import Acceptance
from nodectl.model.finding import Finding
from nodectl.model.measurement import Measurement, MeasurementKind
from nodectl.model.topology import Fabric, NodeTopology
from nodectl.model.verdict import Verdict
from nodectl.report.series import KindOf


class Nature(StrEnum):
    """The nature of the hosts that figures are of; `untold` where a saved file does not say."""

    MEASURED = "measured"
    LAB = "lab"
    RECORDED = "recorded"
    UNTOLD = "untold"


@dataclass(frozen=True, slots=True)
class Origin:
    """Hold where a figure is from: `source` is a recording's name, a file or the history."""

    nature: Nature
    source: str = ""

    @property
    def text(self) -> str:
        """For the caption: recorded and lab data are called so."""
        nature = {
            Nature.MEASURED: "measured on these hosts",
            Nature.LAB: "LAB DATA: hosts of one machine, no hardware",
            Nature.RECORDED: "RECORDED DATA: replayed, not measured now",
            Nature.UNTOLD: "of hosts that the file does not describe",
        }[self.nature]
        return f"{nature} ({self.source})" if self.source else nature


@dataclass(frozen=True, slots=True)
class Found:
    """The findings of a look at a fleet."""

    findings: tuple[Finding, ...]
    origin: Origin


@dataclass(frozen=True, slots=True)
class Wired:
    """How hosts are wired, by name, and the fabric between them where that is known."""

    nodes: Mapping[str, NodeTopology]
    fabric: Fabric | None
    origin: Origin


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of one run, and what was found in them; None if that is not known any more."""

    measurements: tuple[Measurement, ...]
    findings: tuple[Finding, ...] | None
    origin: Origin


@dataclass(frozen=True, slots=True)
class Tuned:
    """Hold what one trial says."""

    name: str
    baseline: str
    verdicts: tuple[Verdict, ...]
    origin: Origin
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Launched:
    """Jobs as the documents that `jobs` shows; of a saved file their values may be of any kind."""

    jobs: tuple[Mapping[str, Any], ...]
    origin: Origin


@dataclass(frozen=True, slots=True)
class Content:
    """All of it; `made` is the time of the report as text, `kind_of` tells what a probe's values are."""

    title: str
    made: str
    nodectl: str
    kind_of: KindOf = lambda _: MeasurementKind()
    acceptances: tuple[Acceptance, ...] = ()
    found: tuple[Found, ...] = ()
    wired: tuple[Wired, ...] = ()
    measured: tuple[Measured, ...] = ()
    tuned: tuple[Tuned, ...] = ()
    launched: tuple[Launched, ...] = ()
