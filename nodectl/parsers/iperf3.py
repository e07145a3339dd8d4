"""Reads `iperf3 --json`, of old and new versions, with log noise before it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodectl.errors import ParseError

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
    sent_gbit_s: float | None
    received_gbit_s: float | None
    retransmits: int | None
    rtt_mean_ms: float | None
    congestion: str | None
    error: str | None


def parse_iperf3(text: str) -> Iperf3:
    """ParseError where there is no document of iperf3's, or it is cut."""
    document = _document(text)
    start, end = _part(document, "start"), _part(document, "end")
    test = _part(start, "test_start")
    sent, received = _part(end, "sum_sent") or _part(end, "sum"), _part(end, "sum_received")
    streams = end.get("streams") or []
    return Iperf3(
        version=start.get("version"),
        protocol=test.get("protocol"),
        streams=test.get("num_streams", len(streams) or None),
        duration_s=sent.get("seconds", received.get("seconds")),
        reverse=None if "reverse" not in test else bool(test["reverse"]),
        sent_gbit_s=_gbit_s(sent),
        received_gbit_s=_gbit_s(received),
        retransmits=sent.get("retransmits"),
        rtt_mean_ms=_rtt_mean_ms(streams),
        congestion=end.get("sender_tcp_congestion"),
        error=document.get("error"),
    )


def _document(text: str) -> Mapping[str, Any]:
    if not text.strip():
        raise ParseError("iperf3 printed nothing")
    lines = text.splitlines(keepends=True)
    position, failure = 0, ""
    for number, line in enumerate(lines, start=1):
        brace = line.find("{")
        if brace >= 0:
            try:
                found, _ = json.JSONDecoder().raw_decode(text, position + brace)
            except json.JSONDecodeError as error:
                failure = failure or f"iperf3 line {number}: {line.strip()[:80]!r}: {error}"
            else:
                if isinstance(found, dict) and any(isinstance(found.get(key), kind) for key, kind in _OURS.items()):
                    return found
        position += len(line)
    raise ParseError(failure or f"iperf3 line 1: {lines[0].strip()[:200]!r}: no JSON document")


def _part(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = document.get(key, {})
    if not isinstance(part, dict):
        raise ParseError(f"iperf3: {key!r} is {str(part)[:80]!r}, not an object")
    return part


def _gbit_s(part: Mapping[str, Any]) -> float | None:
    rate = part.get("bits_per_second")
    return None if rate is None else float(rate) / 1e9


def _rtt_mean_ms(streams: list[Any]) -> float | None:
    means_us = [
        each["sender"]["mean_rtt"]
        for each in streams
        if isinstance(each, dict) and isinstance(each.get("sender"), dict) and each["sender"].get("mean_rtt")
    ]
    return sum(means_us) / len(means_us) / 1000 if means_us else None
