"""A running job at one moment as text and as a JSON document: a line a host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from nodectl.common.units import digits
from nodectl.report.table import aligned

if TYPE_CHECKING:
    from nodectl.model.pulse import Pulse

_MISSING = "-"


def watch_text(job_id: str, pulses: Sequence[Pulse], stalls: Sequence[str]) -> str:
    """Progress in the first line, then the hosts, then what stands still."""
    head = ("HOST", "STATE", "STEP", "LOSS", "OUTPUT", "GPU", "POWER", "IN", "OUT")
    rows = [head, *(_row(pulse) for pulse in pulses)]
    problems = [f"{pulse.host}: {pulse.problem}" for pulse in pulses if pulse.problem]
    return "\n".join([_progress(job_id, pulses), aligned(rows), *problems, *(f"STALL: {line}" for line in stalls)])


def watch_document(job_id: str, pulses: Sequence[Pulse], stalls: Sequence[str]) -> dict[str, object]:
    """For `--output json`."""
    return {"job": job_id, "hosts": [asdict(pulse) for pulse in pulses], "stalls": list(stalls)}


def _progress(job_id: str, pulses: Sequence[Pulse]) -> str:
    """`job ID: attempt 2, step 120 of 1000 (12 %), 4.20 steps/s, 0:03:29 left`."""
    ahead = max(pulses, key=lambda pulse: (pulse.attempt, pulse.step or -1))
    parts = [f"attempt {ahead.attempt}"] if ahead.attempt > 1 else []
    if ahead.step is not None:
        share = f" ({100 * ahead.step / ahead.total:.0f} %)" if ahead.total else ""
        parts.append(f"step {ahead.step}" + (f" of {ahead.total}{share}" if ahead.total else ""))
    if ahead.steps_per_s:
        parts.append(f"{digits(ahead.steps_per_s)} steps/s")
        if ahead.total and ahead.step is not None:
            parts.append(f"{_time((ahead.total - ahead.step) / ahead.steps_per_s)} left")
    return f"job {job_id}: {', '.join(parts) or 'no step seen in its output'}"


def _row(pulse: Pulse) -> tuple[str, ...]:
    gpus = pulse.gpus
    step = _MISSING if pulse.step is None else str(pulse.step) + (f"/{pulse.total}" if pulse.total else "")
    used = _MISSING if gpus is None or gpus.use_percent is None else f"{gpus.count}x {gpus.use_percent:.0f} %"
    power = _MISSING if gpus is None or gpus.power_w is None else f"{gpus.power_w:.0f} W"
    age = _MISSING if pulse.output_age_s is None else f"{pulse.output_age_s:.0f} s ago"
    rates = (_rate(pulse.in_bytes_s), _rate(pulse.out_bytes_s))
    return (pulse.host, pulse.state, step, pulse.loss or _MISSING, age, used, power, *rates)


def _rate(bytes_s: float | None) -> str:
    return _MISSING if bytes_s is None else f"{digits(bytes_s / 1e6)} MB/s"


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
