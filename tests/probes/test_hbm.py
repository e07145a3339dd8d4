"""The hbm probe: figures of every GPU, corrupted copies, and hosts without GPUs."""

from typing import Any

import pytest

from nodectl.probes.device.hbm import PROBE as HBM
from tests.probes.device_answers import devices, look, measured_hosts, probe, told


def copied(gpu: int, rate: float, wrong: int = 0, cache: int = 60 << 20) -> dict[str, Any]:
    known = {"event": "measured", "gpu": gpu, "how": "memcpy", "rates": [rate, rate + 40, rate - 40], "wrong": wrong}
    return {**known, "array_bytes": 4 << 30, "cache_bytes": cache, "passes": 250}


def test_each_gpu_is_measured_and_what_was_counted_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    result, _ = probe(monkeypatch, HBM, lambda host, number: [devices(1), copied(0, 4000.0)], gpus=1)
    assert result.findings == () and [each.value for each in result.measurements] == [4000.0] * 4
    one = result.measurements[0]
    assert (one.unit, one.spread, one.direction) == ("GB/s", 0.02, "node01 GPU 0")
    wanted = {"kernel": "copy", "counted": "read and written", "array_mib": 4096, "cache_mib": 60, "beyond_cache": True}
    assert wanted.items() <= one.conditions.items() and one.conditions["wrong"] == 0


def test_the_slow_gpu_and_the_corrupting_one_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def says(host: str, number: int) -> list[dict[str, Any]]:
        bad = host == "node02"
        return [devices(2), copied(0, 2500.0 if bad else 4000.0), copied(1, 4010.0, wrong=5 if bad else 0)]

    result, asked = probe(monkeypatch, HBM, says, gpus=2)
    assert told(result) == [("node02", "failed", "GPU 1, copy"), ("node02", "failed", "GPU 0")]
    assert measured_hosts(asked).count("node02") == 2


def test_a_lab_host_in_recorded_gpus_is_said_to_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    dressed = {name: look(gpus=0, recorded=True) for name in ("node01", "node02", "node03", "node04")}
    result, asked = probe(monkeypatch, HBM, lambda host, number: [], dressed)
    assert result.measurements == () and not measured_hosts(asked)
    assert {(finding.status, "recorded" in str(finding.actual)) for finding in result.findings} == {("skipped", True)}
