"""show_gids: RoCE v1 and v2, with and without an IPv4 address, InfiniBand, and rows that were cut."""

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.rdma.interfaces import Gid, ShowGids, parse_show_gids

HEADER = "DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV\n---\t----\t-----\t---\t\t\t\t\t------------  \t---\t---\n"
LOCAL = "fe80:0000:0000:0000:0e42:a1ff:fead:479a"
MAPPED = "0000:0000:0000:0000:0000:ffff:0a60:531a"
TEXT = (
    HEADER
    + f"mlx5_bond_0\t1\t0\t{LOCAL}\t\t\tv1\tbond0\n"
    + f"mlx5_bond_0\t1\t3\t{MAPPED}\t10.96.83.26  \tv2\tbond0\n"
    + f"mlx5_4\t2\t0\t{LOCAL}\t\t\t\t\n"
    + "n_gids_found=3\n"
)
FOUND = ShowGids(
    (
        Gid("mlx5_bond_0", 1, 0, LOCAL, None, "v1", "bond0"),
        Gid("mlx5_bond_0", 1, 3, MAPPED, "10.96.83.26", "v2", "bond0"),
        Gid("mlx5_4", 2, 0, LOCAL, None, None, None),
    )
)


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        TEXT.expandtabs(),
        TEXT.replace("\n", "\r\n"),
        "[gpu01 1 2]\n" + TEXT,
        "\x1b[1m" + TEXT.replace("v2", "\x1b[32mv2\x1b[0m"),
        TEXT.removeprefix(HEADER),
    ],
    ids=["tabs", "spaces", "CRLF", "noise", "colour", "no header"],
)
def test_forms(text: str) -> None:
    assert parse_show_gids(text) == FOUND


def test_a_gid_whose_interface_is_gone() -> None:
    (gid,) = parse_show_gids(f"{HEADER}rxe0\t1\t1\t{LOCAL}\t\t\tv2\t\n").gids
    assert (gid.version, gid.netdev) == ("v2", None)


@pytest.mark.parametrize("text", [HEADER, HEADER + "n_gids_found=0\n", "n_gids_found=0\n"])
def test_no_gid_is_an_empty_list(text: str) -> None:
    assert parse_show_gids(text).gids == ()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty"),
        ("sh: show_gids: command not found", "command not found"),
        (HEADER + "mlx5_0\t1\t2\n", "line 3.*cut"),
        (HEADER + "mlx5_0\t1\n", "line 3.*cut"),
        (HEADER + "mlx5_0\t1\t2\tfe80:0000:00\n", "line 3.*cut"),
        (HEADER + f"mlx5_0\t1\t2\t{MAPPED}\t10.96.83.26", "line 3.*cut"),
        (HEADER + f"mlx5_0\t1\t2\t{MAPPED}\t10.96.83.26  \tv", "line 3.*cut"),
        (HEADER + f"mlx5_0\t1\t2\t{MAPPED}\t10.96.83.26  \tv2", "line 3.*cut"),
        (HEADER + f"mlx5_0\t1\t2\t{MAPPED}\t10.96.83.26  \tv2\tbond0 bond1", "line 3.*garbled"),
    ],
)
def test_refused(text: str, told: str) -> None:
    with pytest.raises(ParseError, match=told):
        parse_show_gids(text)
