"""Columns, and what becomes of them where the terminal is narrower."""

from nodectl.report.table import aligned, fitted

ROWS = (
    ("PROBE", "HOSTS", "CONDITIONS"),
    ("nccl", "node[01,04]", "all_reduce 1 MiB, measured again: 191 MB/s, tree"),
    ("tcp", "a", ""),
)


def test_what_has_room_is_as_it_was() -> None:
    assert fitted(ROWS, 80) == aligned(ROWS)


def test_words_go_on_below_their_column_and_break_between_parts() -> None:
    assert fitted(ROWS, 54).splitlines() == [
        "PROBE  HOSTS        CONDITIONS",
        "nccl   node[01,04]  all_reduce 1 MiB,",
        "                    measured again: 191 MB/s, tree",
        "tcp    a",
    ]


def test_a_column_in_the_middle_goes_on_as_well() -> None:
    rows = [("WHAT", "VALUE"), ("one stream of many, over the second network", "9"), ("-", "8")]
    assert fitted(rows, 36, 0).splitlines() == [
        "WHAT                     VALUE",
        "one stream of many,      9",
        "over the second network",
        "-                        8",
    ]


def test_words_without_room_stand_below_their_line() -> None:
    rows = [("PROBE", "A LONG NAME OF A PATH", "CONDITIONS"), *ROWS[1:]]
    assert fitted(rows, 40).splitlines() == [
        "PROBE  A LONG NAME OF A PATH",
        "nccl   node[01,04]",
        "    all_reduce 1 MiB,",
        "    measured again: 191 MB/s, tree",
        "tcp    a",
    ]


def test_no_line_is_wider_and_no_word_is_lost() -> None:
    for width in range(40, 130):
        shown = fitted(ROWS, width)
        assert max(map(len, shown.splitlines())) <= width
        assert {*" ".join(map(" ".join, ROWS[1:])).split()} <= {*shown.split()}
