"""The gemm probe: all GPUs, wrong products and bad cooling named; what is not there is skipped."""

from typing import Any

import pytest

from nodectl.probes.device.gemm import PROBE as GEMM
from tests.probes.device_answers import SEEN, devices, look, measured_hosts, probe, told
from tests.probes.scripted import HOSTS, silent


def product(gpu: int | None, rates: list[float], **more: Any) -> dict[str, Any]:
    known = {"event": "measured", "gpu": gpu, "precision": "bf16", "rates": rates, "shape": [8192, 8192, 4096]}
    checked = {"checked": 65536, "wrong": 0, "changed": 0, "error": 0.004}
    return {**known, "layout": "nt", "passes": 700, "sets": 3, **checked, "seen": SEEN, **more}


def fleet(slow: float = 750.0, slow_again: float | None = None) -> Any:
    """Two GPUs a host; node03's GPU 1 is as fast as that."""

    def says(host: str, number: int) -> list[dict[str, Any]]:
        second = slow if number == 0 or slow_again is None else slow_again
        return [
            devices(2),
            product(0, [740.0, 755.0, 750.0]),
            product(1, [second] * 3 if host == "node03" else [748.0, 760.0, 752.0]),
        ]

    return says


def test_each_gpu_has_its_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    result, asked = probe(monkeypatch, GEMM, fleet(), gpus=2)
    assert result.findings == () and len(result.measurements) == 8 and measured_hosts(asked) == [h.name for h in HOSTS]
    first = result.measurements[0]
    assert (first.value, first.unit, first.direction, first.hosts) == (750.0, "TFLOPS", "node01 GPU 0", ("node01",))
    assert first.spread == pytest.approx(0.02) and first.expected is None
    wanted = {"precision": "bf16", "gpu": 0, "device": "NVIDIA H200", "torch": "2.7.0+cu128", "clock_mhz": 1755.0}
    assert wanted.items() <= first.conditions.items()
    assert first.conditions["best_shape"] == "8192x8192x4096" and first.conditions["throttled"] == ["power cap"]


def test_a_slow_gpu_is_measured_again_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    result, asked = probe(monkeypatch, GEMM, fleet(400.0), gpus=2)
    assert told(result) == [("node03", "failed", "GPU 1, bf16")] and result.findings[0].kind == "host"
    assert result.findings[0].actual.startswith("400 TFLOPS; the median of the others is 75")
    assert measured_hosts(asked)[4:] == ["node03"]


@pytest.mark.parametrize(
    ("fault", "gpu", "text"),
    [
        ({"wrong": 3, "error": 1.5}, 0, "3 of 65536 elements are wrong"),
        ({"changed": 7}, 0, "the same product came out differently: 7 elements"),
        ({"changed": 7}, None, ""),
    ],
)
def test_wrong_products_fail(
    monkeypatch: pytest.MonkeyPatch, fault: dict[str, Any], gpu: int | None, text: str
) -> None:
    events = [devices(0 if gpu is None else 1), product(gpu, [700.0], **fault)]
    result, _ = probe(monkeypatch, GEMM, lambda host, number: events, hosts=HOSTS[:1], gpus=0 if gpu is None else 1)
    if not text:
        assert result.findings == ()
        return
    (finding,) = result.findings
    assert finding.status.value == "failed" and finding.action == "drain" and text in finding.actual


@pytest.mark.parametrize(
    ("reasons", "named"), [(["power cap"], False), (["thermal (hardware)", "power cap"], True), (None, False)]
)
def test_a_gpu_that_slows_itself_down_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, reasons: list[str] | None, named: bool
) -> None:
    seen = {**SEEN, "throttled": reasons, "temperature_c": 92.0}
    events = [devices(1), product(0, [700.0], seen=seen)]
    result, _ = probe(monkeypatch, GEMM, lambda host, number: events, hosts=HOSTS[:1], gpus=1)
    actual = "GPU 0 slowed itself down: thermal (hardware); 92.0 °C"
    assert [(each.status.value, each.actual) for each in result.findings] == [("warning", actual)] * named


def test_processors_stand_in_where_there_is_certainly_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [devices(0), product(None, [0.9], precision="fp32", seen=None)]
    result, asked = probe(monkeypatch, GEMM, lambda host, number: events, hosts=HOSTS[:1], gpus=0)
    (one,) = result.measurements
    assert result.findings == () and (one.direction, one.conditions["device"]) == ("node01 CPU", "cpu")
    assert one.conditions["cpu"] == "EPYC 9534"
    assert "--need=0" in asked.asked[-1][2]


def test_what_cannot_be_told_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = {"node01": silent(), "node02": look(torch=None), "node03": look(None), "node04": look(2)}

    def says(host: str, number: int) -> list[dict[str, Any]]:
        if host == "node03":
            return [devices(0), product(None, [0.9])]
        return [devices(1), product(0, [700.0]), {"event": "error", "gpu": 1, "text": "GPU 1: ended by signal 9"}]

    result, _ = probe(monkeypatch, GEMM, says, looks)
    assert {(each.host, each.status.value) for each in result.findings} == {(host.name, "unknown") for host in HOSTS}
    actual = {each.actual for each in result.findings}
    assert {"torch sees 1 of 2 GPUs", "GPU 1: ended by signal 9", "no torch in /opt/nodectl/venv"} <= actual
    assert "cannot tell whether this host has a GPU; its processors were measured" in actual
