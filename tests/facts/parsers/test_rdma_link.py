"""rdma link: text of old and new iproute2, InfiniBand and RoCE, and -j."""

from pathlib import Path

import pytest

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
