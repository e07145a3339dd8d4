"""Reads `iperf3 --json`, of old and new versions, with log noise before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodectl.facts.parsers.json_values import json_document, number, objects, section, text_of, whole

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
    document = json_document(text, TOOL, _is_ours)
    start, end = section(document, "start", TOOL), section(document, "end", TOOL)
    test = section(start, "test_start", TOOL)
    sent = section(end, "sum_sent", TOOL) or section(end, "sum", TOOL)
    received = section(end, "sum_received", TOOL)
    streams = objects(end, "streams", TOOL)
    count, duration_s = whole(test, "num_streams", TOOL), number(sent, "seconds", TOOL)
    rate = number(received, "bits_per_second", TOOL)
    return Iperf3(
        version=text_of(start, "version", TOOL),
        protocol=text_of(test, "protocol", TOOL),
        streams=(len(streams) or None) if count is None else count,
        duration_s=number(received, "seconds", TOOL) if duration_s is None else duration_s,
        reverse=None if "reverse" not in test else bool(test["reverse"]),
        received_gbit_s=None if rate is None else rate / 1e9,
        retransmits=whole(sent, "retransmits", TOOL),
        rtt_mean_ms=_rtt_mean_ms(streams),
        congestion=text_of(end, "sender_tcp_congestion", TOOL),
        error=text_of(document, "error", TOOL),
        window_bytes=_window_bytes(streams),
    )


def _is_ours(document: Any) -> bool:
    return isinstance(document, dict) and any(isinstance(document.get(key), kind) for key, kind in _OURS.items())


def _rtt_mean_ms(streams: list[Mapping[str, Any]]) -> float | None:
    means_us = [number(section(stream, "sender", TOOL), "mean_rtt", TOOL) for stream in streams]
    # 0 is what a sender without a kernel that tells it, and a receiver, print
    known_us = [mean_us for mean_us in means_us if mean_us]
    return sum(known_us) / len(known_us) / 1000 if known_us else None


def _window_bytes(streams: list[Mapping[str, Any]]) -> int | None:
    windows = [whole(section(stream, "sender", TOOL), "max_snd_wnd", TOOL) for stream in streams]
    window_sizes = [window for window in windows if window]
    return sum(window_sizes) if window_sizes and len(window_sizes) == len(streams) else None
