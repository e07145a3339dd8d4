"""nccl-tests of all ages: every column, what is refused, torn rows put together again."""

from __future__ import annotations

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.nccl.nccl_tests import NcclTestsRank, NcclTestsRow, NcclTestsSide, parse_nccl_tests
from tests.facts.parsers.tool_outputs import tool_output

HEADER = "#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\n"
ROW = "1024 256 float sum -1 37.89 0.03 0.05 0 35.31 0.04 0.06 0\n"
SUMMARY = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 21.07 \n"


def side(
    time: float, algbw: float, busbw: float, wrong: int | None = None, error: float | None = None
) -> NcclTestsSide:
    return NcclTestsSide(time, algbw, busbw, wrong, error, {})


def test_every_value_of_a_new_run() -> None:
    run = parse_nccl_tests(tool_output("nccl-tests", "new.txt"))
    assert run.collective == "all_reduce"
    assert run.ranks == (
        NcclTestsRank(0, "node-a", 0, "NVIDIA H100 80GB HBM3", 41001, 0, "0000:17:00"),
        NcclTestsRank(1, "node-b", 3, "NVIDIA H100 80GB HBM3", 52002, 0, "0000:b1:00"),
    )
    assert run.rows == (
        NcclTestsRow(8, 2, "float", "sum", -1, side(21.30, 0.01, 0.02, 0), side(19.41, 0.03, 0.04, 0)),
        NcclTestsRow(1048576, 262144, "float", "sum", -1, side(75.16, 13.95, 24.41, 0), side(74.92, 14.10, 24.63, 0)),
    )
    assert (run.out_of_bounds, run.average_busbw_gb_s, run.ok, run.failures) == (0, 12.275, True, ())


def test_an_old_run_under_mpirun_has_errors_and_no_count_of_wrong_values() -> None:
    run = parse_nccl_tests(tool_output("nccl-tests", "old-tagged.txt"))
    assert run.ranks[1] == NcclTestsRank(1, "gpu-old", 1, "Tesla V100-SXM2-16GB", 2201, None, "0x1c")
    first, second = run.rows
    assert first.out_of_place == side(33.10, 0.11, 0.12, error=2e-07)
    assert first.in_place == side(34.20, 0.13, 0.14, error=3e-07)
    assert second.out_of_place == NcclTestsSide(35.30, 0.15, 0.16, None, None, {"max_error": "N/A"})
    assert (first.redop, first.root, run.collective, run.average_busbw_gb_s, run.ok) == ("sum", None, None, 0.15, True)


@pytest.mark.parametrize(
    ("middle", "redop", "root"), [("sum -1", "sum", -1), ("sum", "sum", None), ("", None, None), ("max 7", "max", 7)]
)
def test_operation_and_root_are_what_the_program_prints(middle: str, redop: str | None, root: int | None) -> None:
    header = HEADER if root is not None else HEADER.replace("root", "")
    (row,) = parse_nccl_tests(f"{header}1024 256 bfloat16 {middle} 1.5 2.5 3.5 4 5.5 6.5 7.5 8\n").rows
    assert (row.type, row.redop, row.root) == ("bfloat16", redop, root)
    assert (row.out_of_place, row.in_place) == (side(1.5, 2.5, 3.5, 4), side(5.5, 6.5, 7.5, 8))


@pytest.mark.parametrize(
    ("header", "row", "wrong", "error"),
    [
        ("#wrong", "0", 0, None),
        ("wrong", "17", 17, None),
        ("error", "2e-07", None, 2e-07),
        (None, "0", 0, None),
        (None, "2e-07", None, 2e-07),
    ],
)
def test_wrong_values_are_no_errors(header: str | None, row: str, wrong: int | None, error: float | None) -> None:
    head = HEADER.replace("#wrong", header) if header else ""
    (found,) = parse_nccl_tests(f"{head}8 2 float sum -1 1.0 2.0 3.0 {row} 4.0 5.0 6.0 {row}\n").rows
    assert found.out_of_place == side(1, 2, 3, wrong, error)


def test_values_that_are_none() -> None:
    (row,) = parse_nccl_tests(f"{HEADER}0 0 float sum -1 0.30 -nan inf N/A 0.26 0.00 0.00 N/A\n").rows
    refused = {"algbw_gb_s": "-nan", "busbw_gb_s": "inf", "wrong": "N/A"}
    assert row.out_of_place == NcclTestsSide(0.30, None, None, None, None, refused)
    run = parse_nccl_tests(HEADER + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : -nan\n")
    assert (run.average_busbw_gb_s, run.unavailable) == (None, {"average_busbw_gb_s": "-nan"})


@pytest.mark.parametrize(
    ("end", "ok", "bounds", "average"),
    [
        (SUMMARY, True, 0, 21.07),
        (SUMMARY.replace("0 OK", "4 FAILED"), False, 4, 21.07),
        ("# Out of bounds values : 0 OK\n", True, 0, None),
        ("", None, None, None),
        ("node-a: Test NCCL failure common.cu:1005 'unhandled system error'\n", False, None, None),
        ("mpirun noticed that process rank 3 with PID 0 on node b exited on signal 9 (Killed).\n", False, None, None),
    ],
)
def test_how_a_run_ended(end: str, ok: bool | None, bounds: int | None, average: float | None) -> None:
    run = parse_nccl_tests(HEADER + ROW + end)
    assert (run.ok, run.out_of_bounds, run.average_busbw_gb_s) == (ok, bounds, average)
    assert len(run.rows) == 1


def test_wrong_values_are_a_failure_even_where_the_summary_is_cut_off() -> None:
    assert parse_nccl_tests(HEADER + "8 2 float sum -1 1.0 2.0 3.0 0 4.0 5.0 6.0 96\n").ok is False


@pytest.mark.parametrize("name", ["all_reduce", "alltoall", "sendrecv"])
def test_the_collective_is_the_program_s_name(name: str) -> None:
    assert parse_nccl_tests(f"$ ./build/{name}_perf -b 8 -e 1G\n{HEADER}").collective == name


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("bash: all_reduce_perf: command not found\n", "it did not run: bash: all_reduce_perf: command not found"),
        ("x: error while loading shared libraries: libnccl.so.2: cannot open\n", "did not run: x: error while loading"),
        (
            "node: Test CUDA failure common.cu:892 'no CUDA-capable device is detected'\n",
            "failed before it began: .*no CUDA-capable",
        ),
        ("hello\n", "line 1: 'hello': no output of an nccl-tests program"),
        ('{"identifier": "nccl-tests structured output"}\n', "no output of an nccl-tests program"),
        (HEADER + ROW.replace(" 35.31 0.04 0.06 0", ""), "line 2: .*a row that is cut"),
        (HEADER + ROW.rstrip()[:-4], "line 2: .*a row without its root, or cut"),
        (ROW.rstrip()[:-4], "line 1: .*'-1' is no value of time"),
        (ROW.rstrip().replace(" 0.06 0", " N/A").replace("-1", "0"), "line 1: .*a bandwidth in no time"),
        (HEADER + "8388608\n", "line 2: '8388608': a row that is cut"),
        (HEADER + ROW + "8388608 20971", "line 3: .*a row that is cut"),
        (HEADER + ROW.replace("0.03", "0.x3"), "line 2: .*'0.x3' is no value of algbw"),
        (HEADER + ROW.replace("1024", "10x4"), "line 2: .*a row without size"),
        (HEADER + ROW.replace("-1 37.89", "-137.89"), "line 2"),
        ("#  Rank  0 Group  0 Pid  9822 on node-a dev", "line 1: .*a rank without"),
        (HEADER + ROW + "# Out of bounds values : 0", "line 3: .*a summary that is cut"),
        (HEADER + ROW + "# Avg bus bandwidth    : ", "line 3: .*a summary that is cut"),
        (HEADER + ROW + "# Avg bus bandwidth    : 2.x\n", "line 3: .*no bandwidth"),
    ],
)
def test_what_cannot_be_read_says_why(text: str, why: str) -> None:
    with pytest.raises(ParseError, match=why):
        parse_nccl_tests(text)


NAMES = "#       size         count      type   redop    root     time   algbw   busbw #wrong"
BOTH = f"{NAMES}     time   algbw   busbw #wrong\n"
LOG = "gpu-7:71:72 [3] NCCL INFO Connected all rings"
OUT, IN = NcclTestsSide(1.5, 2.5, 3.5, 0, None, {}), NcclTestsSide(4.5, 5.5, 6.5, 0, None, {})


@pytest.mark.parametrize(
    "row",
    [
        f"  1024  256  float  sum  -1{LOG}\n{LOG}\n   1.5  2.5  3.5  0   4.5  5.5  6.5  0\n",
        f"  1024  256  float  sum  -1  {LOG}\n   1.5  2.5  3.5  0{LOG}\n{LOG}\n   4.5  5.5  6.5  0\n",
        "  1024  256  float  sum  -1gpu-7:71:72 [3] init.cc:9 NCCL WARN slow\n  1.5 2.5 3.5 0 4.5 5.5 6.5 0\n",
    ],
)
@pytest.mark.parametrize("head", ["", BOTH])
def test_log_lines_between_the_parts_of_a_row(head: str, row: str) -> None:
    (found,) = parse_nccl_tests(f"{head}{row}").rows
    assert (found.size_bytes, found.redop, found.root) == (1024, "sum", -1)
    assert (found.out_of_place, found.in_place) == (OUT, IN)


@pytest.mark.parametrize(
    "rest", ["", "  2048  512  float  sum  -1  1 2 3 0 4 5 6 0\n", f"  2048  512  float  sum  -1{LOG}\n"]
)
def test_a_torn_row_without_its_rest_is_cut(rest: str) -> None:
    with pytest.raises(ParseError, match=r"line 2: .*1024.*a log line cut off"):
        parse_nccl_tests(f"{BOTH}  1024  256  float  sum  -1{LOG}\n{rest}")


@pytest.mark.parametrize(
    ("above", "names", "out_of_place", "in_place"),
    [
        ("out-of-place   in-place", BOTH, OUT, IN),
        ("in-place   out-of-place", BOTH, IN, OUT),
        ("in-place", f"{NAMES}\n", None, OUT),
        ("out-of-place", f"{NAMES}\n", OUT, None),
    ],
)
def test_the_line_above_the_header_names_the_sides(
    above: str, names: str, out_of_place: NcclTestsSide | None, in_place: NcclTestsSide | None
) -> None:
    values = "1.5 2.5 3.5 0" + (" 4.5 5.5 6.5 0" if names is BOTH else "")
    (row,) = parse_nccl_tests(f"#         {above}\n{names}  1024  256  float  sum  -1  {values}\n").rows
    assert (row.out_of_place, row.in_place) == (out_of_place, in_place)
