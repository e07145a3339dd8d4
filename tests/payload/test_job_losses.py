"""Losses that a job's output tells: common forms of a line, the first that is no number, jumps; and what is none."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from nodectl.payload.jobs.folder import JobFolder
from nodectl.payload.jobs.losses import Losses, read_line

FORMS = [
    ("step 12/100 loss 0.5", [("loss", "0.5", 12)]),
    ("loss: 2.31", [("loss", "2.31", None)]),
    ("[1] epoch 1 step 120/1000 loss nan step 4.2 ms", [("loss", "nan", 120)]),
    (
        "{'loss': 2.3, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.01}",
        [("loss", "2.3", None), ("grad_norm", "nan", None)],
    ),
    (
        "  0%| | 2/13000 [00:28<54:33:11, 15.1s/it]{'loss': 'nan', 'grad_norm': 'nan', 'learning_rate': '0'}",
        [("loss", "nan", 2), ("grad_norm", "nan", 2)],
    ),
    (
        "step 1656 - loss        nan - moving ave loss        nan",
        [("loss", "nan", 1656), ("moving ave loss", "nan", 1656)],
    ),
    ("{'eval_loss': 2.2, 'eval_runtime': 3.0}", [("eval_loss", "2.2", None)]),
    (
        "Epoch 3:  12%|#4 | 12/100 [00:01<00:10, 8.6it/s, v_num=0, train_loss=nan.0, val_loss=2.300]",
        [("train_loss", "nan.0", 12), ("val_loss", "2.300", 12)],
    ),
    ("Epoch 0: 100%|##| 5/5 [00:00<00:00, train_loss_step=0.25]", [("train_loss_step", "0.25", 5)]),
    (
        (
            " iteration       10/     100 | consumed samples:   1280 | learning rate: 1.5E-04 | lm loss: 1.034567E+01 |"
            " loss scale: 65536.0 | grad norm: 2.1 | skipped iterations:   0 | number of nan iterations:   0 |"
        ),
        [("lm loss", "1.034567E+01", 10), ("grad norm", "2.1", 10)],
    ),
    ("steps: 10 loss: 2.3456 iter time (s): 0.5 samples/sec: 3.1", [("loss", "2.3456", 10)]),
    ("Train: 0 [  50/1251 (  4%)]  Loss:  6.93 (6.94)  Time: 0.3s", [("Loss", "6.93", None)]),
    ("Epoch: [0][  10/5005]\tLoss 6.9e+00 (7.0e+00)\tAcc@1 0.0", [("Loss", "6.9e+00", None)]),
    ("[0/5][0/1583]\tLoss_D: 1.9\tLoss_G: 5.3", [("Loss_D", "1.9", None), ("Loss_G", "5.3", None)]),
    ("loss: 0.5 - accuracy: 0.9 - val_loss: 0.6", [("loss", "0.5", None), ("val_loss", "0.6", None)]),
    ("loss is tensor(nan, device='cuda:0', grad_fn=<NllLossBackward0>)", [("loss", "nan", None)]),
    ('{"epoch": 1, "loss": NaN, "step": 7}', [("loss", "NaN", 7)]),
    ("Step 7 | train loss = inf", [("train loss", "inf", 7)]),
    ("epoch 1 val: loss 0.7", [("val loss", "0.7", None)]),
    ("trainLoss=-2.3", [("trainLoss", "-2.3", None)]),
    ("loss 2.31.", [("loss", "2.31", None)]),
    ("Epoch 1 | iter 8 step 2 | loss train: 2.3, val: n/a | iter time: 300 ms", [("loss train", "2.3", 8)]),
    ("\t Train loss/train/total: nan", [("Train loss/train/total", "nan", None)]),
    ("Steps:  10%|# | 100/1000 [00:10<01:00, 1.2it/s, lr=0.0001, step_loss=2.3]", [("step_loss", "2.3", 100)]),
]
NO_LOSSES = [
    "loss: nanny", "saved loss=nan.png to /data/nan/x", "packet loss: 0%", "packet loss 100", "best_loss=inf",
    "val_loss improved from inf to 2.3", "loss_scale=65536", "loss scale: 65536.0", "lossless 5", "no gloss nandu",
    "OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 65536, reducing to 32768", "loss: 50%", "loss: None",
    "loss_time: 50.0", "loss_ms=500", "loss_std: nan", "loss/scale: 65536",
    "the loss function is 3", "WARNING:root:NaN or Inf found in input tensor.", "best validation loss: inf",
    "number of nan iterations:   7", "loss_weight: 3",
]  # fmt: skip


@pytest.mark.parametrize(("line", "told"), FORMS)
def test_a_loss_is_read_in_common_forms(line: str, told: Sequence[object]) -> None:
    assert [tuple(one) for one in read_line(line)] == told


@pytest.mark.parametrize("line", NO_LOSSES)
def test_what_only_looks_like_a_loss_is_none(line: str) -> None:
    assert read_line(line) == []


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobFolder:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    folder = JobFolder("20261128-090000-abcd")
    Path(folder.path, "ranks").mkdir(parents=True)
    return folder


def told_by(job: JobFolder, lines: Iterable[str], *, parts: int = 1, end: str = "\n") -> list[dict[str, Any]]:
    losses, data = Losses(job, 0), "".join(f"{line}{end}" for line in lines).encode()
    for part in range(parts):
        with Path(job.at("output.log")).open("ab") as file:
            file.write(data[len(data) * part // parts : len(data) * (part + 1) // parts])
        losses.look()
    return losses.events


def curve(count: int, *, noise: float = 0.03, seed: int = 1) -> list[float]:
    """Losses as of a training: falling quickly, then slowly, with noise."""
    chance = random.Random(seed)
    return [(2 + 8 * math.exp(-step / 30)) * chance.gauss(1, noise) for step in range(count)]


def steps(values: Sequence[float | str], first: int = 1) -> list[str]:
    return [
        f"step {first + at} loss {value if isinstance(value, str) else f'{value:.4f}'}"
        for at, value in enumerate(values)
    ]


@pytest.mark.parametrize("parts", [1, 7, 301])
def test_the_first_loss_that_is_no_number_has_its_step_and_line(job: JobFolder, parts: int) -> None:
    (event,) = told_by(job, ["begin", *steps([*curve(40), "nan", "nan", "nan"])], parts=parts)
    assert (event["kind"], event["step"], event["line"], event["value"], event["back"]) == ("nan", 41, 42, "nan", None)
    assert event["text"] == "step 41 loss nan"


def test_a_norm_that_is_no_number_counts_where_it_stays(job: JobFolder) -> None:
    lines = [f"{{'loss': 0.5, 'grad_norm': {norm}, 'epoch': 0.1}}" for norm in (2, "inf", "nan", "nan", "nan", 3)]
    assert told_by(job, lines) == []
    (event,) = told_by(job, ["{'loss': 0.0, 'grad_norm': nan, 'epoch': 0.2}"] * 5)
    assert (event["kind"], event["name"], event["line"], event["value"]) == ("nan", "grad_norm", 1, "nan")


def test_a_number_after_it_is_told_as_well(job: JobFolder) -> None:
    (event,) = told_by(job, steps([*curve(40), "inf", "inf", 2.2, 2.1]))
    assert (event["kind"], event["step"], event["back"]) == ("nan", 41, {"step": 43, "line": 43})


def test_the_output_of_a_real_trainer_is_read(job: JobFolder) -> None:
    """Recorded of transformers 5.24's Trainer, whose weights were made nan before step 31: stdout beside its bar."""
    good = "\r 50%|#####     | 30/60 [00:04<00:03,  8.08it/s]\r          \r{'loss': '4.857', 'grad_norm': '1.046'}"
    bad = "\r 52%|#####     | 31/60 [00:04<00:03,  7.81it/s]\r          \r{'loss': '0', 'grad_norm': 'nan'}"
    (event,) = told_by(job, [*[good] * 20, *[bad] * 9])
    assert (event["kind"], event["name"], event["line"], event["back"]) == ("nan", "grad_norm", 21, None)


def test_a_jump_is_told_with_its_height_and_its_end(job: JobFolder) -> None:
    (event,) = told_by(job, steps([*curve(200), 7.5, 9.1, 6.0, *curve(300)[200:]]))
    assert (event["kind"], event["step"], event["value"], event["peak"]) == ("spike", 201, "7.5000", 9.1)
    assert event["usual"] == pytest.approx(2.0, abs=0.1) and event["back"] == {"step": 204, "line": 204}


def test_a_loss_that_jumps_again_and_again_is_told_a_few_times(job: JobFolder) -> None:
    values = [30.0 if at and at % 100 == 0 else value for at, value in enumerate(curve(3000))]
    assert len(told_by(job, steps(values))) == 5


def test_a_jump_that_stays_says_so(job: JobFolder) -> None:
    (event,) = told_by(job, steps([*curve(200), *[8.0 + at % 3 for at in range(120)]]))
    assert (event["kind"], event["step"], event["back"], event["peak"]) == ("spike", 201, None, 10.0)


def _bars(count: int) -> list[str]:
    """A progress bar's states: each step several times, the next epoch from the beginning."""
    values = curve(2 * count)
    return [
        f" 1%|# | {at % count}/{count} [00:01<00:10, loss={values[at]:.3f}]"
        for at in range(2 * count)
        for _ in range(3)
    ]


def _train_and_val(count: int) -> list[str]:
    both = [(f"step {at} loss {value:.3f}", f"val: loss {3 * value:.3f}") for at, value in enumerate(curve(count))]
    return [line for at, lines in enumerate(both) for line in lines[: 1 + (at % 20 == 0)]]


def _gan(count: int) -> list[str]:
    chance = random.Random(3)
    return [f"d_loss: {chance.expovariate(3):.3f} g_loss: {chance.expovariate(0.3):.3f}" for _ in range(count)]


GOOD = {
    **{f"noisy_{seed}": steps(curve(2000, noise=0.1, seed=seed)) for seed in range(5)},
    "train_and_val": _train_and_val(300),
    "negative": steps([value - 12 for value in curve(500)]),
    "sign_changes": steps([value - 2 for value in curve(500)]),
    "rate_drops": steps([*curve(200), *[value - 1 for value in curve(400)[200:]]]),
    "warmup": steps([*[0.69 + 0.01 * (at % 3) for at in range(20)], *[0.69 + 0.01 * at for at in range(100)]]),
    "restart_from_a_checkpoint": [*steps(curve(200)), *steps(curve(400)[30:], first=30)],
    "zeros_first_as_of_grpo": steps([*["0.0"] * 30, *[f"{at * 1e-4:.4f}" for at in range(1, 60)]]),
    "a_mean_over_nothing_first": steps(["nan", *curve(50)]),
    "converged_with_heavy_tails": steps([0.001 * math.exp(2 * random.Random(at).gauss(0, 1)) for at in range(60)]),
    "gan": _gan(2000),
    "heavy_tails": steps([math.exp(random.Random(at).gauss(0, 1)) for at in range(5000)]),
    "exponential": steps([random.Random(at).expovariate(1) for at in range(2000)]),
    "uniform": steps([random.Random(at).random() for at in range(2000)]),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(GOOD))
def test_a_training_in_good_health_is_not_accused(job: JobFolder, name: str) -> None:
    assert told_by(job, GOOD[name], parts=5) == []


def test_a_progress_bar_counts_each_step_once(job: JobFolder) -> None:
    assert told_by(job, _bars(40), end="\r", parts=9) == []
    (event,) = told_by(job, [*_bars(40), " 1%|# | 7/40 [00:01<00:10, loss=nan]", "done"], end="\r")
    assert (event["kind"], event["step"], event["line"]) == ("nan", 7, 1)


def test_every_rank_has_its_own_and_old_attempts_do_not_count(job: JobFolder) -> None:
    folder = Path(job.at("ranks", "x", "attempt_0"))
    for rank in (0, 1):
        Path(folder, str(rank)).mkdir(parents=True)
        Path(folder, str(rank), "stdout.log").write_text("step 1 loss nan\n")
    Path(folder, "only-copy").touch()
    losses = Losses(job, 8)
    for rank in (0, 1):
        with (folder / str(rank) / "stdout.log").open("a") as file:
            file.write(f"step 2 loss 0.5\nstep 3 loss {('0.4', 'nan')[rank]}\n")
    losses.look()
    assert [(event["rank"], event["step"]) for event in losses.events] == [(9, 3)]
    assert (losses.last_bad(0), losses.last_bad(1)) == ("", "loss nan")


def test_a_line_is_told_without_its_secrets(job: JobFolder) -> None:
    (event,) = told_by(job, ["step 3 loss nan, saved with password=hunter2secret"])
    assert event["text"] == "step 3 loss nan, saved with password=***"


def test_a_flood_and_damaged_output_cost_little(job: JobFolder) -> None:
    losses = Losses(job, 0)
    with Path(job.at("output.log")).open("wb") as file:
        file.write(b"loss" * 100_000 + b"\nloss=\xff\xfe\0nan\n" + b"x loss: 1.0\n" * 200_000 + b"loss: nan\n")
    losses.look()
    assert [(event["kind"], event["line"]) for event in losses.events] == [("nan", None)]
