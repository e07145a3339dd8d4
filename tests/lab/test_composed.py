"""Hosts that are dressed in GPUs of the catalogue, which nobody recorded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nodectl.errors import ProfileError
from nodectl.facts.catalogue import read_facts
from nodectl.facts.gpus import Gpus
from nodectl.lab.composed import fleet_of
from nodectl.lab.dress import RECORDED, wardrobe_for
from nodectl.lab.nvml import STATE, programs
from nodectl.recordings.folder import read_host


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("4 x rtx4090", ["NVIDIA GeForce RTX 4090"] * 4),
        ("1 x v100-sxm2-32gb", ["Tesla V100-SXM2-32GB"]),
        ("2 x a5000 + 1 x rtx3090", ["NVIDIA RTX A5000"] * 2 + ["NVIDIA GeForce RTX 3090"]),
    ],
)
def test_a_short_form_dresses_a_host_and_says_that_it_is_composed(tmp_path: Path, text: str, names: list[str]) -> None:
    fleet = fleet_of(text, tmp_path)
    wardrobe = wardrobe_for(fleet, ("node01", "node02"))
    assert "composed" in wardrobe.name and wardrobe.profiles["node02"]["hardware"] == text
    assert wardrobe.profiles["node02"]["stack"] == ("none" if "v100" in text else "cu128")
    facts = read_facts(read_host(fleet.hosts["node01"], "node01", fleet.name))
    gpus = facts["gpus"]
    assert isinstance(gpus, Gpus) and [gpu.name for gpu in gpus.devices] == names


@pytest.mark.skipif(not programs(), reason="no real nvidia-smi: run `make nvidia-smi`")
def test_a_composed_host_has_the_real_nvidia_smi_and_a_state_of_its_own(tmp_path: Path) -> None:
    outfits = wardrobe_for(fleet_of("2 x h200", tmp_path), ("node01", "node02")).outfits
    files = {name: outfit.files() for name, outfit in outfits.items()}
    for each in files.values():
        assert each["usr/local/bin/nvidia-smi"][0].startswith(b"\x7fELF")
        assert not [path for path in each if path.startswith(f"{RECORDED}/nvidia-smi")]
    uuids, serials = (
        [set(re.findall(rf"(?m)^\d {key} (.*)$", each[STATE][0].decode())) for each in files.values()]
        for key in ("UUID", "Serial")
    )
    assert len(uuids[0] | uuids[1]) == len(serials[0] | serials[1]) == 4


def test_what_no_catalogue_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="no GPU is called"):
        fleet_of("4 x nosuch", tmp_path)
    with pytest.raises(ProfileError, match="at most 64 GPUs"):
        fleet_of("65 x t4", tmp_path)
