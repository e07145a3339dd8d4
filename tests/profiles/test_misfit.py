"""Profiles that are another machine's: refused on the host with those that fit, unless they are meant."""

from collections.abc import Sequence
from typing import Any

import pytest

from nodectl.profiles.compat import IncompatibleError
from nodectl.profiles.host import of_variables
from nodectl.profiles.host_compat import HostLook
from nodectl.profiles.resolve import Resolved

RTX4090, A100, H100, T1000 = "0x2684", "0x20b2", "0x2330", "0x1fb0"


def judged(hardware: str, stack: str, gpus: Sequence[str], *, nvswitch: bool = False, **variables: Any) -> Resolved:
    node = {
        "os": {"id": "ubuntu", "version": "22.04", "key": "ubuntu-22.04"},
        "architecture": "x86_64",
        "gpus": [{"address": f"0000:{number:02x}:00.0", "device": device} for number, device in enumerate(gpus)],
        "nvswitch": nvswitch,
        "driver": {"version": None, "origin": "none"},
    }
    names = {"nodectl_hardware": hardware, "nodectl_stack": stack}
    return of_variables({**names, **variables}, look=HostLook.create(node))


@pytest.mark.parametrize(
    ("hardware", "stack", "gpus", "nvswitch", "codes", "fits"),
    [
        ("rtx4090-3", "cpu", [RTX4090] * 3, False, ["gpus-without-cuda"], "hardware rtx4090-3 with stack cu"),
        ("lab-cpu", "cpu", [RTX4090] * 3, False, ["gpu-count", "gpus-idle"], "hardware rtx4090-3 with stack cu"),
        ("unknown", "cpu", [RTX4090] * 3, False, ["gpus-idle"], "hardware rtx4090-3 with stack cu"),
        ("lab-cpu", "none", [RTX4090] * 3, False, ["gpu-count"], "hardware rtx4090-3 with stack cu"),
        ("h100-pcie-8", "cu128", [RTX4090] * 3, False, ["gpu-count", "gpu-model"], "hardware rtx4090-3"),
        ("rtx4090-3", "cu128", [RTX4090] * 8, False, ["gpu-count"], "hardware auto with stack cu"),
        ("dgx-a100", "cu128", [A100] * 4, True, ["gpu-count"], "hardware auto with stack cu"),
        ("h200-8", "cu128", [H100] * 8, True, ["gpu-model"], "hardware h100-8"),
    ],
)
def test_profiles_of_another_machine_are_refused_with_those_that_fit(
    hardware: str, stack: str, gpus: Sequence[str], nvswitch: bool, codes: Sequence[str], fits: str
) -> None:
    refused = judged(hardware, stack, gpus, nvswitch=nvswitch).refusals
    assert [problem.code for problem in refused] == codes
    for problem in refused:
        assert fits in problem.nearest and problem.nearest.endswith("; or, where it is meant, nodectl_misfit: allow")
    meant = judged(hardware, stack, gpus, nvswitch=nvswitch, nodectl_misfit="allow")
    assert meant.refusals == ()
    assert sum(text.startswith("allowed by nodectl_misfit: ") for text in meant.warnings) == len(codes)


@pytest.mark.parametrize(
    ("hardware", "gpus", "nvswitch"),
    [
        ("dgx-a100", [A100] * 7, True),
        ("dgx-a100", [*[A100] * 8, T1000], True),
        ("rtx4090-3", [*[RTX4090] * 3, T1000], False),
        ("rtx4090-3", [], False),
        ("rtx4090-3", [RTX4090] * 3, False),
    ],
)
def test_a_lost_gpu_and_a_card_for_the_screen_are_no_other_machine(
    hardware: str, gpus: Sequence[str], nvswitch: bool
) -> None:
    assert judged(hardware, "cu128", gpus, nvswitch=nvswitch).refusals == ()


def test_what_is_meant_stays_refused_where_it_cannot_work() -> None:
    with pytest.raises(IncompatibleError, match=r"needs CUDA 11\.8"):
        judged("h100-pcie-8", "cu116", [RTX4090] * 3, nodectl_misfit="allow")
