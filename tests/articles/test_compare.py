"""Before and after: the four rows, time saved and speed gained apart, and what a few runs can tell."""

import json
from pathlib import Path
from typing import Any

import pytest

from nodectl.articles.compare import Section, compare, compare_document, compare_text
from nodectl.articles.runs import Run, read_paths, read_text
from nodectl.errors import UsageError
from nodectl.trials.families import judge_all
from tests.conftest import Cli


def summary(step_s: float, **given: Any) -> dict[str, Any]:
    """The last line of a run of 8 ranks on two hosts, 20 steps of 256 samples."""
    known = {
        "workload": "transformer",
        "preset": "article-1",
        "median_step_ms": 1e3 * step_s,
        "timed_steps": 20,
        "timed_s": 20 * step_s,
        "samples_per_s": 256 / step_s,
        "gpu_utilisation": 0.75,
        "net_bytes_per_step": 5e9 * step_s,
        "world_size": 8,
        "hosts": ["one", "two"],
        "batch_per_rank": 32,
        "accumulation": 1,
        "global_batch": 256,
        "device": "cuda",
        "device_name": "NVIDIA A100-SXM4-80GB",
        "parallel": "ddp",
        "precision": "bf16",
    }
    return known | given


def log(*summaries: dict[str, Any]) -> str:
    lines = [f"node01 | [0] epoch 1 step 1/20 loss 0.5\nnode01 | [0] {json.dumps(each)}" for each in summaries]
    return "\n".join(lines)


def compared(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> Section:
    (section,) = compare(read_text(log(*before)), read_text(log(*after)), judge_all)
    return section


def test_a_third_less_time_is_half_more_speed() -> None:
    after = summary(1.6, gpu_utilisation=0.92, net_bytes_per_step=95 / 40 * 5e9 * 1.6)
    section = compared([summary(2.4)], [after])
    step, total, gpu, network = section.rows
    assert step.change is not None and total.change is not None and gpu.change is not None
    assert step.change.time_saved_percent == pytest.approx(33.333, abs=0.001)
    assert step.change.speed_gained_percent == pytest.approx(50)
    assert (total.change.before, total.change.after) == (48, 32)
    assert (step.change.more_percent, gpu.change.time_saved_percent) == (None, None)
    assert gpu.change.more_percent == pytest.approx(22.667, abs=0.001)
    # 5e9 bytes a second of two hosts are 20 Gbit/s of each
    assert [*network.before, *network.after] == pytest.approx([20.0, 47.5])
    document: Any = compare_document([section])["sections"]
    theirs = {row["name"]: row["article"] for row in document[0]["rows"]}
    assert theirs["step"]["time_saved_percent"] == pytest.approx(33.333, abs=0.001)
    assert theirs["total"]["speed_gained_percent"] == pytest.approx(77.778, abs=0.001)
    assert theirs["network"]["more_percent"] == pytest.approx(137.5)


def test_a_single_run_cannot_tell() -> None:
    section = compared([summary(2.4)], [summary(1.6)])
    assert str(section.rows[0].verdict and section.rows[0].verdict.verdict) == "unknown"
    text = compare_text([section], 200)
    assert "step time                   2.40 s" in text and "unknown: a single run cannot tell" in text


@pytest.mark.parametrize(
    ("after", "verdict"),
    [((1.6, 1.61, 1.59, 1.6, 1.62), "better"), ((2.41, 2.39, 2.4, 2.42, 2.38), "noise"), ((3.0,) * 5, "worse")],
)
def test_five_of_each_make_a_verdict(after: tuple[float, ...], verdict: str) -> None:
    before = [summary(step_s) for step_s in (2.4, 2.41, 2.39, 2.4, 2.42)]
    section = compared(before, [summary(step_s) for step_s in after])
    step = section.rows[0]
    assert step.verdict is not None and str(step.verdict.verdict) == verdict
    assert step.verdict.gain_percent == pytest.approx(step.change and step.change.time_saved_percent, abs=1)
    assert [row.verdict for row in section.rows[2:]] == [None, None]


def test_what_was_not_measured_says_why() -> None:
    here = {"device": "cpu", "device_name": "cpu", "gpu_utilisation": None, "hosts": ["one"]}
    section = compared([summary(2.4, **here)], [summary(1.6, **here, timed_steps=10, global_batch=512)])
    assert [row.missing for row in section.rows[2:]] == [
        "no GPU: the device is cpu",
        "one host: nothing crosses the network",
    ]
    # 20 steps of 256 are as many samples as 10 of 512
    assert section.rows[1].missing == "" and section.differs == ("global batch: 256 before, 512 after",)
    other = compared([summary(2.4)], [summary(1.6, timed_steps=30)])
    assert other.rows[1].missing == "not the same training: 5,120 samples before, 7,680 after"
    assert other.rows[1].change is None


OPTIONS = {"optimizer": "adamw", "lr": 0.001, "clip": 1.0, "compress": "none", "batch": 32, "precision": "bf16"}


def test_another_training_is_named_by_all_its_options() -> None:
    other = {**OPTIONS, "compress": "powersgd", "compress_rank": 4, "optimizer": "sgd", "lr": 0.1}
    section = compared([summary(1.0, options=OPTIONS)], [summary(0.4, options=other)])
    assert section.differs == (
        "optimizer: adamw before, sgd after",
        "lr: 0.001 before, 0.1 after",
        "compress: none before, powersgd after",
        "not told before: compress rank",
    )
    assert "not the same training: compress: none before, powersgd after" in compare_text([section], 200)
    compression = {"kind": "powersgd", "error_feedback": True}
    section = compared([summary(2.4, compression={"kind": "none"})], [summary(0.8, compression=compression)])
    assert section.differs[0] == "compress: none before, powersgd after"


@pytest.mark.parametrize("text", ["", "{", "no JSON", '{"workload": "x"}', "[1, 2]", '{"median_step_ms": 3}', "{]}"])
def test_what_is_no_result(text: str) -> None:
    assert read_text(text) == []


def test_a_run_without_a_figure_leaves_the_others_their_partners() -> None:
    before = [summary(step_s) for step_s in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)]
    after = [summary(step_s) for step_s in (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)]
    before[0]["median_step_ms"] = None
    verdict = compared(before, after).rows[0].verdict
    # each run has half of its partner's time, whatever the runs differ among each other
    assert verdict is not None and str(verdict.verdict) == "better"
    assert verdict.pairs == 5 and verdict.gain_percent == pytest.approx(50)


def test_a_document_of_another_form_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "scaling.json"
    path.write_text(json.dumps({"schema": "nodectl.bench-scaling/2", "rows": [{"summaries": [summary(1.0)]}]}))
    with pytest.raises(UsageError, match=rf"{path}: nodectl.bench-scaling/2 is a form that this nodectl does not"):
        read_paths([path])


def test_other_workloads_are_not_compared() -> None:
    with pytest.raises(UsageError, match="nothing was trained both before and after: llm and transformer"):
        compare([Run("llm", 1.0)], [Run("transformer", 1.0)], judge_all)


def test_the_command(nodectl: Cli, tmp_path: Path) -> None:
    for number, step_s in enumerate((2.4, 2.41, 1.6), start=1):
        (tmp_path / f"{number}.log").write_text(log(summary(step_s)))
    one, two, three = (str(tmp_path / f"{number}.log") for number in (1, 2, 3))
    done = nodectl("bench", "compare", f"{one},{two}", three, "--output", "json")
    (section,) = json.loads(done.stdout)["sections"]
    assert section["runs"] == {"before": 2, "after": 1}
    twice = nodectl("bench", "compare", f"{one},{one}", three, check=False)
    assert twice.returncode == 2 and "names one file twice" in twice.stderr
    lost = nodectl("bench", "compare", one, "", check=False)
    assert lost.returncode == 2 and ": no such file" in lost.stderr
