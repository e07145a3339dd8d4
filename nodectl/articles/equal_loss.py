"""How long a training takes to a loss, and the loss to which two of them come: speed alone says nothing of learning."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

# (seconds of training, loss), in the order of time
Curve = Sequence[tuple[float, float]]
# a step's loss is of few samples: so many readings are averaged
_WINDOW = 5


def smoothed(curve: Curve) -> list[tuple[float, float]]:
    """Each reading as the mean with those before it, as many as are there up to the window."""
    losses = [loss for _, loss in curve]
    return [(at, fmean(losses[max(0, end - _WINDOW) : end])) for end, (at, _) in enumerate(curve, start=1)]


def shared_loss(curves: Sequence[Curve]) -> float | None:
    """The lowest loss to which all of them come; None where one has too few readings to tell."""
    if not curves or any(len(curve) < _WINDOW for curve in curves):
        return None
    return max(min(loss for _, loss in smoothed(curve)[_WINDOW - 1 :]) for curve in curves)


def seconds_to(curve: Curve, loss: float) -> float | None:
    """Return when its loss was first that low, between two readings by a straight line; None where it never was."""
    before: tuple[float, float] | None = None
    for at, now in smoothed(curve):
        if now <= loss:
            if before is None or before[1] <= now:
                return at
            return before[0] + (at - before[0]) * (before[1] - loss) / (before[1] - now)
        before = (at, now)
    return None
