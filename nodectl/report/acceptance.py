"""An acceptance as text: the plan with its times, and the verdicts with what made them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from nodectl.common.counting import counted
from nodectl.common.nodeset import fold
from nodectl.common.units import time_text
from nodectl.model.acceptance import Acceptance, NodeVerdict, Step, StepState
from nodectl.model.status import Status
from nodectl.report.findings import TWO_SCREENS, folded
from nodectl.report.table import fitted

# in the cells of the table; the words stand below it
_MARKS = {Status.OK: "ok", Status.WARNING: "remark", Status.FAILED: "FAILED", Status.UNKNOWN: "unknown"}


def plan_text(steps: Sequence[Step], width: int) -> str:
    """Return the steps that will be taken with their times, then what was left out and why."""
    taken = [step for step in steps if step.state is not StepState.LEFT_OUT]
    rows = [("STEP", "HOSTS", "ABOUT", "WHAT")]
    rows += [(step.name, str(len(step.hosts)), time_text(step.planned_s), step.about) for step in taken]
    lines = [fitted(rows, width)]
    lines += _left_out("left out", steps)
    whole = time_text(sum(step.planned_s for step in taken))
    lines.append(f"in all about {whole}, for {counted(max((len(step.hosts) for step in steps), default=0), 'host')}")
    return "\n".join(lines)


def _left_out(word: str, steps: Sequence[Step]) -> list[str]:
    left: dict[str, list[str]] = {}
    for step in steps:
        if step.state is StepState.LEFT_OUT:
            left.setdefault(step.why, []).append(step.name)
    return [f"{word}: {', '.join(names)}: {why}" for why, names in left.items()]


def acceptance_text(acceptance: Acceptance, width: int) -> str:
    """Return a row for each host, alike ones folded; then the reasons, and what was not tried."""
    done = [step.name for step in acceptance.steps if step.state is StepState.DONE]
    groups: dict[tuple[object, ...], list[str]] = {}
    for host in acceptance.hosts:
        cells = tuple(_MARKS.get(host.steps[name], "-") if name in host.steps else "-" for name in done)
        groups.setdefault((host.verdict, cells), []).append(host.host)
    bad_first = sorted(groups.items(), key=lambda item: item[0][0].status.rank)  # type: ignore[attr-defined]
    rows = [("HOSTS", "VERDICT", "STEPS")]
    rows += [(fold(names), str(verdict), _steps_text(done, cells)) for (verdict, cells), names in bad_first]  # type: ignore[arg-type]
    blocks = [fitted(rows, width)]
    seen = [
        replace(finding, check=finding.check if finding.check == reason.step else f"{reason.step}, {finding.check}")
        for host in acceptance.hosts
        for reason in host.reasons
        if (finding := reason.finding).status is not Status.OK
    ]
    if lines := folded(seen, TWO_SCREENS):
        blocks.append("\n".join(lines))
    if not_tried := _left_out("not tried", acceptance.steps):
        blocks.append("\n".join(not_tried))
    blocks.append(_summary(acceptance))
    return "\n\n".join(blocks)


def _steps_text(done: Sequence[str], cells: Sequence[str]) -> str:
    parts = [f"{name} {cell}" for name, cell in zip(done, cells, strict=True) if cell not in ("ok", "-")]
    fine, away = cells.count("ok"), cells.count("-")
    parts += [f"{fine} ok"] if fine else []
    return ", ".join(parts + ([f"{away} not taken part in"] if away else []))


def _summary(acceptance: Acceptance) -> str:
    numbers = Counter(host.verdict for host in acceptance.hosts)
    verdicts = [f"{numbers[verdict]} {verdict}" for verdict in NodeVerdict if numbers[verdict]]
    taken = sum(step.took_s or 0.0 for step in acceptance.steps)
    planned = sum(step.planned_s for step in acceptance.steps if step.state is StepState.DONE)
    nature = "" if acceptance.nature in ("", "measured") else f"; figures: {acceptance.nature}"
    return f"{', '.join(verdicts)}; {time_text(taken)}, planned were {time_text(planned)}{nature}"
