"""Whether socket buffers hold a TCP flow back: what is on its way at once, against the window that was offered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nodectl.model.finding import Finding
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.parsers.linux.iperf3 import Iperf3
from nodectl.predict.bdp import bdp_bytes, covered_rtt_s, needed_bytes
from nodectl.probes.duet import Played

_MIB = 1 << 20
# a window that has grown to this part of the buffer grows no further: the kernel keeps the rest for its bookkeeping
_GROWN = 0.4
# a flow that has this part of the window on its way waits for it; of the send buffer less holds data
_FULL_WINDOW, _FULL_SEND = 0.9, 0.75
_REMEDY = (
    "raise the third value of net.ipv4.tcp_rmem and net.ipv4.tcp_wmem; `nodectl tune trial` shows what that gains, "
    "and more --streams share the path meanwhile"
)
Buffers = tuple[int | None, int | None]


@dataclass(frozen=True, slots=True)
class Window:
    """A pair's idle round trip, both ends' (receive, send) buffers, and the share of a buffer that became window."""

    rtt_ms: float | None
    client: Buffers
    server: Buffers
    window_bytes: int | None
    share: float | None

    def conditions(self, rate_gbit_s: float, streams: int, *, reverse: bool) -> dict[str, object]:
        """Return what the path's length and the buffers allow: at best, or as measured where the window has grown."""
        receive, send = (self.client[0], self.server[1]) if reverse else (self.server[0], self.client[1])
        known: dict[str, object] = {
            "rtt_ms": self.rtt_ms,
            "receive_buffer_bytes": receive,
            "send_buffer_bytes": send,
            "buffer_bytes": min(receive, send) if receive and send else None,
            "window_bytes": None if reverse else self.window_bytes,
        }
        if not (self.rtt_ms and receive and send):
            return {**known, "model_bit_s": None, "limited_by": None}
        window = receive * streams * (self.share or 1.0)
        in_flight = bdp_bytes(rate_gbit_s * 1e9, self.rtt_ms / 1000)
        model = 8000 * min(window, float(send * streams)) / self.rtt_ms
        limited = None
        if in_flight >= _FULL_SEND * send * streams:
            limited = "send buffer"
        elif self.share and in_flight >= _FULL_WINDOW * window:
            limited = "receive buffer"
        return {**known, "model_bit_s": model, "limited_by": limited}


def window_of(played: Played, forward: Sequence[Iperf3], streams: int) -> Window:
    """By what both ends said; the share only where the window has grown as far as the buffer lets it."""
    paths = played.events.of("path")
    path = paths[0] if paths else {}
    client, server = _buffers(path), _buffers(played.listening)
    window = max((run.window_bytes for run in forward if run.window_bytes), default=None)
    share = window / (server[0] * streams) if window and server[0] else None
    grown = share if share is not None and _GROWN <= share <= 1 else None
    return Window(path.get("rtt_ms"), client, server, window, grown)


def buffer_hint(measurements: Sequence[Measurement]) -> tuple[Finding, ...]:
    """One warning for all flows that fill their buffers, by the one that reaches least."""
    held = [measurement for measurement in measurements if measurement.conditions.get("limited_by")]
    if not held:
        return ()
    least = min(held, key=lambda measurement: measurement.value)
    others = f"; as in {len(held) - 1} more of {len(measurements)} directions" if len(held) > 1 else ""
    return (
        Finding(
            least.hosts[0],
            least.probe,
            Status.WARNING,
            subject=f"{least.direction}: {least.conditions['limited_by']}",
            actual=_told(least) + others,
            remedy=_REMEDY,
            hosts=least.hosts,
        ),
    )


def _told(measurement: Measurement) -> str:
    given = measurement.conditions
    rtt_ms, rate_bit_s = _number(given, "rtt_ms"), measurement.value * 1e9
    side = "send" if given["limited_by"] == "send buffer" else "receive"
    size, streams = _number(given, f"{side}_buffer_bytes"), _number(given, "streams")
    in_flight = bdp_bytes(rate_bit_s, rtt_ms / 1000)
    share = min(1.0, in_flight / (size * streams))
    covered_ms = 1000 * covered_rtt_s(size * streams, 1e10, share)
    needed = needed_bytes(1e10, rtt_ms / 1000, share) / _MIB
    return (
        f"the {side} buffer of {size / _MIB:.3g} MiB is full at {measurement.value:.3g} Gbit/s over {rtt_ms:.3g} ms; "
        f"at 10 Gbit/s it covers {covered_ms:.2g} ms, and this path would take {needed:.3g} MiB"
    )


def _buffers(event: Mapping[str, object]) -> Buffers:
    sizes = event.get("buffers")
    return (sizes[0], sizes[1]) if isinstance(sizes, list) and len(sizes) == 2 else (None, None)


def _number(conditions: Mapping[str, object], name: str) -> float:
    value = conditions[name]
    return float(value) if isinstance(value, int | float) else 0.0
