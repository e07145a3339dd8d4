"""Hostfiles, and what the profiles of an inventory put into an export."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodectl.errors import UsageError
from nodectl.jobs.export import Node, hostfile
from tests.conftest import Cli


@pytest.mark.parametrize(
    ("form", "lines"),
    [
        ("deepspeed", ["10.0.0.1 slots=8", "gpu02 slots=4"]),
        ("openmpi", ["10.0.0.1 slots=8", "gpu02 slots=4"]),
        ("mpich", ["10.0.0.1:8", "gpu02:4"]),
        (
            "torchrun",
            [
                f"torchrun --nnodes 2 --node-rank {rank} --nproc-per-node {slots} --master-addr 10.0.0.1"
                f" --master-port 29500  # on {host}"
                for rank, slots, host in ((0, 8, "10.0.0.1"), (1, 4, "gpu02"))
            ],
        ),
    ],
)
def test_hostfiles(form: str, lines: list[str]) -> None:
    first, *rest = hostfile([Node("10.0.0.1", 8), Node("gpu02", 4)], form).splitlines()
    assert first.startswith("# Written by nodectl") and rest == lines
    for address in ("a b", "a#b", "a\nb slots=9", "", "-x", "a\x07", "a;b"):
        with pytest.raises(UsageError):
            hostfile([Node(address, 1)], form)


INVENTORY = """\
all:
  hosts:
    gpu[1:2]: {}
  vars:
    nodectl_hardware: dgx-a100
    nodectl_stack: cu128
    nodectl_tuning: ib-100g
"""


def test_an_export_holds_what_the_profiles_say(nodectl: Cli, tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(INVENTORY + '    nodectl_nccl_env: {NCCL_SOCKET_IFNAME: "=ib0", NCCL_SOCKET_NTHREADS: 4}\n')
    own = ("-i", str(inventory), "export")
    script = nodectl(*own, "sbatch", "--nodes", "4", "train.py").stdout
    assert "#SBATCH --gpus-per-node=8\n" in script and "ranks=8 " in script
    assert "[[ -v NCCL_SOCKET_NTHREADS ]] || export NCCL_SOCKET_NTHREADS=4\n" in script
    assert "[[ -v NCCL_SOCKET_IFNAME ]] || export NCCL_SOCKET_IFNAME==ib0\n" in script
    assert nodectl(*own, "hostfile").stdout.splitlines()[1:] == ["gpu1 slots=8", "gpu2 slots=8"]
    assert "\nprogram=(./-dash.py --x )\n" in nodectl(*own, "sbatch", "--", "-dash.py", "--x").stdout
    odd = nodectl(*own, "sbatch", "--interface", "a b", "t.py", check=False)
    assert (odd.returncode, "no name of an interface" in odd.stderr) == (2, True)
