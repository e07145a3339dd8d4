"""The role's template and a workload's own configuration of DeepSpeed agree."""

import itertools
import json
from pathlib import Path

import pytest
import yaml

from nodectl.jobs.export import render
from nodectl.workloads.ds_config import build

ROLE = Path(__file__).resolve().parents[2] / "roles/deepspeed"
DEFAULTS = yaml.safe_load((ROLE / "defaults/main.yml").read_text())


def test_the_template_and_a_workloads_own_configuration_are_the_same() -> None:
    flags = (False, True)
    for precision, stage, optimizer, parameters in itertools.product(("fp16", "bf16", "fp32"), (1, 2, 3), flags, flags):
        if parameters and stage < 3:
            with pytest.raises(ValueError, match="ZeRO-3 only"):
                build(
                    micro=1,
                    accumulation=4,
                    world=3,
                    stage=stage,
                    precision=precision,
                    clip=1.0,
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
        # a workload recomputes by torch, and hands its own optimizer over
        others = ("activation_checkpointing", "optimizer")
        rendered = {name: value for name, value in json.loads(text).items() if name not in others}
        own = build(
            micro=1,
            accumulation=4,
            world=3,
            stage=stage,
            precision=precision,
            clip=1.0,
            offload_optimizer=optimizer,
            offload_parameters=parameters,
        )
        assert own == rendered
