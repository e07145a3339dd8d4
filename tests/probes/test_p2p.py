"""The p2p probe: all pairs; a slow GPU is told from a slow pair."""

import itertools
from typing import Any

import pytest

from nodectl.probes.device.p2p import PROBE as P2P
from tests.probes.device_answers import devices, look, probe, told
from tests.probes.scripted import HOSTS

TOPOLOGY = """\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV18\tNV18\tNV18\t0-63\t0
GPU1\tNV18\t X \tNV18\tNV18\t0-63\t0
GPU2\tNV18\tNV18\t X \tNV18\t64-127\t1
GPU3\tNV18\tNV18\tNV18\t X \t64-127\t1
"""


def copied(gpu: int, target: int, rate: float, **more: Any) -> dict[str, Any]:
    known = {"event": "measured", "gpu": gpu, "target": target, "bidirectional": False}
    return {**known, "peer_access": True, "rates": [rate], "wrong": 0, "size_bytes": 256 << 20, "passes": 9, **more}


def pairs(slow: dict[tuple[int, int], float]) -> list[dict[str, Any]]:
    """All pairs of four GPUs, both ways."""
    found = [devices(4)]
    for gpu, target in itertools.permutations(range(4), 2):
        found.append(copied(gpu, target, slow.get((gpu, target), 390.0)))
    for gpu, target in itertools.combinations(range(4), 2):
        found.append(copied(gpu, target, 780.0, bidirectional=True))
    return found


def run(monkeypatch: pytest.MonkeyPatch, slow: dict[tuple[int, int], float], hosts: int = 1) -> Any:
    looks = {host.name: look(4, topology=TOPOLOGY) for host in HOSTS}
    says = lambda host, number: pairs(slow if host == "node01" else {})  # noqa: E731
    return probe(monkeypatch, P2P, says, looks, hosts=HOSTS[:hosts])[0]


def test_pairs_and_directions_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, {})
    assert result.findings == () and len(result.measurements) == 12 + 6
    assert len({m.direction for m in result.measurements}) == 18
    first = result.measurements[0]
    assert (first.direction, first.value, first.conditions["link"]) == ("node01 GPU 0 -> GPU 1", 390.0, "NV18")
    assert result.measurements[-1].direction == "node01 GPU 2 <-> GPU 3"


def test_a_gpu_all_of_whose_pairs_are_slow_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = {pair: 190.0 for pair in itertools.permutations(range(4), 2) if 2 in pair}
    # in one host alone half of all pairs are slow then: others show what is usual
    result = run(monkeypatch, slow, hosts=3)
    assert told(result) == [("node01", "failed", "GPU 2: 3 of its 3 pairs")]
    assert result.findings[0].actual == "190 GB/s; the median of the others is 390"


def test_wrong_bytes_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [devices(2), copied(0, 1, 40.0, wrong=3), copied(1, 0, 40.0)]
    result, _ = probe(monkeypatch, P2P, lambda host, number: events, hosts=HOSTS[:1], gpus=2)
    assert told(result) == [("node01", "failed", "GPU 0, to GPU 1")]
