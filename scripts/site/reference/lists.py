"""Lists of what is found by being there: facts, probes, tools whose output is read, acceptance steps, metrics."""

from __future__ import annotations

import importlib

from nodectl.facts.catalogue import registered
from nodectl.facts.parsers.catalogue import modules
from nodectl.ledger.accept.steps import STEPS, Level
from nodectl.probes.base import ProbeOptions
from nodectl.probes.options import declared
from nodectl.probes.registry import AnyProbe, listed
from nodectl.report.metrics import every_metric
from scripts.site.pages import plain, table

_FACTS = """# Facts

`nodectl facts` shows each of these subjects of every host, in one round trip. *always* is asked by every look, *live*
only of a host that answers itself, *verify* only at the end of `provision` and by `verify`.

{rows}
"""
_PROBES = """# Probes

`nodectl probe NAME` measures these ([how](../probes.md)); `nodectl probe NAME --help` explains the options.

{rows}
"""
_STEPS = """# Steps of an acceptance

`nodectl accept` takes these steps in this order ([verdicts](../accept.md#verdicts)); a level has those with *yes*.

{rows}
"""
_TOOLS = """# Outputs that can be read

`nodectl parse TOOL FILE` reads the saved output of these tools
([how strictly](../recordings.md#reading-saved-outputs)).

{rows}
"""
_METRICS = """# Metrics

`nodectl metrics list` prints the same. How they get into Prometheus:
[metrics and alerts](../report.md#metrics-for-prometheus).

{rows}
"""
_PROBE_COLUMNS = ["probe", "what", "unit", "usual", "a host or round", "options of its own", "groups"]


def pages() -> dict[str, str]:
    """Return a page for each list, by its place in the reference."""
    facts = [[f"`{fact.subject}`", plain(fact.description), fact.occasion] for fact in registered()]
    tools = [
        [f"`{tool}`", plain(_first_line(module).removeprefix("Reads "))] for tool, module in sorted(modules().items())
    ]
    metrics = [
        [f"`{metric.name}`", metric.kind, ", ".join(metric.labels) or "-", plain(metric.about)]
        for metric in every_metric().values()
    ]
    return {
        "facts.md": _FACTS.format(rows=table(["subject", "what it is", "asked"], facts)),
        "probes.md": _PROBES.format(rows=table(_PROBE_COLUMNS, map(_probe_row, listed()))),
        "accept-steps.md": _STEPS.format(rows=_steps()),
        "tools.md": _TOOLS.format(rows=table(["TOOL", "reads"], tools)),
        "metrics.md": _METRICS.format(rows=table(["metric", "type", "labels", "says"], metrics)),
    }


def _first_line(module: str) -> str:
    return (importlib.import_module(module).__doc__ or "").strip().partition("\n")[0]


def _probe_row(probe: AnyProbe) -> list[str]:
    common = {declaration.field for declaration in declared(ProbeOptions)}
    own = [f"`{declaration.flag}`" for declaration in declared(probe.options) if declaration.field not in common]
    return [
        f"`{probe.name}`",
        plain(probe.summary.rstrip(".")),
        ", ".join(unit.name for unit in probe.results.units),
        f"{probe.usual.repetitions} x {probe.usual.duration_s:g} s",
        f"{probe.cost_s(probe.usual):.0f} s",
        " ".join(own) or "-",
        ", ".join(probe.groups) or "-",
    ]


def _steps() -> str:
    rows = [
        [
            f"`{kind.name}`",
            plain(kind.about),
            str(kind.scope),
            *("yes" if kind.options(level, ()) is not None else "" for level in Level),
        ]
        for kind in STEPS
    ]
    return table(["step", "what", "measured by", *map(str, Level)], rows)
