"""Bandwidth-delay product: how much is on its way, and what a socket buffer of a certain size lets through.

Not all of a buffer holds data: the kernel counts its own bookkeeping. The part that does is fitted to measurements, one
for the receiver's buffer and one for the sender's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from nodectl.errors import UsageError

# a rate this near to the link's is the link's, and says nothing of buffers
_LINK_LIMITED = 0.9
_PASSES = 20


@dataclass(frozen=True, slots=True)
class BufferRun:
    """One flow that was measured: maxima of both buffers, the round trip, and what went through."""

    receive_bytes: float
    send_bytes: float
    rtt_s: float
    bit_s: float
    rate_bit_s: float = math.inf


@dataclass(frozen=True, slots=True)
class Shares:
    """The usable part of each buffer; None where no run was limited by it. `error` is the worst part of a miss."""

    receive: float | None
    send: float | None
    error: float
    runs: int

    def window_bytes(self, receive_bytes: float, send_bytes: float) -> float:
        """How much can be on its way at once."""
        sides = ((self.receive, receive_bytes), (self.send, send_bytes))
        return min((share * size for share, size in sides if share is not None), default=math.inf)

    def predict_bit_s(self, receive_bytes: float, send_bytes: float, rtt_s: float, rate_bit_s: float) -> float:
        """Return what one flow reaches: the link's rate, or a window a round trip."""
        return min(rate_bit_s, 8 * self.window_bytes(receive_bytes, send_bytes) / rtt_s)


def bdp_bytes(rate_bit_s: float, rtt_s: float) -> float:
    """Return what is on its way on a link that is full."""
    return rate_bit_s * rtt_s / 8


def covered_rtt_s(buffer_bytes: float, rate_bit_s: float, share: float = 1.0) -> float:
    """The longest round trip at which a buffer keeps the link full; with share 1, at best."""
    return 8 * share * buffer_bytes / rate_bit_s


def needed_bytes(rate_bit_s: float, rtt_s: float, share: float, flows: int = 1) -> int:
    """How large the buffer of each of so many flows has to be for them to fill the link together."""
    return math.ceil(bdp_bytes(rate_bit_s, rtt_s) / share / flows)


def fit_shares(runs: Sequence[BufferRun]) -> Shares:
    """The usable parts that explain these runs best; runs that fill the link are left out."""
    if any(min(run.receive_bytes, run.send_bytes, run.rtt_s, run.bit_s) <= 0 for run in runs):
        raise UsageError("a run has no buffer, no round trip or no rate", "leave out what measured nothing")
    limited = [run for run in runs if run.bit_s < _LINK_LIMITED * run.rate_bit_s]
    if not limited:
        raise UsageError(
            "every run fills the link, which shows nothing of buffers", "measure with smaller buffers or a longer path"
        )
    starts = [_fitted(limited, by_receive) for by_receive in _first_guesses(limited)]
    # of two that explain as much, the one that asks for less
    return min(starts, key=lambda each: (round(_miss(each, limited), 6), (each.receive, each.send).count(None) == 0))


def _first_guesses(runs: Sequence[BufferRun]) -> list[list[bool]]:
    """Whether the receiver's buffer limits each run: where it is smaller than the sender's by this or that factor."""
    ratios = sorted({run.receive_bytes / run.send_bytes for run in runs})
    edges = [ratios[0] / 2, *[math.sqrt(a * b) for a, b in pairwise(ratios)], ratios[-1] * 2]
    return [[run.receive_bytes / run.send_bytes < edge for run in runs] for edge in edges]


def _fitted(runs: Sequence[BufferRun], by_receive: list[bool]) -> Shares:
    """Shares by side, then sides by shares, until neither changes."""
    shares = Shares(None, None, math.inf, len(runs))
    for _ in range(_PASSES):
        in_flight = [bdp_bytes(run.bit_s, run.rtt_s) for run in runs]
        own = [size / run.receive_bytes for size, run, here in zip(in_flight, runs, by_receive, strict=True) if here]
        other = [size / run.send_bytes for size, run, here in zip(in_flight, runs, by_receive, strict=True) if not here]
        receive, send = (median(each) if each else None for each in (own, other))
        shares = Shares(receive, send, 0.0, len(runs))
        if receive is None or send is None:
            break
        now = [receive * run.receive_bytes < send * run.send_bytes for run in runs]
        if now == by_receive:
            break
        by_receive = now
    worst = max(abs(_part(shares, run) - 1) for run in runs)
    return Shares(shares.receive, shares.send, worst, len(runs))


def _miss(shares: Shares, runs: Sequence[BufferRun]) -> float:
    return sum(abs(math.log(_part(shares, run))) for run in runs)


def _part(shares: Shares, run: BufferRun) -> float:
    """The predicted rate as a part of the measured one."""
    predicted = shares.predict_bit_s(run.receive_bytes, run.send_bytes, run.rtt_s, run.rate_bit_s)
    return predicted / run.bit_s
