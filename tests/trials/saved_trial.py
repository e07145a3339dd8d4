"""A trial for tests: one candidate that is 30 % faster, with something of everything in it."""

from __future__ import annotations

from typing import Any

from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.model.trial import Trial
from nodectl.trials.families import judged
from tests.trials.trials import gaining


def trial(name: str = "20261121T120000Z-ab12", **changes: Any) -> Trial:
    """A trial of one candidate (30 % faster) with something of everything in it."""
    series = changes.pop("series", (gaining(30, profile="article-20g"),))
    verdicts, summaries = judged(series)
    given: dict[str, Any] = {
        "id": name,
        "started": "2026-11-21T12:00:00+00:00",
        "ended": "2026-11-21T12:04:00+00:00",
        "complete": True,
        "reason": "",
        "nodectl": "1",
        "inventory": ("hosts.yml",),
        "limit": "gpus",
        "hosts": {"a": {"nic": {"mtu": 9000}}, "b": {}},
        "baseline": "own",
        "candidates": ("article-20g",),
        "probes": ("tcp",),
        "pairs": 10,
        "options": {"duration_s": 2.0},
        "series": series,
        "verdicts": verdicts,
        "summaries": summaries,
        "findings": (Finding("a", "trial", Status.WARNING, actual="slow", hosts=("a",), kind="host"),),
        "conditions": ({"profile": "own", "what": "tcp", "conditions": {"streams": 1}},),
    }
    return Trial(**{**given, **changes})
