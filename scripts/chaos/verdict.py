"""What came of a case against what was promised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scripts.chaos.cases import REACTION_S, Expect, Phase


def wrong_time(expect: Expect, ended_s: float | None, slowness: float) -> list[str]:
    """Return what is wrong with the time of a promised end of the ranks; `ended_s` is None if it did not come."""
    if expect.within_s is None:
        return []
    allowed_s = allowed(expect, slowness)
    if ended_s is not None and ended_s <= allowed_s:
        return []
    came = "did not come" if ended_s is None else f"came after {ended_s:.1f} s"
    return [f"the ranks' end {came}; promised are {expect.within_s:g} s, here {allowed_s:.1f} s"]


def allowed(expect: Expect, slowness: float) -> float:
    """Return the promised seconds, with the reaction of a machine that is so slow."""
    return (expect.within_s or 0.0) + REACTION_S * slowness


def wrong_end(expect: Expect, phase: Phase, job: Mapping[str, Any] | None, exit_status: int | None) -> list[str]:
    """State, cause and the launch's exit status."""
    state = "undone" if job is None else str(job["state"])
    found = [] if state in expect.states else [f"it is {state}, not {' or '.join(expect.states)}"]
    if expect.exits is not None and exit_status not in expect.exits:
        found.append(f"the launch ended with {exit_status}, not {' or '.join(map(str, expect.exits))}")
    if job is not None and expect.classes and (phase is Phase.RESTARTED or state == "failed"):
        found += _wrong_cause(expect, phase, job)
    return found


def _wrong_cause(expect: Expect, phase: Phase, job: Mapping[str, Any]) -> list[str]:
    past = job["past_attempts"]
    cause = job["first_failure"] if phase is not Phase.RESTARTED else past[0]["cause"] if past else None
    if cause is None:
        return ["no cause is told"]
    host = None if expect.host is None else job["hosts"][expect.host]
    right = cause["class"] in expect.classes and host in (None, cause["host"]) and cause["rank"] == expect.rank
    told = f"{cause['class']} of {cause['host']}, rank {cause['rank']}: {str(cause['message'])[:120]}"
    return [] if right else [f"the cause is {told}; not {' or '.join(expect.classes)} of {host}, rank {expect.rank}"]


def wrong_losses(told: Sequence[tuple[int, str]], losses: Mapping[int, str], *, goes_on: bool) -> list[str]:
    """Losses that are not, bit by bit, those of an undisturbed run; steps that a job which went on has left out."""
    other = sorted({step for step, loss in told if losses.get(step, loss) != loss})
    found = [f"the loss of step {other[0]} is not that of an undisturbed run"] if other else []
    numbers = {step for step, _ in told}
    if goes_on and numbers != set(range(1, max(numbers, default=0) + 1)):
        found.append(f"steps are missing among the {len(numbers)} that were told")
    return found
