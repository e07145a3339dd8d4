"""The training measurement: samples per second from the ranks' windows, and what is wrong with what they came to."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nodectl.articles.gangs import Turns
from nodectl.articles.training import TrainingOptions, run_training, shape_for
from nodectl.common.units import MIB
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.probes.base import ProbeResult
from nodectl.probes.budget import BudgetError
from nodectl.transport.router import LocalTransport
from tests.probes.scripted import ENDPOINT, HOSTS, Answer, play
from tests.torch_venv import torch_venv

NAMES = tuple(host.name for host in HOSTS)


def quiet(_: str) -> None:
    """Nobody looks at the progress."""


def option(args: Sequence[str], name: str) -> str:
    return next(each.partition("=")[2] for each in args if each.startswith(f"--{name}="))


def trained(rank: int, **own: Any) -> dict[str, Any]:
    told = {"event": "trained", "rank": rank, "steps": [10, 10, 10], "seconds": [2.0, 1.0, 4.0], "first_loss": 1.5}
    more = {"last_loss": 0.5, "finite": True, "weights": "a-b", "parameters": 1000, "precision": "fp32"}
    more["joules"] = [None] * 3
    return {**told, **more, **own}


def ready(rank: int) -> dict[str, Any]:
    return {"event": "ready", "rank": rank, "torch": "2.7.0+cpu", "nccl": None, "device": "cpu", "threads": 2}


def fleet_of(
    monkeypatch: pytest.MonkeyPatch, own: dict[int, dict[str, Any]], turn: int | None = None, **endpoint: Any
) -> Any:
    """Every rank comes to the end; `own` is what those ranks say otherwise; the first asks for its `turn`."""

    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        if module == "probes.endpoints":
            return Answer([{**ENDPOINT, **endpoint}])
        base = int(option(args, "rank-base"))
        ranks = range(base, base + int(option(args, "nproc")))
        ends = [trained(rank, **own.get(rank, {})) for rank in ranks]
        if turn is not None and 0 in ranks:
            ends.insert(0, {"event": "turn", "number": turn, "pid": 7})
        return Answer([{"event": "started", "pid": 7}, *map(ready, ranks), *ends])

    return play(monkeypatch, answers)


def train(fleet: Any, hosts: Sequence[Host] = HOSTS, **options: Any) -> ProbeResult:
    return run_training(fleet, hosts, TrainingOptions(**options), quiet)


def test_a_window_is_as_slow_as_its_slowest_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    found = train(fleet_of(monkeypatch, {2: {"seconds": [2.0, 5.0, 1.0]}}))
    (only,) = found.measurements
    samples = shape_for("cpu").batch * len(HOSTS) * 10
    assert (only.probe, only.unit, only.hosts) == ("training", "samples/s", NAMES)
    assert only.conditions["values_samples_s"] == [samples / 2.0, samples / 5.0, samples / 4.0]
    assert only.value == samples / 4.0 and only.spread == pytest.approx((1 / 2 - 1 / 5) / (1 / 4))
    expected = {"backend": "gloo", "ranks": 4, "gradient_bytes": 4000, "weights_equal": True, "last_loss": 0.5}
    assert expected.items() <= only.conditions.items()
    assert found.findings == ()


def test_gpus_get_nccl_and_a_rank_each_in_the_hosts_order(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = fleet_of(monkeypatch, {}, gpus=8, torch="2.7.0+cu128")
    (only,) = train(fleet, HOSTS[::-1], interface="ib0").measurements
    assert (only.conditions["backend"], only.conditions["ranks"], only.hosts) == ("nccl", 32, NAMES[::-1])
    given = {host: args for host, module, args in fleet.asked if module == "articles.training"}
    assert [option(given[name], "rank-base") for name in NAMES[::-1]] == ["0", "8", "16", "24"]
    assert "--interface-asked" in given["node01"]


@pytest.mark.parametrize(
    ("own", "blamed", "said"),
    [
        ({1: {"weights": "c-d"}}, ["node02"], "its weights differ"),
        ({0: {"weights": "c-d"}, 1: {"weights": "c-d"}}, ["node01"], "none are those of most"),
        ({3: {"finite": False}}, ["node01"], "the loss is not a number"),
        ({0: {"last_loss": None}}, ["node01"], "the loss is not a number"),
        ({0: {"last_loss": 1.6}}, ["node01"], "does not fall: 1.5 at first, 1.6 at last"),
    ],
)
def test_wrong_results_fail(
    monkeypatch: pytest.MonkeyPatch, own: dict[int, dict[str, Any]], blamed: list[str], said: str
) -> None:
    found = train(fleet_of(monkeypatch, own))
    assert [each.host for each in found.findings] == blamed
    assert {each.status for each in found.findings} == {Status.FAILED}
    assert said in found.findings[0].actual


def test_windows_in_turn_are_dealt_to_their_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {rank: {"steps": [1, 10, 2, 20], "seconds": [1.0, 2.0, 4.0, 8.0]} for rank in range(4)}
    done: list[str] = []
    fleet = fleet_of(monkeypatch, own, turn=1)
    turns = Turns(fleet, [lambda: done.append("slow"), lambda: done.append("fast")])
    slow, fast = run_training(fleet, HOSTS, TrainingOptions(repetitions=2), quiet, turns).measurements
    until = time.monotonic() + 10
    while not fleet.killed:
        assert time.monotonic() < until
        time.sleep(0.005)
    # who asked is told, once the setting of its turn is there
    assert (done, fleet.killed) == (["fast"], [("node01", "7")])
    samples = shape_for("cpu").batch * len(HOSTS)
    assert slow.conditions["values_samples_s"] == [samples * 1.0, samples * 0.5]
    assert fast.conditions["values_samples_s"] == [samples * 5.0, samples * 2.5]
    assert fast.conditions["steps"] == [10, 20]
    given = next(args for _, module, args in fleet.asked if module == "articles.training")
    assert option(given, "windows") == "4" and "--turns" in given


def test_the_rank_that_fails_is_named_and_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        if module == "probes.endpoints":
            return Answer([ENDPOINT])
        if host == "node02":
            return Answer([{"event": "error", "text": "out of memory", "peer": False}], status=1)
        return Answer([{"event": "started", "pid": 77}, trained(0)], status=143, after_s=30)

    found = train(play(monkeypatch, answers))
    assert not found.measurements
    assert [(each.host, each.actual) for each in found.findings] == [("node02", "out of memory")]


def test_a_budget_cuts_windows_down_and_is_refused_where_nothing_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = fleet_of(monkeypatch, {})
    (only,) = train(fleet, ends_at=time.monotonic() + 16).measurements
    assert any("repetitions 5 -> " in each for each in only.conditions["trimmed"])  # type: ignore[attr-defined]
    with pytest.raises(BudgetError, match="training probe takes at least"):
        train(fleet, ends_at=time.monotonic() + 2)


@pytest.mark.slow
def test_two_real_ranks_learn_and_agree(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    hosts = [Host(name, "127.0.0.1", connection="local", variables={"pytorch_venv": torch_venv()}) for name in "ab"]
    options = TrainingOptions(duration_s=0.5, repetitions=2, gradient_bytes=MIB)
    found = run_training(LocalTransport(), hosts, options, quiet)
    assert found.findings == ()
    (only,) = found.measurements
    assert only.value > 0 and only.conditions["weights_equal"] is True
    assert only.conditions["last_loss"] < only.conditions["first_loss"]  # type: ignore[operator]
    assert only.conditions["gradient_bytes"] == 4 * only.conditions["parameters"]  # type: ignore[operator]
    # nothing but the payload is left on a host
    assert {path.relative_to(tmp_path).parts[:2] for path in tmp_path.rglob("*.py")} == {("nodectl", "payload")}
    assert not list(tmp_path.rglob("transformer.py"))


def test_joules_a_sample_are_those_of_all_ranks_and_only_where_each_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    joules: dict[int, dict[str, Any]] = {rank: {"joules": [100.0, 200.0, 300.0]} for rank in range(4)}
    _, energy = train(fleet_of(monkeypatch, joules)).measurements
    samples = shape_for("cpu").batch * len(HOSTS) * 10
    assert (energy.unit, energy.value) == ("J/sample", 4 * 200.0 / samples)
    silent = {**joules, 2: {"joules": [100.0, None, 300.0]}}
    assert len(train(fleet_of(monkeypatch, silent)).measurements) == 1
