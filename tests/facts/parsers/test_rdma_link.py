"""rdma link: text of old and new iproute2, InfiniBand and RoCE, and -j."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodectl.errors import ParseError
from nodectl.facts.parsers.rdma.interfaces import RdmaLink, RdmaPort, parse_rdma_link

RECORDED = Path(__file__).parents[2] / "fixtures" / "ibverbs" / "rdma-link.txt"
ROCE = RdmaPort("mlx5_0", 1, "ACTIVE", "LINK_UP", "enp33s0f0np0", None)
IB = RdmaPort("ibp12s0", 2, "DOWN", "POLLING", None, 13399)
IB_ROW = (
    "link ibp12s0/2 subnet_prefix fe80:0000:0000:0000 lid 13399 sm_lid 49 lmc 0 state DOWN physical_state POLLING \n"
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev enp33s0f0np0 \n", (ROCE,)),
        ("link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev enp33s0f0np0 netdev_index 4\r\n", (ROCE,)),
        ("1/1: mlx5_0/1: state ACTIVE physical_state LINK_UP netdev enp33s0f0np0 \n", (ROCE,)),
        (IB_ROW + "    caps: <SM, CM, SNMP>\n", (IB,)),
        ("$ rdma link\n" + IB_ROW, (IB,)),
        ('[{"ifindex":0,"ifname":"ibp12s0","port":2,"lid":13399,"state":"DOWN","physical_state":"POLLING"}]', (IB,)),
        ("[ ]", ()),
    ],
)
def test_forms(text: str, found: tuple[RdmaPort, ...]) -> None:
    assert parse_rdma_link(text) == RdmaLink(found)


def test_recorded() -> None:
    assert parse_rdma_link(RECORDED.read_text()).links == (RdmaPort("rxe0", 1, "ACTIVE", "LINK_UP", "eth0", None),)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("\n", "empty"),
        ("rdma: command not found", "line 1.*neither rows"),
        ("link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev", "line 1.*cut"),
        ("link mlx5_0/1 state ACTIVE", "line 1.*cut"),
        ("link mlx5_0/1 sta", "line 1.*cut"),
        ("link mlx5_0", "line 1.*cut"),
        ("x\nlink a/1 state ACTIVE physical_state LINK_UP lid x2", "line 2.*'x2' is no number"),
        ('[{"ifname":"a","port":"1","state":"UP","physical_state":"UP"}]', "'port'"),
        ('[{"ifname":"a","port":1,"physical_state":"UP"}]', "lacks"),
        ('[{"ifname":"a",', "line 1"),
    ],
)
def test_refused(text: str, told: str) -> None:
    with pytest.raises(ParseError, match=told):
        parse_rdma_link(text)


_NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,14}", fullmatch=True)


@settings(max_examples=25)
@given(
    st.lists(
        st.builds(
            RdmaPort,
            device=_NAMES,
            port=st.integers(1, 40),
            state=st.sampled_from(("NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER")),
            physical_state=st.sampled_from(("SLEEP", "POLLING", "DISABLED", "LINK_UP", "LINK_ERROR_RECOVER")),
            netdev=st.none() | _NAMES,
            lid=st.none() | st.integers(0, 65535),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_what_is_printed_is_read(links: list[RdmaPort]) -> None:
    text = "".join(
        f"link {link.device}/{link.port} "
        + (f"subnet_prefix fe80:0000:0000:0000 lid {link.lid} sm_lid 1 lmc 0 " if link.lid is not None else "")
        + f"state {link.state} physical_state {link.physical_state} "
        + (f"netdev {link.netdev} " if link.netdev else "")
        + "\n"
        for link in links
    )
    assert parse_rdma_link(text) == RdmaLink(tuple(links))


@pytest.mark.parametrize("row", ["state ACTIVE physical_state LINK_", "state ACT physical_state LINK_UP"])
def test_a_word_that_is_cut(row: str) -> None:
    with pytest.raises(ParseError, match=r"line 1: .*state is cut"):
        parse_rdma_link(f"link mlx5_3/1 {row}")
