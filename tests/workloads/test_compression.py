"""Two ranks over gloo: compression (what is sent, what it does to the loss, what a resume keeps), a dynamic batch."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nodectl import workloads
from tests.torch_venv import torch_venv

pytestmark = pytest.mark.slow

_RANKS = Path(__file__).with_name("compression_ranks.py")
_LOSSY = ("powersgd", "topk")
_KINDS = ("fp16", "bf16", *_LOSSY)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the ranks found; root has them in a network of their own, where no other test's bytes are counted."""
    meeting = tmp_path_factory.mktemp("compression") / "meeting"
    command = [f"{torch_venv()}/bin/python", str(_RANKS), str(meeting)]
    if os.geteuid() == 0:
        command = ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', sys.argv[0], *command]
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": next(iter(workloads.__path__)),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


@pytest.mark.parametrize("kind", _KINDS)
def test_less_is_sent_and_the_loss_still_falls(told: dict[str, Any], kind: str) -> None:
    course, plain = told[kind], told["plain"]
    assert course["first"] == plain["first"] and course["last"] < 2 * plain["last"] < 0.5 * course["first"]
    assert course["ratio"] == pytest.approx(course["plain_bytes_per_step"] / course["bytes_per_step"], rel=1e-3)
    # three weights of 256 x 256 with their biases, in 4 bytes; each of two ranks sends all of it once
    assert course["plain_bytes_per_step"] == 4 * 3 * (256 * 256 + 256)
    assert course["kind"] == kind and course["error_feedback"] is (kind in _LOSSY)
    if kind in ("fp16", "bf16"):
        assert course["ratio"] == 2 and abs(course["last"] / plain["last"] - 1) < 0.01
    else:
        assert course["ratio"] > 5


@pytest.mark.skipif(os.geteuid() != 0, reason="a network of its own, where bytes can be counted, needs root")
@pytest.mark.parametrize("kind", _KINDS)
def test_the_device_sends_what_is_counted(told: dict[str, Any], kind: str) -> None:
    course = told[kind]
    # headers and acknowledgements come on top, and the collectives that train() needs itself
    assert course["bytes_per_step"] < course["wire_per_step"] < 1.05 * course["bytes_per_step"] + 12_000
    assert told["plain"]["wire_per_step"] > course["plain_bytes_per_step"]


def test_top_k_gets_there_with_feedback_and_nowhere_without(told: dict[str, Any]) -> None:
    assert told["far"]["with"] < 0.2 and told["far"]["without"] == 3


@pytest.mark.parametrize(
    ("case", "rule"),
    [
        ("fp16", "its loss scale changes"),
        ("ranks", "must be below 1/32"),
        ("ratio", "between 0 and 1"),
    ],
)
def test_what_cannot_be_is_refused_with_the_rule(told: dict[str, Any], case: str, rule: str) -> None:
    assert rule in told["refused"][case] and told["refused"]["none"] == ""


def test_the_options_reach_the_training_and_its_checkpoint(told: dict[str, Any]) -> None:
    plain, topk = told["plain goes on"], told["goes on"]
    assert plain["same"] is True and plain["kind"] == "none" and plain["ratio"] == 1
    assert topk["same"] is True and topk["kind"] == "topk" and topk["ratio"] > 4
    assert told["powersgd goes on"]["same"] is True
    # gradients of two passes met once: a training of the same model sends as much a step
    assert topk["plain_bytes_per_step"] == plain["plain_bytes_per_step"] > topk["bytes_per_step"]


def test_ranks_agree_on_the_batch_by_the_mean_of_what_they_say(told: dict[str, Any]) -> None:
    dynamic = told["dynamic"]
    assert dynamic["sizes"] == [4, 8] and dynamic["said"][:2] == ["", ""]
    assert dynamic["said"][2].startswith("batch 4 -> 8 a rank: 115.0 samples/s on average of the last 2, 100.0 before")
    assert dynamic["lr"] == pytest.approx(0.02)


def test_a_changed_batch_is_resumed_and_ends_where_the_samples_do(told: dict[str, Any]) -> None:
    dynamic = told["dynamic"]
    assert (dynamic["restored"], dynamic["readings"]) == (8, [100, 100, 130])
    # 16 of the first epoch's 32 samples a rank are left, then 32
    assert dynamic["left"] == [8] * 6 and dynamic["before"] == 16 and dynamic["total"] == 3 + 6


def test_held_out_samples_are_not_trained_on_and_their_loss_is_shared(told: dict[str, Any]) -> None:
    held_out = told["held out"]
    assert held_out["shared"] == pytest.approx(held_out["alone"], rel=1e-5)
    assert held_out["last"] in (53, 54) and held_out["without"] == {}
    # the shares are 5 and 4 samples in batches of 4: a rank that asked once less would leave the other waiting
    assert held_out["asked"] == [2, 2]
