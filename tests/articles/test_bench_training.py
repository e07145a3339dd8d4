"""The training measurement: what its one run comes to, and what is wrong with it."""

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

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


def summary(**own: Any) -> dict[str, Any]:
    told = {"samples_per_s": 80.0, "samples_per_s_in_parts": [60.0, 80.0, 100.0], "median_step_ms": 50.0, "steps": 40}
    more = {"world_size": 4, "batch_per_rank": 4, "params": 1000, "backend": "gloo", "precision": "fp32"}
    return {**told, **more, "device_name": "cpu", "threads": 2, "first_loss": 1.5, "last_loss": 0.5, **own}


def fleet_of(monkeypatch: pytest.MonkeyPatch, own: dict[str, Any], **endpoint: Any) -> Any:
    """Every host answers, the first rank with a summary of which `own` is otherwise."""

    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        if module == "probes.endpoints":
            return Answer([{**ENDPOINT, **endpoint}])
        ends = [{"event": "summary", "summary": summary(**own)}] if option(args, "rank-base") == "0" else []
        return Answer([{"event": "started", "pid": 7}, *ends])

    return play(monkeypatch, answers)


def train(fleet: Any, hosts: Sequence[Host] = HOSTS, **options: Any) -> ProbeResult:
    return run_training(fleet, hosts, TrainingOptions(**options), quiet)


def test_one_run_has_a_rate_with_its_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = fleet_of(monkeypatch, {})
    found = train(fleet, repetitions=2, duration_s=1.5)
    (only,) = found.measurements
    assert (only.probe, only.unit, only.hosts, only.value, only.spread) == ("training", "samples/s", NAMES, 80.0, 0.5)
    expected = {"backend": "gloo", "ranks": 4, "gradient_bytes": 4000, "last_loss": 0.5, "step_ms": 50.0}
    assert expected.items() <= only.conditions.items()
    assert found.findings == ()
    given = json.loads(
        option(next(args for _, module, args in fleet.asked if module == "articles.workload"), "arguments")
    )
    assert option(given, "seconds") == "3.0" and option(given, "d-model") == str(shape_for("cpu").d_model)


def test_gpus_get_nccl_and_a_rank_each_in_the_hosts_order(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = fleet_of(monkeypatch, {"joule_per_sample": 3.0}, gpus=8, torch="2.7.0+cu128")
    rate, energy = train(fleet, HOSTS[::-1], interface="ib0").measurements
    assert (rate.hosts, energy.value, energy.unit) == (NAMES[::-1], 3.0, "J/sample")
    given = {host: args for host, module, args in fleet.asked if module == "articles.workload"}
    assert [option(given[name], "rank-base") for name in NAMES[::-1]] == ["0", "8", "16", "24"]
    assert option(given["node01"], "backend") == "nccl" and "--interface-asked" in given["node01"]


@pytest.mark.parametrize(
    ("last", "said"),
    [(None, "the loss is not a number"), (math.nan, "the loss is not a number"), (1.6, "1.5 at first, 1.6 at last")],
)
def test_a_training_that_does_not_learn_fails(monkeypatch: pytest.MonkeyPatch, last: float | None, said: str) -> None:
    (finding,) = train(fleet_of(monkeypatch, {"last_loss": last})).findings
    assert (finding.status, finding.hosts) == (Status.FAILED, NAMES) and said in finding.actual


def test_the_rank_that_fails_is_named_and_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        if module == "probes.endpoints":
            return Answer([ENDPOINT])
        if host == "node02":
            return Answer([{"event": "error", "text": "out of memory", "peer": False}], status=1)
        return Answer([{"event": "started", "pid": 77}], status=143, after_s=30)

    found = train(play(monkeypatch, answers))
    assert not found.measurements
    assert [(each.check, each.host, each.actual) for each in found.findings] == [
        ("training", "node02", "out of memory")
    ]


def test_a_budget_cuts_the_run_down_and_is_refused_where_nothing_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = fleet_of(monkeypatch, {})
    (only,) = train(fleet, ends_at=time.monotonic() + 16).measurements
    assert any("repetitions 5 -> " in each for each in only.conditions["trimmed"])  # type: ignore[attr-defined]
    with pytest.raises(BudgetError, match="training probe takes at least"):
        train(fleet, ends_at=time.monotonic() + 2)


@pytest.mark.slow
def test_two_real_ranks_learn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    hosts = [Host(name, "127.0.0.1", connection="local", variables={"pytorch_venv": torch_venv()}) for name in "ab"]
    options = TrainingOptions(duration_s=0.5, repetitions=2, gradient_bytes=MIB)
    found = run_training(LocalTransport(), hosts, options, quiet)
    assert found.findings == ()
    (only,) = found.measurements
    assert only.value > 0 and only.spread is not None
    assert only.conditions["last_loss"] < only.conditions["first_loss"]  # type: ignore[operator]
    assert only.conditions["gradient_bytes"] == 4 * only.conditions["parameters"]  # type: ignore[operator]
    # nothing but the payload is left on a host
    assert {path.relative_to(tmp_path).parts[:2] for path in tmp_path.rglob("*.py")} == {("nodectl", "payload")}
    assert not list(tmp_path.rglob("transformer.py"))
