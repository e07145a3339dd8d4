"""The summaries that the traced ranks of a job left on this host (in_rank/nodectl_trace.py)."""

from __future__ import annotations

import contextlib
import glob
import os
from typing import Any, Dict, List

from . import notes
from .folder import JobFolder

_FIGURES = ("step_ms", "compute_percent", "communication_percent", "overlap_percent", "idle_percent")


def summaries(job: JobFolder) -> List[Dict[str, Any]]:
    """Return a row for each rank of this host that was to be traced."""
    rows: List[Dict[str, Any]] = []
    for path in glob.glob(os.path.join(glob.escape(job.at("traces")), "*.summary.json")):
        told = notes.read(path)
        with contextlib.suppress(KeyError, TypeError, ValueError):  # the script may have written there
            row = {"rank": int(told["rank"]), "attempt": int(told["attempt"]), "problem": str(told["problem"])[:500]}
            figures = {name: float(told[name]) for name in _FIGURES if name in told}
            rows.append({**row, "steps": int(told.get("steps", 0)), **figures})
    return rows
