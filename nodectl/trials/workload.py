"""A shipped workload's program as a probe of a trial: a short run over all hosts, timed."""

from __future__ import annotations

from dataclasses import replace

from nodectl.articles.programs import PROBE, WorkloadOptions
from nodectl.probes.base import Probe


def workload_probe(program: str, arguments: tuple[str, ...]) -> Probe[WorkloadOptions]:
    """Return a probe that trains this program with these options, else with its usual ones."""
    return replace(PROBE, in_a_trial=WorkloadOptions(repetitions=1, program=program, arguments=arguments))
