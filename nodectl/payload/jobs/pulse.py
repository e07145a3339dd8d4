"""How a job does on this node at this moment: its step by its output, that output's age, GPUs and network counters."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import time
from typing import Any, Dict, List, Optional, Tuple

from ..common import machine
from . import outputs
from .folder import JobFolder
from .process import read_text

_TAIL_BYTES = 64 * 1024
_LINES = 400
_MOST_FILES, _FEW_FILES = 32, 4
_GPU_S = 5.0
_GPU_FIELDS = ("index", "utilization.gpu", "power.draw", "power.limit", "memory.used", "memory.total")
_RDMA_WORD_BYTES = 4  # what port_xmit_data counts in
# `step 12/100`, `iteration: 7`, `Step=3`; then a tqdm bar
_STEPS = (
    re.compile(
        r"\b(?:step|iteration|iter)\b['\"]?[\s:=#]*(?P<step>\d+)(?![.\d])(?:\s*(?:/|of)\s*(?P<total>\d+))?",
        re.IGNORECASE,
    ),
    re.compile(r"\|\s*(?P<step>\d+)/(?P<total>\d+) \["),
)


def pulse(job: JobFolder, pattern: str) -> Dict[str, Any]:
    """Return a row for `jobs watch`; what cannot be read is None or empty, never 0."""
    plan = job.plan()
    state = job.state()
    files = _newest_first([job.at(name) for name in outputs.shown_files(job)])
    return {
        "id": job.id,
        "state": state["state"],
        "attempt": state.get("attempt", 1),
        "alive": job.supervisor_alive(),
        "output_age_s": max(0.0, time.time() - files[0][0]) if files else None,
        **_progress_of([path for _, path in files], pattern),
        "network": network_bytes(plan["hosts"][plan["rank"]].get("interface", "")),
        "rdma": rdma_bytes(),
        "gpus": gpus(),
        "time_s": time.monotonic(),
    }


def step(job: JobFolder) -> Optional[int]:
    """Return the newest step that its output tells, by a few of the newest files; None if it tells none."""
    files = _newest_first([job.at(name) for name in outputs.shown_files(job)])
    number: Optional[int] = _progress_of([path for _, path in files[:_FEW_FILES]], "")["step"]
    return number


def _newest_first(paths: List[str]) -> List[Tuple[float, str]]:
    written = []
    for path in paths:
        with contextlib.suppress(OSError):
            stat = os.stat(path)
            written += [(stat.st_mtime, path)] if stat.st_size else []
    return sorted(written, reverse=True)


def _progress_of(paths: List[str], pattern: str) -> Dict[str, Any]:
    row = progress("")
    for path in paths[:_MOST_FILES]:
        row = progress(outputs.tail(path, _TAIL_BYTES), pattern)
        if row["step"] is not None:
            break
    return row


def progress(text: str, pattern: str = "") -> Dict[str, Any]:
    """Return `step` and `total` of the last line that tells a step; `pattern` has groups of these names."""
    expressions = [re.compile(pattern)] if pattern else _STEPS
    for line in reversed(re.split(r"[\r\n]+", text)[-_LINES:]):
        for expression in expressions:
            match = expression.search(line)
            if match:
                groups = match.groupdict()
                return {"step": _number(groups.get("step")), "total": _number(groups.get("total"))}
    return {"step": None, "total": None}


def _number(text: Optional[str]) -> Optional[int]:
    digits = (text or "").replace(",", "").replace("_", "")
    return int(digits) if digits.isdigit() else None


def network_bytes(interface: str) -> Optional[Dict[str, int]]:
    """Bytes that came in and went out by the job's interface, or if it is not told by all but loopback."""
    names = [interface] if interface else [name for name in os.listdir("/sys/class/net") if name != "lo"]
    counted = [_counters(f"/sys/class/net/{name}/statistics", ("rx_bytes", "tx_bytes")) for name in names]
    return _sum([pair for pair in counted if pair])


def rdma_bytes() -> Optional[Dict[str, int]]:
    """Bytes over all RDMA ports; None if there is none."""
    ports = glob.glob("/sys/class/infiniband/*/ports/*/counters")
    counted = [_counters(port, ("port_rcv_data", "port_xmit_data")) for port in ports]
    return _sum([[value * _RDMA_WORD_BYTES for value in pair] for pair in counted if pair])


def _counters(folder: str, names: Tuple[str, str]) -> List[int]:
    try:
        return [int(read_text(os.path.join(folder, name))) for name in names]
    except ValueError:
        return []


def _sum(counted: List[List[int]]) -> Optional[Dict[str, int]]:
    if not counted:
        return None
    return {"in_bytes": sum(pair[0] for pair in counted), "out_bytes": sum(pair[1] for pair in counted)}


def gpus(most_s: float = _GPU_S) -> List[Dict[str, Optional[float]]]:
    """Return a row a GPU; none if there is no nvidia-smi, or it does not answer."""
    query = f"--query-gpu={','.join(_GPU_FIELDS)}"
    return gpu_rows(machine.smi(query, "--format=csv,noheader,nounits", timeout_s=most_s) or "")


def gpu_rows(text: str) -> List[Dict[str, Optional[float]]]:
    """Read nvidia-smi's CSV; a value that it does not have (`[N/A]`) is None, and `lost` is 1 for a lost GPU."""
    names = ("index", "use_percent", "power_w", "limit_w", "memory_mib", "memory_total_mib")
    rows = []
    for line in text.splitlines():
        row = [_float(field) for field in line.split(",")]
        if len(row) == len(names):
            rows.append({**dict(zip(names, row)), "lost": float(machine.LOST in line)})  # noqa: B905 - Python 3.8
    return rows


def _float(text: str) -> Optional[float]:
    try:
        return float(text)
    except ValueError:
        return None
