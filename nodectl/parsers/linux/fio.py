"""Reads `fio --output-format=json`, of versions 2 and 3, among what fio prints before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodectl.common.units import MIB
from nodectl.errors import ParseError
from nodectl.parsers.json_values import json_document, number, objects, section, text_of, whole

TOOL = "fio"
_NS_PER_MS, _US_PER_MS = 1e6, 1e3
# total latency where its percentiles were asked for, else that of completion, which fio gives by default
_LATENCIES = (("lat_ns", _NS_PER_MS), ("clat_ns", _NS_PER_MS), ("lat", _US_PER_MS), ("clat", _US_PER_MS))


@dataclass(frozen=True, slots=True)
class FioJob:
    """One job; a direction that moved nothing has no latency."""

    name: str
    error: int | None
    read_mib_s: float | None
    write_mib_s: float | None
    read_iops: float | None
    write_iops: float | None
    read_latency_p99_ms: float | None
    write_latency_p99_ms: float | None


@dataclass(frozen=True, slots=True)
class Fio:
    """The jobs in the order of the report, the grouped ones as fio groups them."""

    version: str | None
    jobs: tuple[FioJob, ...]


def parse_fio(text: str) -> Fio:
    """ParseError where there is no report of fio's, it is cut, or a value is of the wrong kind."""
    report = json_document(text, TOOL, _is_report)
    jobs = objects(report, "jobs", TOOL) or objects(report, "client_stats", TOOL)
    return Fio(text_of(report, "fio version", TOOL), tuple(_job(job) for job in jobs))


def _is_report(document: Any) -> bool:
    return isinstance(document, dict) and ("jobs" in document or "client_stats" in document)


def _job(job: Mapping[str, Any]) -> FioJob:
    name = text_of(job, "jobname", TOOL)
    if name is None:
        raise ParseError(f"{TOOL}: a job without 'jobname': {str(dict(job))[:200]!r}")
    read, write = section(job, "read", TOOL), section(job, "write", TOOL)
    return FioJob(
        name=name,
        error=whole(job, "error", TOOL),
        read_mib_s=_mib_s(read),
        write_mib_s=_mib_s(write),
        read_iops=number(read, "iops", TOOL),
        write_iops=number(write, "iops", TOOL),
        read_latency_p99_ms=_p99_ms(read),
        write_latency_p99_ms=_p99_ms(write),
    )


def _mib_s(direction: Mapping[str, Any]) -> float | None:
    rate_b_s, rate_kib_s = number(direction, "bw_bytes", TOOL), number(direction, "bw", TOOL)
    if rate_b_s is not None:
        return rate_b_s / MIB
    return None if rate_kib_s is None else rate_kib_s * 1024 / MIB


def _p99_ms(direction: Mapping[str, Any]) -> float | None:
    if number(direction, "total_ios", TOOL) == 0:
        return None
    for key, per_ms in _LATENCIES:
        p99 = number(section(section(direction, key, TOOL), "percentile", TOOL), "99.000000", TOOL)
        if p99 is not None:
            return p99 / per_ms
    return None
