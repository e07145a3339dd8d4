"""Lists of what is found by being there: facts of a host, tools whose output is read, metrics."""

from __future__ import annotations

import importlib

from nodectl.facts.catalogue import registered
from nodectl.parsers.catalogue import families
from nodectl.report.metrics import METRICS
from scripts.site.pages import plain, table

_FACTS = """# Facts

`nodectl facts` shows each of these subjects of every host, in one round trip. *always* is asked by every look, *live*
only of a host that answers itself, *verify* only at the end of `provision` and by `verify`.

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


def pages() -> dict[str, str]:
    """Return `facts.md`, `tools.md` and `metrics.md`."""
    facts = [[f"`{fact.subject}`", plain(fact.description), fact.occasion] for fact in registered()]
    tools = [
        [f"`{tool}`", plain(_first_line(module).removeprefix("Reads "))]
        for tool, module in sorted((tool, module) for family in families().values() for tool, module in family.items())
    ]
    metrics = [
        [f"`{metric.name}`", metric.kind, ", ".join(metric.labels) or "-", plain(metric.about)]
        for metric in METRICS.values()
    ]
    return {
        "facts.md": _FACTS.format(rows=table(["subject", "what it is", "asked"], facts)),
        "tools.md": _TOOLS.format(rows=table(["TOOL", "reads"], tools)),
        "metrics.md": _METRICS.format(rows=table(["metric", "type", "labels", "says"], metrics)),
    }


def _first_line(module: str) -> str:
    return (importlib.import_module(module).__doc__ or "").strip().partition("\n")[0]
