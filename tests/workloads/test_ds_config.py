"""The rules of DeepSpeed's configuration, with the numbers of article 004; and that template and program agree."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodectl.jobs.export import render
from nodectl.workloads.ds_config import Batch, batch_of, build

ROLE = Path(__file__).resolve().parents[2] / "roles/deepspeed"
DEFAULTS = yaml.safe_load((ROLE / "defaults/main.yml").read_text())


def config(train: Any = None, micro: Any = None, accumulation: Any = None) -> dict[str, Any]:
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    return {name: value for name, value in zip(names, (train, micro, accumulation), strict=True) if value is not None}


def test_the_articles_configuration_fits_three_ranks() -> None:
    batch = batch_of(config(train=12, accumulation=4), 3)
    assert batch == Batch(train=12, micro=1, accumulation=4, world=3) and batch.holds


@pytest.mark.parametrize(
    ("given", "world", "rule"),
    [
        # its launch script: --batch_size 16 --gradient_accumulation 1 on three GPUs
        (config(train=16, accumulation=1), 3, "15 = 5 micro x 1 accumulation x 3 ranks"),
        # its TrainingArguments, 4 x 8 on three GPUs, with its train_batch_size
        (config(12, 4, 8), 3, "96 = 4 micro x 8 accumulation x 3 ranks"),
        (config(train=8, micro=4, accumulation=0), 2, "0 accumulation"),
    ],
)
def test_a_batch_that_deepspeed_ends_with_does_not_hold(given: Any, world: int, rule: str) -> None:
    batch = batch_of(given, world)
    assert not batch.holds and rule in batch.rule


@pytest.mark.parametrize(
    ("given", "world", "told"),
    [
        (config(micro=2, accumulation=3), 4, Batch(24, 2, 3, 4)),
        (config(train=24, micro=2), 4, Batch(24, 2, 3, 4)),
        (config(12.0, "auto", 4.0), 3, Batch(12, 1, 4, 3)),
    ],
)
def test_what_is_left_open_follows_as_deepspeed_fills_it_in(given: Any, world: int, told: Batch) -> None:
    assert batch_of(given, world) == told and told.holds


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "neither"),
        (config(train="12"), "'12', no whole number"),
        (config(train=float("inf")), "inf, no whole number"),
    ],
)
def test_what_says_nothing_is_told(given: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        batch_of(given, 3)


def test_the_template_and_a_workloads_own_configuration_are_the_same() -> None:
    batch = Batch(train=12, micro=1, accumulation=4, world=3)
    flags = (False, True)
    for precision, stage, optimizer, parameters in itertools.product(("fp16", "bf16", "fp32"), (1, 2, 3), flags, flags):
        if parameters and stage < 3:
            with pytest.raises(ValueError, match="ZeRO-3 only"):
                build(
                    batch,
                    stage=stage,
                    precision=precision,
                    clip=1.0,
                    optimizer={},
                    offload_optimizer=True,
                    offload_parameters=True,
                )
            continue
        text = render(
            "ds_config.json.j2",
            train_batch=12,
            micro_batch=1,
            accumulation=4,
            clip=1.0,
            learning_rate=6e-5,
            weight_decay=0.01,
            precision=precision,
            zero_stage=stage,
            offload_optimizer=optimizer,
            offload_parameters=parameters,
            checkpoint_activations=True,
            checkpoints=0,
            bucket=DEFAULTS["deepspeed_bucket"],
        )
        # a workload recomputes by torch
        rendered = {name: value for name, value in json.loads(text).items() if name != "activation_checkpointing"}
        own = build(
            batch,
            stage=stage,
            precision=precision,
            clip=1.0,
            optimizer={"type": "AdamW", "params": {"lr": 6e-5, "weight_decay": 0.01}},
            offload_optimizer=optimizer,
            offload_parameters=parameters,
        )
        assert own == rendered
