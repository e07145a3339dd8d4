"""Reads a running job's progress from its hosts repeatedly (steps, output, GPUs, network), and detects stalls."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nodectl.common.nodeset import fold
from nodectl.errors import UsageError
from nodectl.jobs.nodes import ask
from nodectl.jobs.rows import PulseRow
from nodectl.model.host import Host
from nodectl.model.job import Gpus, Pulse
from nodectl.payload.jobs.standing import gpus_wait
from nodectl.transport.base import Transport

_TIMEOUT_S = 20.0
_LONGEST_PATTERN = 300


@dataclass(slots=True)
class Watch:
    """Looks at a job; keeps of each look what the next one is compared with."""

    transport: Transport
    hosts: Sequence[Host]
    job_id: str
    forks: int
    pattern: str = ""
    _before: dict[str, Pulse] = field(default_factory=dict)

    def look(self) -> list[Pulse]:
        """Return the pulse of every host, in the order of `hosts`; a host without an answer has a `problem`."""
        arguments = ["pulse", self.job_id, self.pattern]
        asked: dict[str, Any] = {"forks": self.forks, "timeout_s": _TIMEOUT_S, "kind": PulseRow}
        answers = ask(self.transport, self.hosts, lambda _: arguments, **asked)
        seen = []
        for host in self.hosts:
            rows = answers.lines.get(host.name, ())
            if not rows:
                seen.append(Pulse(host.name, "unreachable", problem=answers.problems.get(host.name, "not known there")))
                continue
            now = compared(self._before.get(host.name), read_pulse(host.name, rows[0]))
            self._before[host.name] = now
            seen.append(now)
        return seen


def check_pattern(pattern: str) -> str:
    """Return the regular expression; raise UsageError for one without a group `step`."""
    try:
        groups = re.compile(pattern).groupindex
    except re.error as error:
        raise UsageError(f"--pattern {pattern}: {error}", "write a regular expression of Python") from error
    if "step" not in groups or len(pattern) > _LONGEST_PATTERN:
        raise UsageError(
            f"--pattern {pattern}: the expression needs a group `step`, as (?P<step>\\d+)",
            r"write such as 'it (?P<step>\d+)/(?P<total>\d+)'",
        )
    return pattern


def read_pulse(host: str, row: Mapping[str, Any]) -> Pulse:
    """Read a row of `jobs.control pulse`."""
    return Pulse(
        host=host,
        state=row["state"] if row["alive"] or row["state"] != "running" else "lost",
        attempt=row["attempt"],
        alive=row["alive"],
        step=row["step"],
        total=row["total"],
        output_age_s=row["output_age_s"],
        gpus=_gpus(row["gpus"]),
        network=row["rdma"] or row["network"],
        time_s=row["time_s"],
    )


def _gpus(rows: Sequence[Mapping[str, float | None]]) -> Gpus | None:
    if not rows:
        return None
    uses = [use for row in rows if (use := row["use_percent"]) is not None]
    powers = [power for row in rows if (power := row["power_w"]) is not None]
    limits = [limit for row in rows if (limit := row["limit_w"]) is not None]
    use = sum(uses) / len(uses) if uses else None
    lost = tuple(int(row["index"] or 0) for row in rows if row.get("lost"))
    power, limit = sum(powers) if powers else None, sum(limits) if limits else None
    return Gpus(len(rows) - len(lost), use, power, limit, gpus_wait(rows), lost)


def compared(before: Pulse | None, now: Pulse) -> Pulse:
    """Return `now` with the rates since `before`, and for how long its GPUs have waited."""
    if before is None or now.time_s <= before.time_s or now.attempt != before.attempt:
        return now
    seconds = now.time_s - before.time_s
    steps = None if now.step is None or before.step is None else max(0, now.step - before.step) / seconds
    was, got = before.network, now.network
    rates = {} if was is None or got is None else {name: max(0.0, got[name] - was[name]) / seconds for name in got}
    waits = now.gpus is not None and now.gpus.wait and not steps
    return replace(
        now,
        steps_per_s=steps,
        in_bytes_s=rates.get("in_bytes"),
        out_bytes_s=rates.get("out_bytes"),
        waits_s=before.waits_s + seconds if waits else 0.0,
    )


def stalls(pulses: Sequence[Pulse], *, quiet_s: float, waits_s: float) -> list[str]:
    """Return sentences: lost GPUs; no output for `quiet_s`; GPUs that are in use and draw little for `waits_s`."""
    running = [pulse for pulse in pulses if pulse.state == "running"]
    ages = [pulse.output_age_s for pulse in running if pulse.output_age_s is not None]
    sentences = [
        f"{pulse.host}: GPU {', '.join(map(str, pulse.gpus.lost))} is lost: drain and reboot the node when the job ends"
        for pulse in pulses
        if pulse.gpus and pulse.gpus.lost
    ]
    if ages and min(ages) > quiet_s:
        sentences.append(f"no output on any host for {min(ages):.0f} s: it may hang")
    waiting = [pulse for pulse in running if pulse.waits_s >= waits_s]
    if waiting:
        gpus = waiting[0].gpus
        power = "" if gpus is None else f", {gpus.power_w:.0f} of {gpus.limit_w:.0f} W"
        names = fold(pulse.host for pulse in waiting)
        sentences.append(
            f"{names}: GPUs in use without power for {waiting[0].waits_s:.0f} s{power}: they wait, as in a collective"
        )
    return sentences
