"""fio's JSON of versions 2 and 3; every column differs."""

import json
from typing import Any

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.linux.load import FioJob, parse_fio


def direction(**given: Any) -> dict[str, Any]:
    return {"io_bytes": 1, "bw_bytes": 3 * 2**20, "bw": 3072, "iops": 85138.5, "total_ios": 7, **given}


def p99(value: float) -> dict[str, Any]:
    return {"min": 1, "percentile": {"50.000000": value / 2, "99.000000": value, "99.900000": value * 2}}


JOB = {
    "jobname": "rand read",
    "error": 0,
    "read": direction(clat_ns=p99(2_244_608)),
    "write": direction(bw_bytes=5 * 2**20, bw=5120, iops=11.25, clat_ns=p99(9_000_000)),
}
FOUND = FioJob("rand read", 0, 3.0, 5.0, 85138.5, 11.25, 2.244608, 9.0)


def report(*jobs: dict[str, Any]) -> str:
    return json.dumps({"fio version": "fio-3.36", "jobs": jobs}, indent=1)


@pytest.mark.parametrize(
    "text",
    [
        report(JOB),
        "fio: {terse} output\nnote: both iodepth >= 1 and synchronous I/O engine are selected\n"
        + report(JOB)
        + "\ndone",
        report(JOB).replace("\n", "\r\n"),
    ],
)
def test_every_value(text: str) -> None:
    found = parse_fio(text)
    assert (found.version, found.jobs) == ("fio-3.36", (FOUND,))


@pytest.mark.parametrize(
    ("given", "expected_ms"),
    [
        ({"lat_ns": p99(4_000_000), "clat_ns": p99(1_000_000)}, 4.0),
        ({"lat_ns": {"mean": 3.0}, "clat_ns": p99(1_000_000)}, 1.0),
        ({"clat": p99(2000)}, 2.0),
        ({"clat_ns": p99(0), "total_ios": 0}, None),
        ({}, None),
    ],
    ids=["total before completion", "completion", "version 2 in microseconds", "nothing moved", "not asked for"],
)
def test_latency(given: dict[str, Any], expected_ms: float | None) -> None:
    (job,) = parse_fio(report({"jobname": "j", "read": direction(**given)})).jobs
    assert job.read_latency_p99_ms == expected_ms
    assert (job.write_mib_s, job.write_latency_p99_ms) == (None, None)


def test_version_2_gives_kib_a_second_only() -> None:
    (job,) = parse_fio(report({"jobname": "j", "read": {"bw": 2048}})).jobs
    assert job.read_mib_s == 2.0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty"),
        ("fio: file:filesetup.c:288, func=open, error=Permission denied", "line 1.*Permission denied.*no JSON"),
        ('{"other": 1}', "no JSON document"),
        (report(JOB)[:-30], "line 3[0-9]: .*99.900000"),
        (report({"read": {}}), "without 'jobname'"),
        (report({**JOB, "read": direction(iops="fast")}), "'iops' is 'fast', not a number"),
        (report({**JOB, "read": direction(iops=True)}), "'iops'"),
        (report({**JOB, "read": [1]}), "'read'.*not an object"),
        ('{"jobs": 3}', "'jobs'.*list of objects"),
        ('{"jobs": ' + "[" * 100_000, "line 1"),
        ('{"jobs": [], "fio version": ' + "9" * 5000 + "}", "line 1"),
    ],
)
def test_refused(text: str, told: str) -> None:
    with pytest.raises(ParseError, match=told):
        parse_fio(text)
