"""Who is tried against whom, and what is refused before any host is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodectl.errors import ProfileError, UsageError
from nodectl.model.host import Host
from nodectl.trials.sides import nccl_environment, refuse_impossible, refuse_not_live, sides_of

VARIABLES = {"nodectl_hardware": "lab-cpu", "nodectl_stack": "cpu", "nodectl_tuning": "stock"}


def host(name: str = "a", **more: object) -> Host:
    return Host(name, "192.0.2.1", 22, "root", variables={**VARIABLES, **more})


@pytest.mark.parametrize(
    ("names", "baseline", "candidates"),
    [
        ("stock,article-20g", "stock", ["article-20g"]),
        ("stock,article-20g,roce", "stock", ["article-20g", "roce"]),
        ("article-20g,stock,stock", "article-20g", ["stock"]),
        # a profile against itself
        ("stock,stock", "stock", ["stock"]),
        (" stock , roce ", "stock", ["roce"]),
        ("own,roce", "own", ["roce"]),
    ],
)
def test_the_first_is_the_baseline(names: str, baseline: str, candidates: list[str]) -> None:
    assert sides_of(names.split(",")) == (baseline, tuple(candidates))


@pytest.mark.parametrize("names", ["", "stock", " , ", "stock,own"])
def test_a_trial_needs_a_baseline_and_a_candidate(names: str) -> None:
    with pytest.raises(UsageError):
        sides_of(names.split(","))


def test_what_a_host_cannot_have(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="nosuch on a: there is no tuning profile 'nosuch'"):
        refuse_impossible("nosuch", [host()], ())
    (tmp_path / "tuning").mkdir()
    (tmp_path / "tuning" / "mine.yml").write_text(
        "description: mine\nnccl:\n  NCCL_ALGO: {value: Ring, why: because}\n"
    )
    with pytest.raises(ProfileError, match="allow_debug_variables"):
        refuse_impossible("mine", [host()], [tmp_path])


def tuning(folder: Path, name: str, text: str) -> None:
    (folder / "tuning").mkdir(exist_ok=True)
    (folder / "tuning" / f"{name}.yml").write_text(f"description: {name}\n{text}")


@pytest.mark.parametrize("setting", ["ecc: {value: true", "mig: {value: false"])
def test_what_only_a_reset_or_a_reboot_changes_is_no_candidate(tmp_path: Path, setting: str) -> None:
    tuning(tmp_path, "mine", f"gpu:\n  {setting}, why: because}}\n")
    with pytest.raises(UsageError, match="needs a reset or a reboot; a trial sets live values only"):
        refuse_not_live("stock", ["mine"], [host()], [tmp_path])
    # both sides have it: nothing changes between them
    refuse_not_live("mine", ["mine"], [host()], [tmp_path])


def test_nccl_gets_the_sides_variables_and_defaults_for_numbers_that_only_the_file_sets(tmp_path: Path) -> None:
    filed = "nccl:\n  NCCL_IB_TIMEOUT: {value: 22, why: a}\n  NCCL_SOCKET_NTHREADS: {value: 4, why: a}\n"
    tuning(tmp_path, "filed", filed)
    tuning(tmp_path, "mine", "nccl:\n  NCCL_IB_TIMEOUT: {value: 20, why: because}\n")
    provisioned = host(nodectl_tuning="filed")
    assert nccl_environment("mine", provisioned, [tmp_path]) == {"NCCL_IB_TIMEOUT": "20", "NCCL_SOCKET_NTHREADS": ""}
    refuse_not_live("own", ["mine"], [provisioned], [tmp_path])
    tuning(tmp_path, "words", "nccl:\n  NCCL_CROSS_NIC: {value: 1, why: a}\n  NCCL_NET: {value: Socket, why: a}\n")
    provisioned = host(nodectl_tuning="words")
    with pytest.raises(UsageError, match="conf sets NCCL_NET, which a measurement cannot unset"):
        refuse_not_live("own", ["mine"], [provisioned], [tmp_path])
