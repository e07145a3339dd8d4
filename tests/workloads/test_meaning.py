"""Which option means something with which: the table by itself, and what the programs refuse by it."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nodectl import workloads
from nodectl.workloads.meaning import OFF, RULES, refusal, without_meaning
from nodectl.workloads.settings import TUNABLE
from tests.torch_venv import torch_venv

FOLDER = Path(next(iter(workloads.__path__)))
ALONE = {**OFF, "optimizer": "sgd", "strategy": "single", "on": "cpu", "precision": "fp32"}


@pytest.mark.parametrize(
    ("given", "others", "idle"),
    [
        ({"momentum": 0.9}, {"optimizer": "adamw"}, ["momentum"]),
        ({"momentum": 0.9}, {}, []),
        ({"bucket_view": True, "static_graph": True}, {}, ["bucket_view", "static_graph"]),
        ({"bucket_mb": 25.0}, {"strategy": "ddp", "stages": 2}, ["bucket_mb"]),
        ({"bucket_mb": 25.0, "bucket_view": False}, {"strategy": "ddp"}, []),
        ({"prefetch": 4}, {}, ["prefetch"]),
        ({"compress_rank": 16, "compress": "powersgd"}, {}, []),
        ({"compress_ratio": 0.1, "compress_threshold": 0.1, "compress": "topk"}, {}, ["compress_threshold"]),
        ({"error_feedback": False}, {}, ["error_feedback"]),
        ({"error_feedback": False, "compress": "bf16"}, {}, ["error_feedback"]),
        ({"pipeline": "gpipe"}, {}, ["pipeline"]),
        ({"dynamic_start": 8, "dynamic_lr": "sqrt"}, {}, ["dynamic_start", "dynamic_lr"]),
        ({"batch": 8, "dynamic_batch": True}, {}, ["batch"]),
        ({"checkpoint_every": 5}, {}, ["checkpoint_every"]),
        ({"resume": True}, {}, ["resume"]),
        ({"resume": True}, {"checkpoint_dir": "x"}, []),
        ({"epochs": 3, "steps": 8}, {}, ["epochs"]),
        ({"pin_memory": True}, {}, ["pin_memory"]),
        ({"precision": "tf32"}, {}, ["precision"]),
        ({"precision": "bf16"}, {}, []),
        ({"parallel": "dataparallel"}, {}, ["parallel"]),
        ({"parallel": "single"}, {}, []),
    ],
)  # fmt: skip
def test_the_table(given: Mapping[str, Any], others: Mapping[str, Any], idle: list[str]) -> None:
    assert sorted(without_meaning(given, {**ALONE, **others})) == sorted(idle)


def test_an_option_is_refused_by_the_name_that_was_typed() -> None:
    said = refusal({"error_feedback": False, "prefetch": 4}, ALONE)
    assert "--no-error-feedback does nothing here" in said and "--prefetch does" in said


def test_what_is_not_known_is_taken_to_mean_something() -> None:
    asked = {"prefetch": 4, "bucket_mb": 25.0, "compress_rank": 8, "momentum": 0.9, "pin_memory": True}
    assert not without_meaning(asked, {})


def test_the_table_has_every_option_of_a_search_that_stands_on_another() -> None:
    named = {name for rule in RULES for name in rule.options}
    alone = {"batch", "accumulation", "precision", "fused", "parallel", "offload", "recompute", "compile", "workers"}
    assert {*TUNABLE} <= named | alone | {"compress"}


ASK = """
import sys
import llm, options, ranks, torch, transformer
from settings import Refused
from program import Training
alone = ranks.Ranks(0, 1, 0, torch.device("cpu"), "none", ("here",))
tiny = ["--seq=4", "--samples=24", "--device=cpu", "--layers=1", "--heads=2"]
for line in sys.argv[1].split("|"):
    program, *given = line.split()
    workload = {"llm": llm.LanguageModel, "transformer": transformer.Transformer}[program]()
    width = ["--hidden=16", "--intermediate=16"] if program == "llm" else ["--d-model=16"]
    own = [] if any(each.startswith("--hf") for each in given) else [*tiny, *width]
    try:
        Training(workload, options.parse(workload, [*own, *given]), alone)
    except SystemExit as end:
        print(line, "->", end.code if isinstance(end.code, int) else "refused " + str(end))
    else:
        print(line, "-> runs")
"""
REFUSED = (
    "transformer --momentum=0.9 --optimizer=adamw",
    "transformer --bucket-mb=25",
    "transformer --bucket-view",
    "transformer --static-graph",
    "transformer --prefetch=4",
    "transformer --compress-rank=8",
    "transformer --no-error-feedback",
    "llm --pipeline=gpipe",
    "transformer --dynamic-start=512",
    "transformer --warmup-steps=9 --steps=8",
    "transformer --pin-memory",
    "transformer --precision=tf32",
    "transformer --parallel=dataparallel",
    "transformer --checkpoint-every=5",
    "llm --resume",
    "llm --epochs=3 --steps=8",
    "llm --hf=some/model --layers=2",
    "transformer --text=/nowhere",
)
RUN = (
    "transformer --momentum=0.9 --optimizer=sgd",
    "transformer --prefetch=4 --workers=1",
    "transformer --preset=article-1 --batch=2 --layers=1",
    "transformer --compress=none --no-bucket-view",
    "transformer --warmup-steps=8 --steps=8",
    "llm --lr=0.1",
)


def test_the_programs_refuse_what_would_be_ignored() -> None:
    argv = [f"{torch_venv()}/bin/python", "-c", ASK, "|".join((*REFUSED, *RUN))]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(FOLDER), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    told = dict(line.split(" -> ") for line in done.stdout.splitlines())
    assert {line: told[line] for line in REFUSED if told[line] == "runs"} == {}
    assert {line: told[line] for line in RUN if told[line] != "runs"} == {}


@pytest.mark.parametrize("program", ["llm", "resnet50", "transformer"])
def test_without_torch_help_is_told_and_training_says_what_to_install(program: str) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        # this Python may have a torch
        code = "import runpy, sys; sys.modules['torch'] = None; sys.path.insert(0, sys.argv[1]); del sys.argv[1]; "
        code += f"runpy.run_path({str(FOLDER / (program + '.py'))!r}, run_name='__main__')"
        argv = [sys.executable, "-c", code, str(FOLDER), *words]
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)

    shown, trained = run("--help"), run("--steps", "2")
    assert shown.returncode == 0 and "--accumulation" in shown.stdout, shown.stderr
    assert trained.returncode == 1 and "has no torch" in trained.stderr and "pip install torch" in trained.stderr
    if program == "llm":
        told = json.loads(run("--count", "--preset=article-4").stdout)
        assert told["params"] == 10_126_110_720
