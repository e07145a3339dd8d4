"""How a running job does: what its output tells, rates between two looks, and what is called a stall."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodectl.errors import UsageError
from nodectl.jobs.pulse import check_pattern, compared, read_pulse, stalls
from nodectl.model.job import Gpus, Pulse
from nodectl.payload.jobs.pulse import gpu_rows, progress


@pytest.mark.parametrize(
    ("line", "step", "total"),
    [
        ("[0] epoch 1 step 120/1000 loss 0.031250 step 4.2 ms, 950 samples/s", 120, 1000),
        ("Iteration: 7 of 90, lr 1e-3, loss: 2.5e-01", 7, 90),
        ("{'loss': 1.5, 'step': 3}", 3, None),
        ("  5%|#    | 51/1020 [00:10<03:10,  5.1it/s, loss=nan]", 51, 1020),
        ("two steps back, one step forward", None, None),
    ],
)
def test_a_step_is_seen_in_common_forms(line: str, step: int | None, total: int | None) -> None:
    told = progress(f"step 1/1000\n{line}\nsaved it\n" if step else line)
    assert told == {"step": step, "total": total}


def test_an_own_pattern_goes_before_the_common_ones() -> None:
    told = progress("step 9/10\nbatch 1,024 <0.5>\n", r"batch (?P<step>[\d,]+) <.*>")
    assert told == {"step": 1024, "total": None}
    for wrong in ("batch (\\d+)", "(?P<step>"):
        with pytest.raises(UsageError, match="--pattern"):
            check_pattern(wrong)


def row(**more: Any) -> dict[str, Any]:
    given = {
        "state": "running", "attempt": 1, "alive": True, "step": 10, "total": 100, "output_age_s": 1.0,
        "network": {"in_bytes": 1000, "out_bytes": 2000}, "rdma": None, "gpus": [], "time_s": 50.0,
    }  # fmt: skip
    return {**given, **more}


def gpus(use: float, power_w: float) -> list[dict[str, float | None]]:
    return gpu_rows(f"0, {use}, {power_w}, 700.00, 1024, 81559\n1, {use}, [N/A], 700.00, 1024, 81559\n")


def test_rates_are_from_one_look_to_the_next_and_not_over_a_restart() -> None:
    first = read_pulse("node01", row())
    later = row(step=30, time_s=60.0, network={"in_bytes": 6000, "out_bytes": 2000})
    second = compared(first, read_pulse("node01", later))
    assert (second.steps_per_s, second.in_bytes_s, second.out_bytes_s) == (2.0, 500.0, 0.0)
    assert compared(first, read_pulse("node01", {**later, "attempt": 2})).steps_per_s is None


def test_a_lost_gpu_is_named() -> None:
    text = "0, 90, 600.00, 700.00, 1024, 81559\n3, " + ", ".join(["[GPU is lost]"] * 5) + "\n"
    pulse = read_pulse("node01", row(gpus=gpu_rows(text)))
    assert pulse.gpus is not None and (pulse.gpus.count, pulse.gpus.lost) == (1, (3,))
    assert stalls([pulse], quiet_s=1e9, waits_s=1e9)[0].startswith("node01: GPU 3 is lost: ")


def test_gpus_that_are_in_use_and_draw_little_wait() -> None:
    assert read_pulse("node01", row(gpus=gpus(100, 600))).gpus == Gpus(2, 100.0, 600.0, 1400.0)
    looks = [read_pulse("node01", row(gpus=gpus(100, 110), time_s=50.0 + 10 * number)) for number in range(4)]
    seen = looks[0]
    for look in looks[1:]:
        seen = compared(seen, look)
    assert seen.waits_s == 30.0
    (said,) = stalls([seen], quiet_s=300, waits_s=20)
    assert said == "node01: GPUs in use without power for 30 s, 110 of 1400 W: they wait, as in a collective"
    goes_on = compared(seen, read_pulse("node01", row(gpus=gpus(100, 110), time_s=90.0, step=11)))
    assert (goes_on.waits_s, stalls([goes_on], quiet_s=300, waits_s=20)) == (0.0, [])


def test_silence_of_all_hosts_is_a_stall_and_that_of_one_is_none() -> None:
    quiet = Pulse("node01", "running", output_age_s=400.0)
    assert stalls([quiet, replace(quiet, host="node02")], quiet_s=300, waits_s=20) == [
        "no output on any host for 400 s: it may hang"
    ]
    assert stalls([quiet, replace(quiet, host="node02", output_age_s=2.0)], quiet_s=300, waits_s=20) == []
    assert stalls([replace(quiet, state="resting")], quiet_s=300, waits_s=20) == []
