"""Columns, and what becomes of them where the terminal is narrower."""

from nodectl.report.table import fitted

ROWS = (
    ("PROBE", "HOSTS", "CONDITIONS"),
    ("nccl", "node[01,04]", "all_reduce 1 MiB, measured again: 191 MB/s, tree"),
    ("tcp", "a", ""),
)


def test_words_go_on_below_their_column_and_break_between_parts() -> None:
    assert fitted(ROWS, 54).splitlines() == [
        "PROBE  HOSTS        CONDITIONS",
        "nccl   node[01,04]  all_reduce 1 MiB,",
        "                    measured again: 191 MB/s, tree",
        "tcp    a",
    ]


def test_no_line_is_wider_and_no_word_is_lost() -> None:
    for width in range(40, 130):
        shown = fitted(ROWS, width)
        assert max(map(len, shown.splitlines())) <= width
        assert {*" ".join(map(" ".join, ROWS[1:])).split()} <= {*shown.split()}
