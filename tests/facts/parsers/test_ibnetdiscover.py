"""ibnetdiscover: the topology file and the list of ports; every cable once, whoever mentions it."""

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.rdma.fabric import FabricLink, FabricNode, IbNetDiscover, parse_ibnetdiscover

LEAF, SPINE, HOST, AGGREGATION = "2c5eab0300b87b40", "2c5eab0300c26280", "e09d7303007a4bd8", "2c5eab0300b87b50"
LEAF_BLOCK = f"""\
vendid=0x2c9
devid=0xd2f2
sysimgguid=0x{LEAF}
switchguid=0x{LEAF}({LEAF})
Switch\t65 "S-{LEAF}"\t\t# "MF0;leaf 01 "A":MQM9701/U1" enhanced port 0 lid 73 lmc 0
[1]\t"H-{HOST}"[2]({HOST}) \t\t# "gpu-01 mlx5_5" lid 647 4xNDR
[33]\t"S-{SPINE}"[32]\t\t# "spine 02" lid 236 2xNDR s=4 w=2 v=4 e=4
[34][ext 3]\t"S-{SPINE}"[31][ext 4]\t\t# "spine 02" lid 236 4xHDR
[65]\t"H-{AGGREGATION}"[1]({AGGREGATION}) \t\t# "Mellanox Technologies Aggregation Node" lid 193 4x???
"""
HOST_BLOCK = f"""\
vendid=0x2c9
devid=0x1021
sysimgguid=0x{HOST}
caguid=0x{HOST}
Ca\t2 "H-{HOST}"\t\t# "gpu-01 mlx5_5"
[2]({HOST}) \t"S-{LEAF}"[1]\t\t# lid 647 lmc 0 "MF0;leaf 01 "A":MQM9701/U1" lid 73 4xNDR
"""
HEADER = f"#\n# Topology file: generated on Wed Aug  6\n#\n# Initiated from node {HOST} port {HOST}\n"
TEXT = f"{HEADER}\n{LEAF_BLOCK}\n{HOST_BLOCK}"
FOUND = IbNetDiscover(
    switches=(FabricNode(LEAF, 'MF0;leaf 01 "A":MQM9701/U1', 4), FabricNode(SPINE, "spine 02", 2)),
    hosts=(FabricNode(AGGREGATION, "Mellanox Technologies Aggregation Node", 1), FabricNode(HOST, "gpu-01 mlx5_5", 1)),
    links=(
        FabricLink(LEAF, 1, HOST, 2, "4x", "NDR", 400.0),
        FabricLink(LEAF, 33, SPINE, 32, "2x", "NDR", 200.0),
        FabricLink(LEAF, 34, SPINE, 31, "4x", "HDR", 200.0),
        FabricLink(LEAF, 65, AGGREGATION, 1, "4x", None, None),
    ),
)


@pytest.mark.parametrize(
    "text",
    [TEXT, TEXT.replace("\t", "   "), "".join(f"[1,3]<stdout>:{line}\n" for line in TEXT.splitlines())],
    ids=["as printed", "spaces", "mpirun"],
)
def test_every_value(text: str) -> None:
    assert parse_ibnetdiscover(text) == FOUND


def test_a_router_is_neither_switch_nor_host() -> None:
    found = parse_ibnetdiscover(LEAF_BLOCK + f'Rt\t1 "R-{HOST[::-1]}"\t\t# "router"\n[1](1) \t"S-{LEAF}"[7]\n')
    assert found.routers == (FabricNode(HOST[::-1], "router", 1),)
    assert found.links[-1] == FabricLink(HOST[::-1], 1, LEAF, 7, None, None, None)


@pytest.mark.parametrize(
    ("printed", "gbit_s"),
    [
        *(("1x SDR", 2.5), ("4x SDR", 10.0), ("4x DDR", 20.0), ("4x QDR", 40.0), ("4x FDR10", 40.0), ("4x FDR", 56.0)),
        *(("4x EDR", 100.0), ("2x HDR", 100.0), ("4x HDR", 200.0), ("12x HDR", 600.0), ("4x NDR", 400.0)),
        *(("4x XDR", 800.0), ("?? ???", None), ("4x ???", None)),
    ],
)
def test_the_rate_of_a_width_and_speed(printed: str, gbit_s: float | None) -> None:
    text = f"CA    78  1 0x{HOST} {printed} - SW    51 81 0x{LEAF} ( 'gpu-01 mlx5_0' - 'leaf 1 ' )\n"
    assert [link.gbit_s for link in parse_ibnetdiscover(text).links] == [gbit_s]


def test_the_list_of_ports() -> None:
    text = (
        f"CA    78  1 0x{HOST} 4x HDR - SW    51 81 0x{LEAF} ( 'gpu-01 mlx5_0' - 'leaf 1 ' )\n"
        f"SW    51 81 0x{LEAF} 4x HDR - CA    78  1 0x{HOST} ( 'leaf 1 ' - 'gpu-01 mlx5_0' )\n"
        f"SW    24  1 0x{SPINE} 4x SDR                                    ' spine 2 '\n"
    )
    assert parse_ibnetdiscover(text) == IbNetDiscover(
        switches=(FabricNode(LEAF, "leaf 1", 1), FabricNode(SPINE, "spine 2", 0)),
        hosts=(FabricNode(HOST, "gpu-01 mlx5_0", 1),),
        links=(FabricLink(HOST, 1, LEAF, 81, "4x", "HDR", 200.0),),
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty"),
        ("src/ibnetdisc.c:803; can't open MAD port ((null):0)", "can't open MAD port"),
        ("/usr/sbin/ibnetdiscover: iberror: failed: discover failed", "discover failed"),
        ("# Topology file: generated on Wed", "no node"),
        ('[1]\t"H-1"[1](1) # "x" lid 1 4xNDR', "line 1.*missing"),
        (f'Switch\t65 "S-{LEAF}', "line 1.*cut"),
        (f'Switch\t65 "H-{LEAF}"', "line 1.*is no 'H'"),
        (LEAF_BLOCK + '[2]\t"S-2c5ea', r"line 10: '\[2\].*cut"),
        (LEAF_BLOCK + "[2]", "line 10.*cut"),
        (LEAF_BLOCK + f'[2]\t"S-{SPINE}"[3]\t\t# "spine', "line 10.*cut"),
        (LEAF_BLOCK + f'[2]\t"S-{SPINE}"[3]\t\t# "spine" lid 4 4xN', "line 10.*speed 'N' is cut"),
        (LEAF_BLOCK + f'[2]\t"S-{HOST}"[3]\t\t# "x" lid 4 4xNDR', "line 10.*both"),
        (f"SW    24  1 0x{SPINE} 4x SDR - CA", "line 1.*cut"),
        (f"SW    24  1 0x{SPINE}", "line 1.*cut"),
    ],
)
def test_refused(text: str, told: str) -> None:
    with pytest.raises(ParseError, match=told):
        parse_ibnetdiscover(text)
