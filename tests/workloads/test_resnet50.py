"""resnet50: CIFAR-10 in its published forms, what the network is shown, and the accuracy that is told."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nodectl import workloads
from tests.torch_venv import vision_venv
from tests.workloads.cifar_files import COUNT, label, picture

CHECKS = Path(__file__).with_name("resnet_checks.py")


def looked(folder: Path, *parts: str) -> dict[str, Any]:
    done = subprocess.run(
        [f"{vision_venv()}/bin/python", str(CHECKS), str(folder), *parts],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": next(iter(workloads.__path__)), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return looked(tmp_path_factory.mktemp("cifar"), "forms", "shown", "shared")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What takes trainings, which the transformer's tests in the gate do as well."""
    return looked(tmp_path_factory.mktemp("trained"), "course", "counted", "rests", "two_ranks")


def test_the_published_folder_is_read_and_a_broken_one_refused_by_name(told: dict[str, Any]) -> None:
    found = told["forms"]
    assert found["none"] is True
    assert found["read"] == [[label(number) for number in range(6 * COUNT)], picture(7)[2 * 1024 + 31 * 32 + 30]]
    assert "data_batch_3" in found["missing"] and "unpack CIFAR-10 anew" in found["missing"]
    assert "corrupted" in found["broken"]


def test_a_picture_is_cropped_flipped_and_normalised_as_the_article_says(told: dict[str, Any]) -> None:
    shown = told["shown"]
    assert shown["by_hand"] < 1e-6 and shown["test"] < 1e-6 and shown["labels"] is True
    # 162 cases in 162,000 pictures: none is rarer or more frequent than chance makes it
    assert 850 < shown["fewest_and_most"][0] < shown["fewest_and_most"][1] < 1150
    assert shown["first"] is True


def test_chance_is_of_seed_epoch_and_picture_alone(told: dict[str, Any]) -> None:
    shown = told["shown"]
    assert shown["same"] is True and shown["other_epoch"] > 0.1 and shown["other_seed"] > 0.1


@pytest.mark.slow
def test_a_resumed_training_sees_the_same_pictures(trained: dict[str, Any]) -> None:
    # in the middle of the second epoch, and with another number of loader processes
    assert trained["course"]["resumed"] is True and trained["course"]["epochs"] == 2


@pytest.mark.slow
def test_flops_and_parameters_are_torchs_own_count(trained: dict[str, Any]) -> None:
    for layers, parameters in (("18", 11_181_642), ("50", 23_528_522)):
        ours, torchs, count = trained["counted"][layers]
        assert ours == torchs > 1e8 and count == parameters
    assert trained["course"]["blocks"] == [4, 16]


def test_every_test_picture_counts_once_and_every_rank_asks_as_often(told: dict[str, Any]) -> None:
    shared = told["shared"]
    assert (shared["len"], shared["calls"]) == (16, [3, 3, 3]) and shared["right"] == shared["threes"] > 0


@pytest.mark.slow
def test_a_sample_that_would_be_alone_goes_with_those_before_it(trained: dict[str, Any]) -> None:
    """Batch norms cannot take it by itself: the training ended with a traceback after an epoch."""
    cut = trained["rests"]["cut"]
    assert cut["--samples=33"] == [[[16], [17]] * 2, 4]
    assert cut["--samples=37 --batch=4 --accumulation=2"] == [[*[[4, 4]] * 4, [5]] * 2, 10]
    assert cut["--samples=7 --batch=2 --accumulation=2"] == [[[2, 2], [3]] * 2, 4]
    for options in ("--batch=1", "--samples=1"):
        assert "a micro-batch of resnet50 has 2 samples at least" in trained["rests"][options]


@pytest.mark.slow
def test_two_ranks_learn_and_the_first_line_names_the_data(trained: dict[str, Any]) -> None:
    lines, summary = trained["two_ranks"]["lines"][:-1], json.loads(trained["two_ranks"]["lines"][-1])
    assert lines[0].startswith("training on synthetic pictures, 2 ranks") and summary["data"] == "synthetic pictures"
    figures = [float(line.split("test accuracy ")[1].split()[0]) for line in lines if "test accuracy" in line]
    # 128 test pictures of ten classes: chance is right in 13
    assert len(figures) == 2 and summary["test_accuracy"] == pytest.approx(figures[-1], abs=1e-4) and figures[-1] > 0.4
    assert summary["world_size"] == 2 and summary["last_loss"] < summary["first_loss"]


@pytest.mark.slow
def test_ranks_with_other_data_are_refused(trained: dict[str, Any]) -> None:
    other = trained["two_ranks"]
    assert other["child"] == 0 and "rank 1" in other["other"] and "synthetic pictures of 20 samples" in other["other"]
