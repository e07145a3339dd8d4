"""Preprocessing: what is asked of which host, what the article's case comes to, and who cannot take part."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nodectl.articles.preprocess import (
    PreprocessOptions,
    preprocess_document,
    preprocess_table,
    run_preprocess,
)
from nodectl.model.status import Status
from nodectl.probes.base import ProbeResult
from nodectl.trials.families import judge_all
from tests.conftest import Cli
from tests.probes.scripted import HOSTS, Answer, Fleet, play

READY = {
    "event": "ready",
    "cpus": 128,
    "cpu": "AMD EPYC 7763 64-Core Processor",
    "pandas": "2.2.3",
    "pyarrow": "19.0.1",
}
# seconds that a file takes, by mode; more workers than processors or files bring nothing
FILE_S = {"threads": 0.1, "processes": 0.08}
BUSY = {"threads": 2, "processes": 8}


def answers(host: str, module: str, args: Sequence[str]) -> Answer:
    """A host that does two files at once by threads, and eight by processes."""
    assert module == "articles.preprocess"
    if args[0] == "look":
        return Answer([{**READY, "machine": host}])
    rounds = int(args[2].partition("=")[2])
    events: list[dict[str, Any]] = [{"event": "files", "files": 8, "bytes": 10, "columns": 40}]
    for number in range(rounds):
        for text in args[4:]:
            mode, files, workers = text.split(":")
            at_once = min(int(files), int(workers), BUSY[mode])
            seconds = FILE_S[mode] * int(files) / at_once * (1 + 0.01 * number)
            events.append(
                {"event": "timed", "mode": mode, "files": int(files), "workers": int(workers), "seconds": seconds}
            )
    return Answer(events)


def measured(monkeypatch: pytest.MonkeyPatch, reply: Any = answers, **options: Any) -> tuple[Fleet, ProbeResult]:
    def quiet(_: str) -> None:
        """Nobody looks at the progress."""

    fleet = play(monkeypatch, reply)
    return fleet, run_preprocess(fleet, HOSTS[:2], PreprocessOptions(**options), quiet)


def test_128_workers_win_nothing_over_32(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, result = measured(monkeypatch, repetitions=5)
    assert not result.findings
    assert len(result.measurements) == 2 * 2 * 6
    _, _, args = fleet.asked[-1]
    assert args[:4] == ("measure", "--rows=100000", "--repetitions=5", "--seconds=inf")
    first = result.measurements[0]
    assert first.value == pytest.approx(10 / 1.02) and first.unit == "files/s"
    document: Any = preprocess_document(result, judge_all)
    assert [(each["mode"], each["speed_up"]) for each in document["article_case"]] == [
        ("threads", 1.0),
        ("processes", 1.0),
    ] * 2
    beside = document["article_case"][0]["article"]
    assert [each["value"] for each in beside] == [3, 4]
    table = preprocess_table(result.measurements, 200, judge_all)
    rows = {tuple(line.split()[:3]): line.split() for line in table.splitlines()}
    assert "2.00 x (2.00 to 2.00)" in " ".join(rows["node01", "8", "8"]) and rows["node01", "8", "1"][-1] == "first"
    assert "8.00 x (8.00 to 8.00)" in " ".join(rows["node01", "8", "8"])
    assert " ".join(rows["node01", "4", "128"]).endswith("noise (1.00 to 1.00 x)")
    assert "128 threads against 32, 4 files: noise (1.00 to 1.00 x) on node[01-02]" in table
    assert "the article: 3 to 4 times; but 4 files occupy 4 workers of either pool" in table
    assert "node[01-02]: 128 processors, AMD EPYC 7763" in table


def test_hosts_of_one_machine_share_the_time_and_do_what_fits_into_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(host: str, module: str, args: Sequence[str]) -> Answer:
        if args[0] == "look":
            return Answer([{**READY, "machine": "one"}])
        return answers(host, module, [*args[:2], "--repetitions=2", *args[3:]])

    fleet = play(monkeypatch, slow)
    notes: list[str] = []
    result = run_preprocess(fleet, HOSTS[:2], PreprocessOptions(), notes.append)
    assert [args[3] for _, _, args in fleet.asked if args[0] == "measure"] == ["--seconds=294"] * 2
    assert not result.findings and {each.conditions["repetitions"] for each in result.measurements} == {2}
    assert "preprocess: node01: 2 of 20 repetitions: more would take longer than its share of 4 min 50 s" in notes


@pytest.mark.parametrize(
    ("missing", "said"),
    [({"pandas": None}, "no pandas in"), ({"pandas": None, "pyarrow": None}, "no pandas and no pyarrow in")],
)
def test_a_host_without_pandas_is_unknown(monkeypatch: pytest.MonkeyPatch, missing: Any, said: str) -> None:
    def reply(host: str, module: str, args: Sequence[str]) -> Answer:
        done = answers(host, module, args)
        lacks = host == "node02" and args[0] == "look"
        return Answer([{**event, **missing} for event in done.events]) if lacks else done

    _, result = measured(monkeypatch, reply)
    (finding,) = result.findings
    assert (finding.host, finding.status) == ("node02", Status.UNKNOWN)
    assert said in finding.actual and "-m pip install pandas" in finding.remedy
    assert {each.hosts for each in result.measurements} == {("node01",)}


def test_a_host_that_breaks_off_keeps_what_was_measured_as_often_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def reply(host: str, module: str, args: Sequence[str]) -> Answer:
        done = answers(host, module, args)
        if args[0] == "look" or host == "node01":
            return done
        error = {"event": "error", "text": "data1.parquet of 8 threads came out otherwise than before"}
        return Answer([*done.events[:-11], error], status=1)

    _, result = measured(monkeypatch, reply)
    (finding,) = result.findings
    assert (finding.status, finding.actual) == (
        Status.FAILED,
        "data1.parquet of 8 threads came out otherwise than before",
    )
    assert len([each for each in result.measurements if each.hosts == ("node02",)]) == 1


def test_usage(nodectl: Cli, tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(
        "all: {hosts: {one: {ansible_connection: local, ansible_host: 127.0.0.1, pytorch_venv: /none}}}\n"
    )
    assert nodectl("-i", str(inventory), "bench", "preprocess", "--workers", "0", check=False).returncode == 2
    done = nodectl("-i", str(inventory), "bench", "preprocess", "--output", "json", check=False)
    assert done.returncode == 3
    (finding,) = json.loads(done.stdout)["findings"]
    assert finding["actual"] == "the host has no /none/bin/python" and "nodectl provision" in finding["remedy"]
