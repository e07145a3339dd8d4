"""A probe that does what a test says."""

from collections.abc import Callable
from typing import Any

from nodectl.model.measurement import MeasurementKind, Unit
from nodectl.probes.base import Amount, Probe, ProbeOptions, ProbeResult
from nodectl.probes.registry import AnyProbe

ONE = Amount(1, 1.0)


def probe_of(name: str, run: Callable[..., ProbeResult], **more: Any) -> AnyProbe:
    declared: dict[str, Any] = {
        "summary": "What a test says.",
        "options": ProbeOptions,
        "results": MeasurementKind(units=(Unit("x", lower_is_better=False),)),
        "usual": ONE,
        "least": ONE,
        "cost_s": lambda amount: amount.repetitions * amount.duration_s,
    }
    return Probe(name=name, run=run, **{**declared, **more})


def wanted_of(name: str, run: Callable[..., ProbeResult]) -> tuple[AnyProbe, ProbeOptions]:
    """As `run_probes` takes it."""
    return probe_of(name, run), ProbeOptions()
