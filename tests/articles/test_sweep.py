"""The sweep: a row a rate from the lowest on, each measurement its share of the time, and what it comes to."""

from collections.abc import Sequence
from typing import Any

import pytest

from nodectl.articles import sweep as sweep_module
from nodectl.articles.retrieval import Table
from nodectl.articles.sweep import LinkRate, Sweep, run_sweep, sweep_document, sweep_table, table_for
from nodectl.articles.training import TrainingOptions
from nodectl.errors import UsageError
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.probes.base import ProbeOptions, ProbeResult
from nodectl.probes.budget import BudgetError
from nodectl.trials.families import judge_all
from tests.probes.scripted import HOSTS

# in a lab of three rates; what one node does is all the same
SPEED = {"100mbit": (50.0, 10.0, 60.0), "1gbit": (52.0, 90.0, 20.0), "2gbit": (51.0, 150.0, 15.0)}


class Lab:
    """Its links, and the measurements that it is asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, speed: dict[str, tuple[float, float, float]]) -> None:
        self.speed, self.now = speed, ""
        self.asked: list[tuple[str, str, int]] = []
        monkeypatch.setattr(sweep_module, "run_training", self.training)
        monkeypatch.setattr(sweep_module, "run_retrieval", self.retrieval)

    @property
    def links(self) -> list[LinkRate]:
        # not in the order of their rates
        bits = {"100mbit": 10**8, "1gbit": 10**9, "2gbit": 2 * 10**9}
        return [LinkRate(name, bits[name], lambda name=name: self.put_on(name)) for name in reversed(self.speed)]  # type: ignore[misc]

    def put_on(self, name: str) -> None:
        self.now = name

    def training(self, _: object, hosts: Sequence[Host], options: ProbeOptions, note: Any) -> ProbeResult:
        self.asked.append((self.now, "training", len(hosts)))
        value = self.speed[self.now][0 if len(hosts) == 1 else 1]
        windows = [value * (1 + 0.01 * number) for number in range(5)]
        return self.found("training", hosts, value, "samples/s", {"values_samples_s": windows})

    def retrieval(
        self, _: object, hosts: Sequence[Host], options: ProbeOptions, note: Any, table: Table
    ) -> ProbeResult:
        self.asked.append((self.now, "retrieval", len(hosts)))
        value = self.speed[self.now][2]
        return self.found("retrieval", hosts, value, "ms", {"p50_ms": value, "p99_ms": 2 * value})

    @staticmethod
    def found(probe: str, hosts: Sequence[Host], value: float, unit: str, given: dict[str, Any]) -> ProbeResult:
        names = tuple(host.name for host in hosts)
        return ProbeResult((Measurement(probe, names, value, unit, spread=0.1, conditions=given),))

    def sweep(self, **options: Any) -> Sweep:
        def quiet(_: str) -> None:
            """Nobody looks at the progress."""

        return run_sweep(self, HOSTS, self.links, TrainingOptions(**options), table_for(4), quiet)  # type: ignore[arg-type]


def test_three_rates_make_the_articles_table(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(monkeypatch, SPEED)
    swept = lab.sweep()
    each = [("training", 1), ("training", 4), ("retrieval", 4)]
    assert lab.asked == [(rate, *measured) for rate in SPEED for measured in each]
    document: Any = sweep_document(swept, judge_all, scaled=True)
    assert [row["rate"] for row in document["rows"]] == list(SPEED)
    beside = document["rows"][0].pop("article")
    assert document["rows"][0] == {
        "rate": "100mbit",
        "rate_bits": 10**8,
        "training": {"one_node": 50.0, "many_nodes": 10.0, "unit": "samples/s"},
        "retrieval": {"p50_ms": 60.0, "p99_ms": 120.0, "queries_s": None},
        "spread": {"one_node": 0.1, "many_nodes": 0.1, "retrieval": 0.1},
    }
    assert {name: cell["value"] for name, cell in beside.items()} == {
        "one_node": 12345,
        "many_nodes": 8765,
        "retrieval": 45.2,
    }
    assert (document["ratio"], document["rising"], document["scaled"]) == (15.0, True, True)
    assert document["article_ratio"] == pytest.approx(2.93, abs=0.005)
    assert document["findings"] == []
    assert {each["conditions"]["rate"] for each in document["measurements"]} == set(SPEED)
    shown = sweep_table(swept, 200, judge_all, scaled=True, hosts=4)
    assert "100mbit to 2gbit: 15.00 x (15.00 to 15.00) (the article: 2.93 times, 1 to 20 Gbit/s)" in shown
    assert "scaled: a lab's links" in shown
    cells = [line.split("  ") for line in shown.splitlines()]
    rows = {words[0]: [word.strip() for word in words[1:] if word.strip()] for words in cells}
    assert rows["here, 1gbit"] == ["52.0 ±5.0 %", "90.0 ±5.0 %", "9.00 x (9.00 to 9.00)", "20.0 ±5.0 %", "40.0"]
    # the article's own three rows, in the same columns
    assert rows["article, 1 Gbit/s"] == ["12,345", "8,765", "1.00 x", "45.2", "-"]
    assert rows["article, 10 Gbit/s"] == ["23,456", "18,234", "2.08 x", "22.1", "-"]
    assert rows["article, 20 Gbit/s"] == ["28,901", "25,678", "2.93 x", "9.80", "-"]
    assert "`nodectl bench claims 2` shows the conditions" in shown


def test_a_rate_that_brings_nothing_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    swept = Lab(monkeypatch, SPEED | {"2gbit": (51.0, 80.0, 15.0)}).sweep()
    assert swept.rising is False
    (told,) = swept.result.findings
    assert (told.status, told.subject) == (Status.WARNING, "at 2gbit")
    assert "80 to 90 samples/s" in told.actual


def test_real_hosts_have_one_row_and_no_ratio(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(monkeypatch, {"": (50.0, 10.0, 60.0)})

    def quiet(_: str) -> None:
        """Nobody looks at the progress."""

    links = [LinkRate("25gbit", 25 * 10**9)]
    swept = run_sweep(lab, HOSTS, links, TrainingOptions(), table_for(4), quiet)  # type: ignore[arg-type]
    document: Any = sweep_document(swept, judge_all, scaled=False)
    assert (document["ratio"], document["rising"], document["scaled"]) == (None, None, False)
    # a rate that was found may change, and is a change then
    assert "rate" not in document["measurements"][0]["conditions"]
    assert document["measurements"][0]["conditions"]["rate_bits"] == 25 * 10**9
    shown = sweep_table(swept, 200, judge_all, scaled=False, hosts=4)
    assert "one rate: the links are what they are here" in shown
    assert shown.count("\narticle, ") == 3


def test_a_budget_that_ends_is_told_but_for_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(monkeypatch, SPEED)
    measured = lab.training

    def training(*args: Any, **more: Any) -> ProbeResult:
        if len(lab.asked) >= refused_from:
            raise BudgetError("the training probe takes at least 12 s here, and 3 s are left", "--budget")
        return measured(*args, **more)

    monkeypatch.setattr(sweep_module, "run_training", training)
    refused_from = 1
    swept = lab.sweep()
    assert [(each.subject, each.status) for each in swept.result.findings] == [("budget", Status.UNKNOWN)]
    assert [list(row.cells) for row in swept.rows] == [["one_node", "retrieval"], ["retrieval"], ["retrieval"]]
    refused_from = 0
    lab.asked.clear()
    with pytest.raises(BudgetError):
        lab.sweep()


def test_one_host_is_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="two hosts or more"):
        run_sweep(Lab(monkeypatch, SPEED), HOSTS[:1], [], TrainingOptions(), table_for(1), print)  # type: ignore[arg-type]
