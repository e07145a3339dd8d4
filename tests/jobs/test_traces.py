"""Ranks' traces judged together, and their files brought from hosts that may send anything."""

from __future__ import annotations

import base64
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from nodectl.jobs import traces
from nodectl.jobs.nodes import Answers, rows_of
from nodectl.jobs.rows import TraceRow
from nodectl.model.host import Host
from nodectl.model.job import RankTrace
from nodectl.model.result import CommandResult, Outcome
from nodectl.payload.common.frames import encode
from nodectl.payload.jobs.chrome_trace import read_events
from nodectl.payload.jobs.traces import summarize
from nodectl.report.jobs import trace_document, trace_text
from tests.payload.traces import gpu_events, write

STEP = {"number": 1, "step_us": 1, "collectives_us": 0, "parts_us": {}}


def summary(folder: Path, longer_us: float = 0.0) -> dict[str, Any]:
    return summarize(read_events(str(write(folder / "trace.json.gz", gpu_events(longer_us=longer_us)))))


def row(rank: int, told: Any, **more: Any) -> dict[str, Any]:
    fields = {"rank": rank, "attempt": 1, "tool": "torch", "problem": "", "file": f"{rank}.json.gz", "size_bytes": 10}
    return {**fields, "summary": told, **more}


def read(monkeypatch: pytest.MonkeyPatch, rows: Mapping[str, Sequence[Any]], **refused: str) -> Any:
    said = {host: rows_of(host, encode(list(each)).decode(), TraceRow) for host, each in rows.items()}
    nonsense = {host: wrong for host, (_, wrong) in said.items() if wrong}
    answers = Answers({host: sane for host, (sane, _) in said.items()}, refused, nonsense=nonsense)
    monkeypatch.setattr(traces, "ask", lambda *_, **__: answers)
    return traces.read_traces(None, (), "job", 1)  # type: ignore[arg-type]


def test_the_rank_that_computes_longer_is_the_slowest(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    plain, slow = summary(tmp_path), summary(tmp_path, longer_us=200)
    rows = {"a": [row(0, plain), row(1, plain)], "b": [row(2, plain), row(3, slow)]}
    report = traces.judge(*read(monkeypatch, rows))
    assert report.slowest is not None
    assert (report.slowest.rank, report.slowest.host, report.slowest.part) == (3, "b", "compute")
    assert (report.slowest.by_ms, report.slowest.by_share) == pytest.approx((0.2, 0.2))
    assert [rank.compute for rank in report.ranks] == pytest.approx([0.5, 0.5, 0.5, 0.7])
    assert [rank.exposed for rank in report.ranks] == pytest.approx([0.25, 0.25, 0.25, 0.05])
    assert [rank.waiting for rank in report.ranks] == pytest.approx([0.2, 0.2, 0.2, 0])
    assert report.ranks[0].overlap == pytest.approx(1 - 250 / 400)
    text = trace_text(report)
    assert text.splitlines()[-1] == (
        "slowest: rank 3 on b, by 0.2 ms a step (20% of it);"
        " most of that in computing on the GPU: 0.7 ms, others 0.5 ms"
    )
    assert trace_document(report)["ranks"][3]["overlap"] == report.ranks[3].overlap  # type: ignore[index]


def test_of_several_attempts_the_newest_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = summary(tmp_path)
    rows = {"a": [row(0, told), row(1, told)], "b": [row(1, None, attempt=2, problem="it was killed")]}
    told_rows, problems = read(monkeypatch, rows)
    report = traces.judge(told_rows, problems, {0: "b", 1: "b"})
    assert report.ranks == ()
    assert report.problems == {
        "rank 1 on b": "it was killed", "rank 0 on b": "no trace: it was no Python with torch, or never started",
    }  # fmt: skip


@pytest.mark.parametrize(
    "damage",
    [
        {"rank": "x"},
        {"summary": {}},
        {"summary": {"device": "gpu", "steps": []}},
        {"summary": {"device": "\x1b[2J", "steps": [1]}},
        {"summary": {"device": "gpu", "steps": [{**STEP, "step_us": -1}]}},
        {"summary": {"device": "gpu", "steps": [{**STEP, "parts_us": {"x": 1}}]}},
        {"summary": {"device": "gpu", "steps": [{**STEP, "step_us": float("nan")}]}},
    ],
)
def test_an_answer_of_another_form_is_its_hosts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, damage: Any) -> None:
    told = summary(tmp_path)
    rows = {"a": [row(0, told)], "b": [{**row(1, told), **damage}]}
    report = traces.judge(*read(monkeypatch, rows, c="refused"))
    assert [rank.rank for rank in report.ranks] == [0]
    assert "answered nonsense" in report.problems["b"] and report.problems["c"] == "refused"


class Pipe:
    """A transport whose hosts answer with these bytes, whatever they are asked."""

    def __init__(self, answers: dict[str, bytes]) -> None:
        self.answers = answers

    def run(self, host: Host, argv: Any, *, on_output: Any = None, **_: Any) -> CommandResult:
        on_output("stdout", self.answers[host.name])
        return CommandResult(host.name, tuple(argv), Outcome.RAN, 0, "", "", 0.1)


def frames(data: bytes, end: int | None = None) -> bytes:
    half = len(data) // 2
    parts = [{"data": base64.b64encode(part).decode()} for part in (data[:half], data[half:])]
    return b"motd\n" + b"".join(map(encode, [*parts, {"end": len(data) if end is None else end}]))


def test_files_come_whole_and_private_or_not_at_all(tmp_path: Path) -> None:
    data = bytes(range(256))
    answers = {
        "a": frames(data), "b": frames(data, 5), "c": frames(data * 2), "d": encode({"data": "?"}), "e": encode([1]),
    }  # fmt: skip
    found = [RankTrace(name, rank, file=f"{rank}.json.gz", size_bytes=256) for rank, name in enumerate(answers)]
    hosts = [Host(name, name) for name in answers]
    folder = tmp_path / "new" / "traces"
    done = traces.gather(Pipe(answers), hosts, "job", found, folder, forks=2)  # type: ignore[arg-type]
    assert (done.files, done.too_large, sorted(done.problems)) == (1, False, ["b", "c", "d", "e"])
    assert [path.name for path in folder.iterdir()] == ["a.0.json.gz"]
    assert (folder / "a.0.json.gz").read_bytes() == data
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "a.0.json.gz").stat().st_mode) == 0o600
    assert "more than the 256 bytes" in done.problems["c"] and done.problems["b"] == "it was cut"


WAYS_OUT = ["0/../../victim", "d/../../victim/authorized_keys", "/etc/passwd", "..", "0.json.gz/x", "1.json.gz", "0.\0"]


@pytest.mark.parametrize("file", WAYS_OUT)
def test_whatever_a_node_calls_its_file_it_lies_in_the_folder(tmp_path: Path, file: str) -> None:
    folder = tmp_path / "deep" / "traces"
    victim = tmp_path / "victim"
    victim.write_text("mine")
    folder.mkdir(parents=True)
    (folder / ".a.0.json.gz.partial").symlink_to(victim)
    found = [RankTrace("a", 0, file=file, size_bytes=256)]
    traces.gather(Pipe({"a": frames(b"x")}), [Host("a", "a")], "job", found, folder, forks=1)  # type: ignore[arg-type]
    assert victim.read_text() == "mine" and sorted(tmp_path.iterdir()) == [tmp_path / "deep", victim]
    assert all(path.parent == folder for path in folder.rglob("*")) and list((tmp_path / "deep").iterdir()) == [folder]
