"""A running job at one moment as text and as a JSON document: a line a host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from nodectl.common.units import digits
from nodectl.report.table import aligned, broken

if TYPE_CHECKING:
    from nodectl.model.pulse import Pulse

_MISSING = "-"
_HEAD = ("HOST", "STATE", "STEP", "LOSS", "OUTPUT", "GPU", "POWER", "IN", "OUT")


def watch_text(job_id: str, pulses: Sequence[Pulse], stalls: Sequence[str], width: int | None = None) -> str:
    """Progress in the first line, then the hosts, then what stands still; no line wider than `width`."""
    hosts = _hosts([_HEAD, *(_row(pulse) for pulse in pulses)], width)
    problems = [f"{pulse.host}: {pulse.problem}" for pulse in pulses if pulse.problem]
    lines = [_progress(job_id, pulses), *hosts, *problems, *(f"STALL: {line}" for line in stalls)]
    return "\n".join(lines if width is None else (part for line in lines for part in broken(line, width)))


def watch_document(job_id: str, pulses: Sequence[Pulse], stalls: Sequence[str]) -> dict[str, object]:
    """For `--output json`."""
    return {"job": job_id, "hosts": [asdict(pulse) for pulse in pulses], "stalls": list(stalls)}


def _hosts(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Return a line for each host; where even known columns are too wide, a list of its values."""
    table = aligned(rows).splitlines()
    if width is None or max(map(len, table)) <= width:
        return table
    known = [column for column in zip(*rows, strict=True) if set(column[1:]) != {_MISSING}]
    table = aligned(list(zip(*known, strict=True))).splitlines()
    if max(map(len, table)) <= width:
        return table
    names = [name if name == "GPU" else name.lower() for name in rows[0][2:]]
    return [", ".join([f"{host}: {state}", *_pairs(names, values)]) for host, state, *values in rows[1:]]


def _pairs(names: Sequence[str], values: Sequence[str]) -> list[str]:
    return [f"{name} {value}" for name, value in zip(names, values, strict=True) if value != _MISSING]


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
