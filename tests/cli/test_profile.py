"""`nodectl profile` as an operator runs it."""

import json
from pathlib import Path
from typing import Any

import pytest

from nodectl.profiles import KINDS
from nodectl.profiles.load import find_profiles
from tests.conftest import Cli


def answer(nodectl: Cli, *args: str, check: bool = True) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(nodectl("profile", *args, "--output", "json", check=check).stdout)
    return found


def test_list_shows_every_profile_and_marks_those_that_warn(nodectl: Cli) -> None:
    done = nodectl("profile", "list")
    lines = {tuple(line.split()[:2]): line for line in done.stdout.splitlines()}
    assert set(lines) == {(kind, name) for kind in KINDS for name in find_profiles(kind)}
    assert " ! " in lines["tuning", "article-20g"] and " ! " in lines["stack", "cu116"]
    assert " ! " not in lines["stack", "cu121"] and "! warns" in done.stderr


def test_show_says_value_why_source_and_origin(nodectl: Cli) -> None:
    values = answer(nodectl, "show", "article-20g")["values"]
    row = values["nccl.NCCL_ALGO"]
    assert row["value"] == "Tree (NCCL < 2.24) | ring,tree;allreduce:tree"
    assert "bare Tree" in row["why"] and "article 002" in row["source"] and row["origin"] == "tuning article-20g"


def test_validate_ends_with_1_the_reason_and_the_nearest_choice(nodectl: Cli) -> None:
    done = nodectl("profile", "validate", "--hardware", "h100-pcie-8", "--stack", "cu116", check=False)
    assert done.returncode == 1 and not done.stdout
    assert "needs CUDA 11.8, and the stack brings 11.6; nearest working choice: stack cu118 (source: " in done.stderr
    again = nodectl("profile", "validate", "--hardware", "h100-pcie-8", "--stack", "cu118")
    assert "can work together" in again.stdout


@pytest.mark.parametrize("variable", ["NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "NCCL_IB_GID_INDEX"])
def test_a_profile_may_not_hold_the_names_of_one_host(nodectl: Cli, tmp_path: Path, variable: str) -> None:
    folder = tmp_path / "profiles" / "tuning"
    folder.mkdir(parents=True)
    (folder / "mine.yml").write_text(f"description: x\nnccl: {{{variable}: {{value: 'mlx5_0', why: x}}}}\n")
    (tmp_path / "hosts.yml").write_text("all: {hosts: {a: {}}}\n")
    done = nodectl("-i", str(tmp_path / "hosts.yml"), "profile", "show", "mine", check=False)
    assert done.returncode == 2 and variable in done.stderr and "nodectl_nccl_env" in done.stderr


T4S = """\
description: "4 x T4, our own"
gpus: 4
gpu: {model: "Tesla T4", compute_capability: "7.5", memory_gb: 16}
floors:
  - {probe: tcp, conditions: {streams: 4}, value: 20, unit: Gbit/s, source: "our racks"}
sources: {gpu: "NVIDIA T4 datasheet"}
"""


def test_a_floor_of_ones_own_that_could_never_be_compared_is_refused(nodectl: Cli, tmp_path: Path) -> None:
    own = tmp_path / "profiles" / "hardware" / "t4s.yml"
    own.parent.mkdir(parents=True)
    (tmp_path / "hosts").write_text("gpu01\n")
    given = ("-i", str(tmp_path / "hosts"), "profile", "validate", "--hardware", "t4s", "--stack", "cu121")
    own.write_text(T4S)
    assert "can work together" in nodectl(*given).stdout
    own.write_text(T4S.replace("Gbit/s", "GB/s"))
    done = nodectl(*given, check=False)
    assert done.returncode == 2 and f"{own}: floors.0.unit: tcp measures in Gbit/s" in done.stderr
