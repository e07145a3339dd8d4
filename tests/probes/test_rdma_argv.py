"""perftest's command lines."""

from __future__ import annotations

import shlex

import pytest

from nodectl.probes.rdma.argv import End, Size, command


@pytest.mark.parametrize(
    ("operation", "end", "size", "written"),
    [
        ("write", End("mlx5_0", 1), Size(8 << 20, seconds=2),
         "ib_write_bw -d mlx5_0 -i 1 -s 8388608 -F -D 2 --report_gbits"),
        ("write", End("mlx5_0", 1, gpu=0), Size(4096, seconds=1),
         "ib_write_bw -d mlx5_0 -i 1 -s 4096 -F -D 1 --report_gbits --use_cuda=0"),
    ],
)  # fmt: skip
def test_what_an_end_is_told(operation: str, end: End, size: Size, written: str) -> None:
    assert shlex.join(command(operation, end, size)) == written
