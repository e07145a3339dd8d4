"""Rows between whose parts NCCL logs, and tables of one side alone."""

from __future__ import annotations

import pytest

from nodectl.errors import ParseError
from nodectl.parsers.nccl.nccl_tests import NcclTestsSide, parse_nccl_tests

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


def test_an_asterisk_marks_an_error_and_is_no_column() -> None:
    (row,) = parse_nccl_tests(f"{BOTH}  1024  256  float  sum  -1  1.5 2.5 3.5 0  4.5 5.5 6.5 0 *\n").rows
    assert row.in_place == IN
