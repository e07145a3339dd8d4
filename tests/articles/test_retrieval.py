"""Retrieval: what is made of a run's times, who is to blame, and a real one over two processes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nodectl.articles.retrieval import MOST_DIM, Table, run_retrieval
from nodectl.articles.sweep import retrieval_table
from nodectl.errors import UsageError
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.probes.base import ProbeOptions, ProbeResult
from nodectl.transport.router import LocalTransport
from tests.probes.scripted import ENDPOINT, HOSTS, Answer, play
from tests.torch_venv import torch_venv

RUNS = {
    "event": "runs",
    "batch": 32,
    "counts": [100, 90, 80],
    "p50_ms": [4.0, 5.0, 6.0],
    "p99_ms": 9.0,
    "min_ms": 3.0,
    "max_ms": 12.0,
    "search_ms": 1.5,
    "queries_s": [7000.0, 6000.0, 5000.0],
}
CHECKED: dict[str, Any] = {"event": "checked", "rows": 1000, "queries": 4, "wrong": [], "merged": True}
TABLE = Table(rows=1000, dim=16, k=10, batches=(32,))


def quiet(_: str) -> None:
    """Nobody looks at the progress."""


def fleet_of(monkeypatch: pytest.MonkeyPatch, checked: dict[str, Any] | None) -> Any:
    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        if module == "probes.endpoints":
            return Answer([{**ENDPOINT, "address": f"192.0.2.{host[-1]}"}])
        ready = {"event": "ready", "torch": "2.7.0+cpu", "device": "cpu", "threads": 1, "rows": 250}
        front = [RUNS, *([checked] if checked else [])] if host == "node01" else []
        return Answer([{"event": "started", "pid": 7}, ready, *front])

    return play(monkeypatch, answers)


def run(fleet: Any, table: Table = TABLE, hosts: Sequence[Host] = HOSTS) -> ProbeResult:
    return run_retrieval(fleet, hosts, ProbeOptions(), quiet, table)


def test_the_median_of_the_runs_and_what_it_is_made_of(monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(fleet_of(monkeypatch, CHECKED))
    (only,) = found.measurements
    assert (only.probe, only.value, only.unit) == ("retrieval", 5.0, "ms")
    assert only.spread == pytest.approx(2 / 5)
    expected = {"p99_ms": 9.0, "queries_s": 6000.0, "correct": True, "shards": 4, "front": "node01"}
    assert expected.items() <= only.conditions.items()
    assert found.findings == ()
    shown = retrieval_table(found.measurements, 200)
    assert "node[01-04]" in shown and "equal to brute force" in shown


@pytest.mark.parametrize(
    ("own", "blamed"),
    [
        ({"wrong": [2], "merged": False}, ["node03"]),
        ({"wrong": [0, 3]}, ["node01", "node04"]),
        ({"merged": False}, ["node01"]),
    ],
)
def test_wrong_answers_fail_and_are_marked(
    monkeypatch: pytest.MonkeyPatch, own: dict[str, Any], blamed: list[str]
) -> None:
    found = run(fleet_of(monkeypatch, {**CHECKED, **own}))
    assert [(each.host, each.status) for each in found.findings] == [(host, Status.FAILED) for host in blamed]
    assert found.measurements[0].conditions["correct"] is False
    assert "NOT equal to brute force" in retrieval_table(found.measurements, 200)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (Table(rows=3), "a shard for each of 4"),
        (Table(k=11, rows=10), "--k 11 is more"),
        (Table(dim=MOST_DIM + 1), "no longer exact"),
        (Table(dim=60_000, batches=(1, 9000)), "larger than 1 GiB"),
    ],
)
def test_impossible_tables_are_refused(monkeypatch: pytest.MonkeyPatch, table: Table, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        run(fleet_of(monkeypatch, CHECKED), table)


@pytest.mark.slow
def test_two_real_shards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    hosts = [Host(name, "127.0.0.1", connection="local", variables={"pytorch_venv": torch_venv()}) for name in "ab"]
    table = Table(rows=9001, dim=33, k=7, batches=(1, 5))
    found = run_retrieval(LocalTransport(), hosts, ProbeOptions(duration_s=0.1, repetitions=2), quiet, table)
    assert found.findings == ()
    assert [each.conditions["batch_size"] for each in found.measurements] == [1, 5]
    for each in found.measurements:
        assert each.conditions["correct"] is True and each.conditions["checked_rows"] == 9001
        assert 0 < each.conditions["min_ms"] <= each.value <= each.conditions["p99_ms"]  # type: ignore[operator]


@pytest.mark.slow
def test_a_shard_beyond_the_memory_is_refused_on_its_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    host = Host("a", "127.0.0.1", connection="local", variables={"pytorch_venv": torch_venv()})
    found = run_retrieval(LocalTransport(), [host], ProbeOptions(), quiet, Table(rows=1 << 40))
    assert found.measurements == ()
    assert [(each.host, each.status) for each in found.findings] == [("a", Status.FAILED)]
    assert "GiB are free" in found.findings[0].actual and "--rows" in found.findings[0].actual
