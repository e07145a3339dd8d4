"""WSL2's nvidia-smi lies where no PATH of a command over SSH leads: the collector finds it, and so preflight."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.conftest import Cli, LabUnderTest

pytestmark = [pytest.mark.lab, pytest.mark.slow]
_FOLDER = "/usr/lib/wsl"
_SMI = """#!/bin/sh
case $1 in
-L) printf 'GPU 0: NVIDIA GeForce RTX 4090 (UUID: GPU-1)\\nGPU 1: NVIDIA GeForce RTX 4090 (UUID: GPU-2)\\n' ;;
*) echo found where WSL2 has it ;;
esac
"""


def test_nvidia_smi_of_wsl2_is_found(nodectl: Cli, lab4: LabUnderTest, tmp_path: Path) -> None:
    (host, *_) = lab4.hosts
    words = ("-i", lab4.inventory, "-l", host)
    asked = "launch -e launcher_path=/bin/true --chdir /etc --skip venv --dry-run --output json hostname"
    plan = asked.split()
    ranks = [json.loads(nodectl(*words, *plan).stdout)["plan"]["nproc_per_node"]]
    smi = f"{_FOLDER}/lib/nvidia-smi"
    lab4.ssh(host, f"mkdir -p {_FOLDER}/lib; printf %s {shlex.quote(_SMI)} > {smi}; chmod 755 {smi}")
    try:
        nodectl(*words, "record", str(tmp_path / "taken"))
        ranks.append(json.loads(nodectl(*words, *plan).stdout)["plan"]["nproc_per_node"])
    finally:
        lab4.ssh(host, f"rm -r {_FOLDER}")
    assert any("found where WSL2" in path.read_text(errors="replace") for path in tmp_path.rglob("*nvidia-smi*"))
    assert ranks == [1, 2]
