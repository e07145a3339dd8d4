"""What others publish: each table names its source and its time, and is what its document says."""

from __future__ import annotations

import ast
import re

import pytest

from nodectl.common.resources import payload_dir
from nodectl.profiles.gpus import _models
from nodectl.profiles.published import data_files, published_files

# nodectl's own: what it decides, invents, measured and recorded, and what is held against figures of articles
OWN = {"articles", "inventories", "prometheus", "recordings", "base.yml"}


def test_each_table_says_its_source_and_its_time() -> None:
    heads = dict(published_files())
    silent = [path for path in data_files() if path not in heads and not OWN.intersection(path.parts[-3:])]
    assert not silent
    for head in heads.values():
        assert head["source"] and head["read_on"] < head["valid_until"]


def test_what_nodes_hold_a_training_against_is_the_catalogues() -> None:
    # the program comes to nodes without nodectl's data, and needs PyTorch to be imported
    program = payload_dir().with_name("workloads") / "usage.py"
    table = program.read_text(encoding="utf-8").partition("_PEAKS = ")[2].partition("\n)\n")[0]
    peaks = ast.literal_eval(f"{table}\n)")
    published = {name: model.tflops for name, model in _models().items() if model.tflops}
    held = {name: next((half for kind, half, *_ in peaks if re.search(kind, name)), None) for name in published}
    assert {"NVIDIA H200 NVL", "NVIDIA GB200", "NVIDIA GeForce RTX 3090 Ti"} <= {name for name in held if held[name]}
    for name, half in held.items():
        assert half is None or half == pytest.approx(published[name], rel=0.01), name
