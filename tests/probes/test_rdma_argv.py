"""perftest's command lines: as they are written, and as they are read."""

from __future__ import annotations

import shlex

import pytest

from nodectl.probes.rdma.argv import End, Size, command, given, is_server


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


@pytest.mark.parametrize(
    ("line", "server"),
    [
        ("ib_write_bw", True),
        ("ib_write_bw -d rxe0 -p 18999", True),
        ("timeout -s KILL 8 ib_write_bw -d rxe0 -D 20", True),
        ("timeout 40 ib_write_bw -d rxe0 -D 30 10.99.0.11", False),
        ("ib_write_bw -F -a -b -R 10.99.0.11", False),
        ("ib_write_bw --report_gbits --out_json_file=/tmp/x.json", True),
        ("ib_write_lat -d rxe0 -n 20 -H 10.99.0.11", False),
        ("ib_write_bw -drxe0 -n50", True),
    ],
)
def test_who_names_no_host_is_the_server(line: str, server: bool) -> None:
    assert is_server(line.split()) is server


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("ib_write_bw -n 50", "50"),
        ("ib_write_bw -n50", "50"),
        ("ib_write_bw --iters=50", "50"),
        ("ib_write_bw -N", None),
        ("ib_write_bw -n", ""),
    ],
)
def test_an_option_in_each_form(line: str, value: str | None) -> None:
    assert given(line.split(), "-n", "--iters") == value
