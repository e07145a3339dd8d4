"""show_gids: RoCE v1 and v2, with and without an IPv4 address, InfiniBand, and rows that were cut."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


_NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,14}", fullmatch=True)


@settings(max_examples=25)
@given(
    st.lists(
        st.builds(
            Gid,
            device=_NAMES,
            port=st.integers(1, 40),
            index=st.integers(0, 1023),
            gid=st.integers(0, 2**128 - 1).map(lambda gid: ":".join(f"{gid:032x}"[i : i + 4] for i in range(0, 32, 4))),
            ipv4=st.none() | st.ip_addresses(v=4).map(str),
            version=st.sampled_from(("v1", "v2")),
            netdev=_NAMES,
        ),
        max_size=6,
    )
)
def test_what_is_printed_is_read(gids: list[Gid]) -> None:
    rows = "".join(
        f"{gid.device}\t{gid.port}\t{gid.index}\t{gid.gid}\t{gid.ipv4 + '  ' if gid.ipv4 else chr(9)}"
        f"\t{gid.version}\t{gid.netdev}\n"
        for gid in gids
    )
    assert parse_show_gids(f"{HEADER}{rows}n_gids_found={len(gids)}\n") == ShowGids(tuple(gids))


def test_a_row_without_an_interface_is_cut_only_at_the_end() -> None:
    row = "mlx5_3\t1\t0\tfe80:0000:0000:0000:71fd:fe00:0071:0001\t\t\tv2"
    assert parse_show_gids(f"{row}\nn_gids_found=1\n").gids[0].netdev is None
    with pytest.raises(ParseError, match=r"line 1: .*cut"):
        parse_show_gids(row)
