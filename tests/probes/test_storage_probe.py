"""The storage probe: what of fio's reports counts, who is refused, and the slow host named after a second look."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from nodectl.model.host import Host
from nodectl.probes.base import ProbeResult
from nodectl.probes.storage import StorageOptions, run_storage
from nodectl.transport.router import LocalTransport
from tests.probes.scripted import HOSTS, Answer, play, silent

JOBS = {"sequential write": "write", "sequential read": "read", "random read": "read", "small files write": "write"}
READY = {
    "event": "ready",
    "fio": "fio-3.33",
    "engine": "libaio",
    "path": "/data",
    "room_bytes": 64 << 20,
    "direct": True,
    "source": "/dev/nvme0n1",
    "file_system": "ext4",
    "machine": "",
}
Speed = Callable[[str, str, int], float]


def report(job: str, speed: float, error: int = 0) -> dict[str, Any]:
    """fio's own form, by version 3."""
    moved = {
        "bw_bytes": int(speed * (1 << 20)),
        "iops": speed,
        "total_ios": 9,
        "lat_ns": {"percentile": {"99.000000": 4e6}},
    }
    still = {"bw_bytes": 0, "iops": 0.0, "total_ios": 0}
    own = {"jobname": job, "error": error, "read": still, "write": still, JOBS[job]: moved}
    return {"event": "fio", "job": job, "text": json.dumps({"fio version": "fio-3.33", "jobs": [own]})}


def probe(
    monkeypatch: pytest.MonkeyPatch,
    speed: Speed,
    looks: dict[str, Answer] | None = None,
    hosts: Sequence[Host] = HOSTS,
    measured: Answer | None = None,
    **options: Any,
) -> tuple[ProbeResult, Any]:
    """`speed` gets the host, the job and the number of the host's measurement, from 0."""
    times: dict[str, int] = {}

    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        assert module == "probes.storage"
        if args[0] == "look":
            return (looks or {}).get(host, Answer([READY]))
        if measured is not None:
            return measured
        number = times[host] = times.get(host, -1) + 1
        return Answer([{"event": "size", "bytes": 64 << 20}, *(report(job, speed(host, job, number)) for job in JOBS)])

    fleet = play(monkeypatch, answers)
    transport: Any = fleet
    return run_storage(transport, hosts, StorageOptions(**options), lambda _: None), fleet


def told(result: ProbeResult) -> list[tuple[str, str, str, str]]:
    return [(each.host, each.subject, each.status.value, each.kind) for each in result.findings]


def asked(fleet: Any) -> list[tuple[str, ...]]:
    return [args for _, _, args in fleet.asked if args[0] == "measure"]


def test_what_counts_of_each_job(monkeypatch: pytest.MonkeyPatch) -> None:
    result, fleet = probe(monkeypatch, lambda host, job, number: 500.0, path="/data", hosts=HOSTS[:1])
    assert [(each.conditions["pattern"], each.value, each.unit) for each in result.measurements] == [
        ("sequential write", 500, "MiB/s"),
        ("sequential read", 500, "MiB/s"),
        ("random read", 500, "IOPS"),
        ("small files write", 500, "files/s"),
    ]
    first, last = result.measurements[0], result.measurements[-1]
    assert first.conditions["p99_ms"] == 4 and first.conditions["file_mib"] == 64
    assert (first.conditions["direct"], last.conditions["direct"]) == (True, False)
    (args,) = asked(fleet)
    assert {"--path", "/data", "--direct=1", "--engine=libaio", f"--bytes={64 << 20}"} <= set(args)
    assert result.findings == ()


def test_the_slow_host_is_measured_again_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    result, fleet = probe(
        monkeypatch, lambda host, job, number: 50.0 if (host, job) == ("node03", "random read") else 500.0
    )
    assert told(result) == [("node03", "random read", "failed", "host")]
    assert result.findings[0].actual == "50 IOPS; the median of the others is 500" and len(asked(fleet)) == 5


@pytest.mark.parametrize(
    ("look", "actual", "remedy"),
    [
        (Answer([{**READY, "fio": None}]), "fio is not installed", "install the package fio there"),
        (silent(), "no route to host", ""),
        (
            Answer([{"event": "error", "text": "/data is nearly full", "remedy": "make room"}], status=1),
            "/data is nearly full",
            "make room",
        ),
    ],
)
def test_a_host_that_cannot_be_measured_is_unknown(
    monkeypatch: pytest.MonkeyPatch, look: Answer, actual: str, remedy: str
) -> None:
    result, fleet = probe(monkeypatch, lambda host, job, number: 500.0, {"node02": look})
    assert told(result) == [("node02", "", "unknown", "host")] and len(asked(fleet)) == 3
    assert (result.findings[0].actual, result.findings[0].remedy) == (actual, remedy)


@pytest.mark.parametrize(
    ("measured", "status", "actual"),
    [
        (Answer([{"event": "error", "text": "fio, random read: io_submit: EIO"}], status=1), "failed", "EIO"),
        (Answer([report("sequential write", 5.0, error=5)]), "unknown", "with error 5"),
        (Answer([{"event": "fio", "job": "random read", "text": "{"}]), "unknown", "fio"),
        (silent("the connection was lost"), "unknown", "lost"),
        # a run cut short is no pass
        (Answer([report("sequential write", 5.0)]), "unknown", "exit status 0"),
    ],
)
def test_a_measurement_that_fails_is_told(
    monkeypatch: pytest.MonkeyPatch, measured: Answer, status: str, actual: str
) -> None:
    result, _ = probe(monkeypatch, lambda host, job, number: 1.0, hosts=HOSTS[:1], measured=measured)
    assert [each.status for each in result.findings] == [status] and actual in result.findings[0].actual


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_this_machine_can_be_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("nodectl.probes.storage.SIZE_BYTES", 32 << 20)
    host = Host("here", "127.0.0.1", connection="local")
    options = StorageOptions(duration_s=0.1, repetitions=1, path=str(tmp_path))
    result = run_storage(LocalTransport(), [host], options, lambda _: None)
    assert result.findings == () and len(result.measurements) == 4
    assert all(each.value > 0 for each in result.measurements)
    assert [each.name for each in tmp_path.iterdir()] == ["state"]
