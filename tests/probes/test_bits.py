"""The mode bits of the gemm probe: who differs from itself or from most others of its kind is named."""

from collections.abc import Sequence
from typing import Any

import pytest

from nodectl.model.host import Host
from nodectl.probes.device.gemm import PROBE as GEMM
from nodectl.probes.device.gemm import GemmOptions
from tests.probes.device_answers import devices, probe, told
from tests.probes.scripted import HOSTS


def repeated(gpu: int | None, digest: str = "1111", changed: int = 0) -> dict[str, Any]:
    row = {"event": "repeated", "gpu": gpu, "precision": "fp16", "rounds": 9, "changed": changed, "digest": digest}
    return {**row, "began": 1.0, "ended": 2.0}


def run(
    monkeypatch: pytest.MonkeyPatch, bad: dict[tuple[str, int], dict[str, Any]], hosts: Sequence[Host] = HOSTS
) -> Any:
    """Two GPUs a host; `bad` by host and GPU."""

    def says(host: str, number: int) -> list[dict[str, Any]]:
        return [devices(2), *(repeated(gpu, **bad.get((host, gpu), {})) for gpu in range(2))]

    return probe(monkeypatch, GEMM, says, hosts=hosts, options=GemmOptions(mode="bits"), gpus=2)


def test_devices_that_agree_have_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    result, asked = run(monkeypatch, {})
    assert result.findings == () and len(result.measurements) == 8
    one = result.measurements[0]
    assert (one.value, one.unit, one.direction) == (0.0, "wrong results", "node01 GPU 0")
    assert one.conditions["rounds"] == 9 and one.conditions["digest"] == "1111"
    assert all("--mode=bits" in args for _, _, args in asked.asked if args[0] == "measure")


def test_a_gpu_that_differs_from_itself_is_named_even_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    result, _ = run(monkeypatch, {("node01", 1): {"changed": 1}}, hosts=HOSTS[:1])
    assert told(result) == [("node01", "failed", "GPU 1, fp16")]
    (finding,) = result.findings
    assert finding.actual == "1 of 9 products have other bits than the first"
    assert (finding.kind, finding.action) == ("host", "drain")
    assert [each.value for each in result.measurements] == [0.0, 1.0]


@pytest.mark.parametrize(
    ("bad", "hosts", "named"),
    [
        ([("node03", 1)], 4, [("node03", "failed", "GPU 1, fp16")]),
        ([("node01", 0), ("node01", 1)], 4, [("node01", "failed", f"GPU {gpu}, fp16") for gpu in range(2)]),
        # half of the devices, or of the hosts, are no majority
        ([("node02", 0), ("node02", 1)], 2, [("node01", "failed", "node[01-02]")]),
        ([("node01", 1)], 1, [("node01", "failed", "node01")]),
    ],
)
def test_most_devices_of_most_hosts_are_right(
    monkeypatch: pytest.MonkeyPatch, bad: list[tuple[str, int]], hosts: int, named: list[tuple[str, str, str]]
) -> None:
    result, _ = run(monkeypatch, {place: {"digest": "6666"} for place in bad}, hosts=HOSTS[:hosts])
    assert told(result) == named
    undecided = len(bad) * 2 >= hosts * 2
    assert all(("it cannot be told" in each.actual) is undecided for each in result.findings)
    assert all(each.kind == ("" if undecided else "host") for each in result.findings)


def test_devices_of_another_kind_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def says(host: str, number: int) -> list[dict[str, Any]]:
        if host == "node04":
            return [devices(1, device="NVIDIA H100"), repeated(0, "6666")]
        return [devices(1), repeated(0)]

    result, _ = probe(monkeypatch, GEMM, says, options=GemmOptions(mode="bits"), gpus=1)
    assert result.findings == ()
