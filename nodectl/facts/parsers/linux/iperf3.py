"""Reads `iperf3 --json`, of old and new versions, with log noise before it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from nodectl.facts.parsers.json_values import json_document, value_at

TOOL = "iperf3"

# an interval inside a document has start and end too, but as numbers
_OURS = {"start": dict, "end": dict, "intervals": list, "error": str}


@dataclass(frozen=True, slots=True)
class Iperf3:
    """One run; None for what this version or this run does not give, `error` where iperf3 says why it failed."""

    version: str | None
    protocol: str | None
    streams: int | None
    duration_s: float | None
    reverse: bool | None
    received_gbit_s: float | None
    retransmits: int | None
    rtt_mean_ms: float | None
    congestion: str | None
    error: str | None
    # the most that the receiver offered to take at once, over all streams; told by a sender, and by 3.9 and later
    window_bytes: int | None = None


def parse_iperf3(text: str) -> Iperf3:
    """Read the output; raise ParseError if there is no document of iperf3's, or it is cut."""
    document = json_document(
        text,
        TOOL,
        lambda document: (
            isinstance(document, dict) and any(isinstance(document.get(key), kind) for key, kind in _OURS.items())
        ),
    )
    at = partial(value_at, document, tool=TOOL)
    sent = "end/sum_sent" if at("end/sum_sent", dict) else "end/sum"
    streams = at("end/streams", list) or []
    rate = at("end/sum_received/bits_per_second", float)
    # 0 is what a sender without a kernel that tells it, and a receiver, print
    round_trips_us = [us for each in streams if (us := value_at(each, "sender/mean_rtt", float, TOOL))]
    windows = [size for each in streams if (size := value_at(each, "sender/max_snd_wnd", int, TOOL))]
    count, reverse = at("start/test_start/num_streams", int), at("start/test_start/reverse", int)
    duration_s = at(f"{sent}/seconds", float)
    return Iperf3(
        version=at("start/version", str),
        protocol=at("start/test_start/protocol", str),
        streams=(len(streams) or None) if count is None else count,
        duration_s=at("end/sum_received/seconds", float) if duration_s is None else duration_s,
        reverse=None if reverse is None else bool(reverse),
        received_gbit_s=None if rate is None else rate / 1e9,
        retransmits=at(f"{sent}/retransmits", int),
        rtt_mean_ms=sum(round_trips_us) / len(round_trips_us) / 1000 if round_trips_us else None,
        congestion=at("end/sender_tcp_congestion", str),
        error=at("error", str),
        window_bytes=sum(windows) if windows and len(windows) == len(streams) else None,
    )
