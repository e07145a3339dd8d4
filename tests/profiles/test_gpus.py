"""The catalogue of GPUs, and hardware composed of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nodectl.errors import ProfileError
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.probes.base import ProbeResult
from nodectl.probes.floors import Reference, held_against
from nodectl.profiles.gpus import (
    _models,
    completed,
    composed,
    floors_of,
    is_same,
    products,
    products_of,
    short_form,
)
from nodectl.profiles.matrix import matrix
from nodectl.profiles.resolve import load_profile
from nodectl.profiles.schema import Hardware
from tests.conftest import Cli


@pytest.mark.parametrize(
    ("text", "model", "capability"),
    [
        ("4 x rtx4090", "NVIDIA GeForce RTX 4090", "8.9"),
        ("2x3090", "NVIDIA GeForce RTX 3090", "8.6"),
        ("2 x GeForce RTX 5090", "NVIDIA GeForce RTX 5090", "12.0"),
        ("8 x a100-sxm4-40gb", "NVIDIA A100-SXM4-40GB", "8.0"),
        ("8 x NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3", "9.0"),
        ("2 x rtx6000ada", "NVIDIA RTX 6000 Ada Generation", "8.9"),
        ("2 x rtxpro6000blackwellserver", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0"),
        ("1 x gtx1080ti", "NVIDIA GeForce GTX 1080 Ti", "6.1"),
        ("1 x gb10", "NVIDIA GB10", "12.1"),
    ],
)
def test_a_short_form_means_one_product(text: str, model: str, capability: str) -> None:
    hardware = composed(text)
    assert hardware.gpu is not None
    assert (hardware.gpus, hardware.gpu.model, hardware.gpu.compute_capability) == (int(text[0]), model, capability)
    assert load_profile("hardware", text) == hardware


def test_a_short_form_is_shown_as_a_profile_is(nodectl: Cli) -> None:
    shown = json.loads(nodectl("profile", "show", "4 x rtx4090", "--output", "json").stdout)
    assert (shown["kind"], shown["values"]["gpus"]["value"]) == ("hardware", 4)
    assert "predicted" in shown["values"]["floors[0]"]["source"]
    nodectl("profile", "validate", "--hardware", "4 x rtx4090", "--stack", "cu128")
    for cut in ("4", "4x", "4 x "):
        done = nodectl("profile", "validate", "--hardware", cut, "--stack", "cu128", check=False)
        assert done.returncode == 2 and "4 x rtx4090" in done.stderr
    assert nodectl("profile", "show", "4 x rtx9999", check=False).returncode == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("8 x a100", "a100-80gb-pcie"),
        ("2 x rtxpro6000", "rtx-pro-6000-blackwell-max-q-workstation-edition"),
        ("4 x rtx4091", "rtx4090"),
        ("0 x t4", "4 x rtx4090"),
        ("4 x __", "4 x rtx4090"),
        ("2 x banana", "nvidia-smi"),
    ],
)
def test_what_means_none_or_several_is_refused_with_what_would_do(text: str, said: str) -> None:
    with pytest.raises(ProfileError) as caught:
        composed(text)
    assert said in caught.value.remedy


def test_each_product_with_figures_is_one_that_the_bus_can_show() -> None:
    assert set(_models()) <= {row.name for row in products()}
    for row in products():
        assert {other.compute_capability for other in products_of(row.ids[0])} == {row.compute_capability}
        assert matrix().gpu(row.compute_capability) or row.compute_capability in (
            "3.7",
            "5.0",
            "5.2",
            "10.3",
            "12.1",
        ), row


def test_the_short_form_of_what_is_seen_pins_it() -> None:
    for name in (row.name for row in products()):
        pinned = composed(short_form([name, name])).gpu
        assert pinned and pinned.model == name, name
    assert composed(short_form(["NVIDIA L4", "NVIDIA A2", "NVIDIA L4"])) == composed("2 x l4 + 1 x a2")
    assert short_form(["NVIDIA L4", "Nobody's"]) == ""


def test_several_kinds_are_pinned_each() -> None:
    hardware = composed("2 x a5000 + 1 x rtx3090 + 1 x a5000")
    assert (hardware.gpus, hardware.gpu, hardware.link) == (4, None, None)
    assert [(one.gpus, one.model, one.memory_gb, one.compute_capability) for one in hardware.groups] == [
        (3, "NVIDIA RTX A5000", 24, "8.6"),
        (1, "NVIDIA GeForce RTX 3090", 24, "8.6"),
    ]
    with pytest.raises(ProfileError, match="rtx9999"):
        composed("2 x a5000 + 1 x rtx9999")


def test_a_machine_keeps_what_it_says_itself_of_its_gpu() -> None:
    floor = {"probe": "hbm", "conditions": {"kernel": "copy"}, "value": 1, "unit": "GB/s", "source": "here"}
    whole = completed({"gpus": 2, "gpu": {"model": "NVIDIA L40S", "memory_gb": 44}, "floors": [floor]})
    assert (whole["gpu"]["memory_gb"], whole["gpu"]["compute_capability"]) == (44, "8.9")
    assert [one["value"] for one in whole["floors"] if one["probe"] == "hbm"] == [1]
    assert {one["probe"] for one in whole["floors"]} == {"hbm", "gemm", "h2d"}


def test_a_fleets_own_profile_of_such_a_name_wins(tmp_path: Path) -> None:
    (tmp_path / "hardware").mkdir()
    (tmp_path / "hardware" / "2x4090.yml").write_text("{description: ours, gpus: 3, gpu: rtx4090}\n")
    own = load_profile("hardware", "2x4090", [tmp_path])
    assert isinstance(own, Hardware) and (own.description, own.gpus) == ("ours", 3)


@pytest.mark.parametrize(
    ("seen", "named", "same"),
    [
        ("GeForce RTX 2080 Ti", "NVIDIA GeForce RTX 2080 Ti", True),
        ("NVIDIA B300", "NVIDIA B300 SXM6 AC", True),
        ("A100-SXM-80GB", "NVIDIA A100-SXM4-80GB", True),
        ("NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 3090 Ti", False),
        ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", False),
        ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090 D", False),
        ("", "NVIDIA L4", False),
    ],
)
def test_older_drivers_name_a_gpu_in_fewer_words(seen: str, named: str, same: bool) -> None:
    assert is_same(seen, named) is same
    if same:
        assert list(floors_of(seen)) == list(floors_of(named))


def test_figures_that_are_published_predict_a_floor_and_a_measured_one_goes_before() -> None:
    assert [floor.is_predicted for floor in floors_of("NVIDIA GeForce RTX 4090")] == [True, True]
    assert not any(floor.is_predicted for floor in floors_of("NVIDIA GeForce RTX 5090"))
    assert [floor.conditions for floor in floors_of("Tesla T4") if floor.probe == "gemm"] == [{"precision": "fp16"}]
    assert list(floors_of("Nobody's")) == []


@pytest.mark.parametrize(
    ("device", "value", "status"),
    [
        ("NVIDIA GeForce RTX 4090", 60.0, Status.WARNING),
        ("NVIDIA GeForce RTX 4090", 150.0, None),
        ("NVIDIA H100 80GB HBM3", 600.0, Status.FAILED),
        ("Nobody's", 1.0, None),
    ],
)
def test_without_a_profile_each_gpu_is_held_against_its_kind(device: str, value: float, status: Status | None) -> None:
    conditions = {"gpu": 0, "device": device, "precision": "bf16"}
    row = Measurement(probe="gemm", hosts=("a",), value=value, unit="TFLOPS", conditions=conditions)
    auto = Hardware(description="any", gpus=None)
    result = held_against(ProbeResult((row,)), {"a": Reference("auto", auto)})
    assert [finding.status for finding in result.findings] == ([status] if status else [])
    without = held_against(ProbeResult((row,)), {"a": Reference("unknown", auto)})
    assert not without.findings and without.measurements[0].expected is None
