"""Scaling and modes: which runs are planned for which hosts, and what may be held against what."""

import json
from dataclasses import replace
from typing import Any

import pytest

from nodectl.articles import programs
from nodectl.articles.programs import Outcome, Runs, Setting, WorkloadOptions, run_plan
from nodectl.articles.scaling import (
    MODES,
    SCALING,
    Row,
    Wish,
    plan_for,
    rows_of,
    scaling_document,
    scaling_table,
)
from nodectl.errors import UsageError
from nodectl.model.status import Status
from nodectl.probes.endpoints import Endpoint
from nodectl.trials.families import judge_all
from tests.probes.scripted import ENDPOINT, HOSTS, Answer, play

CPU = [
    Endpoint(host=host, **{key: value for key, value in ENDPOINT.items() if key != "event"}, machine="lab")  # type: ignore[arg-type]
    for host in HOSTS
]
GPU = [replace(endpoint, gpus=8, torch="2.7.0+cu128", machine=endpoint.host.name) for endpoint in CPU[:2]]
THREE = [replace(GPU[0], gpus=3)]


def planned(command: str, wish: Wish, ready: list[Endpoint]) -> dict[str, Setting]:
    device = "cuda" if ready[0].gpus else "cpu"
    return {setting.label: setting for setting in plan_for(command, wish)(ready, device)}


def option(setting: Setting, name: str) -> str | None:
    """The value that counts: the last one."""
    values = [text.partition("=")[2] for text in setting.arguments if text.startswith(f"--{name}=")]
    return values[-1] if values else None


def test_devices_of_a_fleet_of_gpus() -> None:
    settings = planned(SCALING, Wish("resnet50", ("ddp", "fsdp2")), GPU)
    assert {label: setting.ranks for label, setting in settings.items()} == {
        "1 device, single": (1,),
        "2 devices, ddp": (2,),
        "2 devices, fsdp2": (2,),
        "4 devices, ddp": (4,),
        "4 devices, fsdp2": (4,),
        "8 devices, ddp": (8,),
        "8 devices, fsdp2": (8,),
        "16 devices, ddp": (8, 8),
        "16 devices, fsdp2": (8, 8),
    }
    assert option(settings["16 devices, fsdp2"], "parallel") == "fsdp2"
    # the article's own preset, with its batch
    assert option(settings["1 device, single"], "preset") == "article-3" and not option(
        settings["1 device, single"], "batch"
    )


def test_hosts_without_gpus_have_one_rank_each_and_a_small_model() -> None:
    settings = planned(SCALING, Wish("resnet50", batch=4, arguments=("--batch=2",)), CPU)
    assert [setting.ranks for setting in settings.values()] == [(1,), (1, 1), (1, 1, 1), (1, 1, 1, 1)]
    last = settings["4 devices, ddp"]
    assert option(last, "preset") is None and option(last, "layers") == "18"
    # what stands behind -- goes before all
    assert option(last, "batch") == "2"


def test_one_model_cut_by_all_devices() -> None:
    settings = planned(SCALING, Wish("llm", ("tensor", "pipeline"), devices=(2,)), GPU)
    tensor, pipeline = settings["2 devices, tensor"], settings["2 devices, pipeline"]
    assert (option(tensor, "parallel"), option(tensor, "tensor"), option(tensor, "stages")) == ("auto", "2", None)
    assert (option(pipeline, "parallel"), option(pipeline, "stages")) == ("auto", "2")


@pytest.mark.parametrize(
    ("count", "why"),
    [(32, "there are 16 devices"), (12, "8 and 4 ranks a host: all hosts take part with equally many")],
)
def test_devices_that_cannot_be_are_refused(count: int, why: str) -> None:
    (setting,) = planned(SCALING, Wish("resnet50", devices=(count,)), GPU).values()
    assert (setting.ranks, setting.refused) == ((), why)


def test_the_articles_own_rows_come_with_their_batches() -> None:
    settings = planned(SCALING, Wish("llm"), THREE)
    assert [label for label in settings if not label.startswith("article")] == [
        "1 device, single",
        "2 devices, ddp",
        "3 devices, ddp",
    ]
    rows = {label: setting for label, setting in settings.items() if label.startswith("article 4")}
    assert {
        label: (option(setting, "batch"), option(setting, "accumulation"), setting.ranks)
        for label, setting in rows.items()
        if not setting.refused
    } == {
        "article 4: 1 GPU": ("4", "8", (1,)),
        "article 4: 2 GPUs, DP": ("4", "4", (2,)),
        "article 4: 3 GPUs, DP+PP": ("4", "2", (3,)),
    }
    assert rows["article 4: 3 GPUs, mixed"].refused == "a batch of 16 is no multiple of 3 devices"


def test_modes() -> None:
    settings = planned(MODES, Wish("transformer"), GPU)
    told = {
        label: (setting.ranks, setting.devices, option(setting, "parallel"), option(setting, "precision"))
        for label, setting in settings.items()
    }
    assert told == {
        "single": ((1,), 1, "single", "fp32"),
        # one process has all GPUs of its host
        "dataparallel": ((1,), 8, "dataparallel", "fp32"),
        "ddp": ((8, 8), 16, "ddp", "fp32"),
        "amp": ((8, 8), 16, "ddp", "fp16"),
    }
    alone = planned(MODES, Wish("transformer"), CPU[:1])
    assert alone["ddp"].refused.startswith("there is one device")
    assert (option(alone["amp"], "parallel"), option(alone["amp"], "precision")) == ("single", "bf16")


def summary(rate: float, world: int = 1, batch: int = 4, accumulation: int = 8, **given: Any) -> dict[str, Any]:
    known = {
        "workload": "llm",
        "preset": "article-4",
        "data": "a made-up text",
        "samples_per_s": rate / 2048,
        "tokens_per_s": rate,
        "median_step_ms": 100.0,
        "timed_steps": 20,
        "timed_s": 2.0,
        "gpu_utilisation": 0.5,
        "peak_memory_bytes": 23_500_000_000,
        "net_bytes_per_step": None,
        "world_size": world,
        "hosts": ["one"],
        "params": 100,
        "batch_per_rank": batch,
        "accumulation": accumulation,
        "global_batch": batch * accumulation * world,
        "parallel": "ddp" if world > 1 else "single",
        "precision": "fp16",
        "device": "cuda",
        "device_name": "NVIDIA GeForce RTX 4090",
    }
    return known | given


def runs(*told: tuple[str, int, dict[str, Any] | str]) -> Runs:
    outcomes = []
    for label, devices, given in told:
        setting = Setting(label, (devices,), (), devices)
        outcomes.append((Outcome(setting, why=given) if isinstance(given, str) else Outcome(setting, given),))
    return Runs(tuple(outcomes), device="cuda")


def by_label(rows: list[Row]) -> dict[str, Row]:
    return {row.setting.label: row for row in rows}


def test_efficiency_needs_an_equal_batch_a_device_and_accumulation() -> None:
    told = runs(
        ("1", 1, summary(42.0)),
        ("2 same", 2, summary(78.0, 2)),
        ("3 same", 3, summary(158.0, 3)),
        ("3 other", 3, summary(158.0, 3, accumulation=2)),
        ("16", 3, "a batch of 16 is no multiple of 3 devices"),
    )
    rows = by_label(rows_of(told, SCALING, "llm", judge_all))
    assert rows["1"].efficiency == 1 and rows["1"].speed_up == 1
    assert rows["2 same"].efficiency == pytest.approx(78 / 84) and rows["2 same"].why == ""
    # the article's 158 tokens/s of three times 42
    assert rows["3 same"].efficiency == pytest.approx(1.254, abs=0.001)
    assert rows["3 same"].why == "baseline not comparable: more than devices can give"
    assert (rows["3 other"].efficiency, rows["3 other"].speed_up) == (None, None)
    assert rows["3 other"].why == (
        "no efficiency: batch 4 a device with accumulation 2, fewer devices had batch 4 a device with accumulation 8"
    )
    assert rows["16"].rate is None and "multiple of 3" in rows["16"].why


def test_the_articles_figures_stand_beside() -> None:
    told = runs(("1", 1, summary(42.0)), ("2", 2, summary(78.0, 2, accumulation=4)))
    rows = rows_of(told, SCALING, "llm", judge_all)
    beside = by_label(rows)["1"].beside
    assert {column: figure.value for column, figure in beside.items()} == {"tokens_s": 42, "memory": 23.5}
    assert by_label(rows)["2"].beside["tokens_s"].row == "2 GPUs, DP"
    text = scaling_table(told, rows, 200)
    line = next(line for line in text.splitlines() if line.startswith("1 "))
    assert line.split()[-10:] == ["1", "GPU", "42", "tokens/s,", "1", "GPU", "23.5", "GB", "a", "card"]
    assert "`nodectl bench claims 4` shows the conditions" in text and "trained on a made-up text" in text
    document: Any = scaling_document(told, rows)
    assert document["rows"][0]["summaries"][0]["tokens_per_s"] == 42.0
    json.dumps(document)


def test_what_is_not_told_here_is_named() -> None:
    given: dict[str, Any] = {"device": "cpu", "device_name": "cpu", "gpu_utilisation": None, "peak_memory_bytes": None}
    told = replace(
        runs(
            ("1 device", 1, summary(42.0, **given, data_wait_share=0.25)),
            ("2 devices", 2, summary(50.0, 2, **given, net_bytes_per_step=3e6)),
        ),
        device="cpu",
    )
    rows = rows_of(told, SCALING, "llm", judge_all)
    text = scaling_table(told, rows, 60)
    assert "not told here: GB A CARD, GPU USE, MFU: the device is cpu" in text
    needs = {line.split("  ")[0]: line for line in text.splitlines() if "WAIT" in line or "MB a step" in line}
    assert "WAIT FOR DATA" in needs[""] and "3.00 MB a step" in needs["2 devices"]
    # the article's words are below their lines, not beside them
    assert "    article: 2 GPUs, DP 78 tokens/s" in text.splitlines()


def test_a_plan_of_nothing_that_can_be_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = play(monkeypatch, lambda host, module, args: Answer([{**ENDPOINT, "torch": "2.7.0+cpu"}]))
    plan = plan_for(SCALING, Wish("llm", devices=(9,)))
    with pytest.raises(UsageError, match="nothing can be run: 9 devices, ddp: there are 2 devices"):
        run_plan(fleet, HOSTS[:2], WorkloadOptions(program="llm"), note, plan)


def test_modes_are_held_against_one_device() -> None:
    given: dict[str, Any] = {"workload": "transformer", "preset": "article-0", "tokens_per_s": None, "accumulation": 1}
    told = runs(("single", 1, summary(1, **given)), ("dataparallel", 8, summary(1, **given, batch=32)))
    for outcome, rate in zip(told.outcomes, (100, 250), strict=True):
        assert isinstance(outcome[0].summary, dict)
        outcome[0].summary["samples_per_s"] = rate
    row = by_label(rows_of(told, MODES, "transformer", judge_all))["dataparallel"]
    assert (row.speed_up, row.batch) == (2.5, 32)
    assert row.efficiency == pytest.approx(2.5 / 8)


def note(_: str) -> None:
    """Nobody looks at the progress."""


def test_every_setting_is_run_in_turns_and_a_refusal_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[str, Any]] = []

    def reply(host: str, module: str, args: Any) -> Answer:
        if module == "probes.endpoints":
            return Answer([{**ENDPOINT, "address": f"192.0.2.{host[-1]}"}])
        given = dict(text[2:].split("=", 1) for text in args if "=" in text)
        arguments = json.loads(given["arguments"])
        started.append((host, arguments[-1]))
        if "--bad" in arguments:
            return Answer([{"event": "error", "text": "3 ranks cannot split 32 heads", "refused": True}], status=1)
        if "--dies" in arguments:
            return Answer([{"event": "error", "text": "out of memory"}], status=1)
        told = [{"event": "summary", "summary": summary(10.0, int(given["world-size"]))}]
        return Answer(told if given["rank-base"] == "0" else [])

    fleet = play(monkeypatch, reply)
    monkeypatch.setattr(programs, "find_endpoints", lambda *_: ([], []))
    settings = [
        Setting("one", (1,), ("--one",), 1),
        Setting("bad", (1, 1), ("--bad",), 2),
        Setting("two", (1, 1), ("--two",), 2),
        Setting("never", (), (), 5, refused="there are 2 devices"),
        Setting("dies", (1,), ("--dies",), 1),
    ]
    options = WorkloadOptions(repetitions=2, program="llm")
    told = run_plan(fleet, HOSTS[:2], options, note, lambda ready, device: settings)
    assert [why for _, why in started if why in ("--one", "--dies")] == ["--one", "--dies", "--one"]
    assert [outcomes[-1].why for outcomes in told.outcomes] == [
        "",
        "3 ranks cannot split 32 heads",
        "",
        "there are 2 devices",
        "out of memory",
    ]
    (finding,) = told.result.findings
    assert (finding.status, finding.actual) == (Status.FAILED, "out of memory")
    one, two = told.result.measurements
    assert (one.hosts, two.hosts) == (("node01",), ("node01", "node02"))
    assert (one.value, one.unit, one.spread, one.conditions["values"]) == (10.0, "tokens/s", 0.0, [10.0, 10.0])
