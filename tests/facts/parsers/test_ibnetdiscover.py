"""ibnetdiscover: the topology file and the list of ports; every cable once, whoever mentions it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    hosts=(
        FabricNode(AGGREGATION, "Mellanox Technologies Aggregation Node", 1),
        FabricNode(HOST, "gpu-01 mlx5_5", 1),
    ),
    links=(
        FabricLink(LEAF, 1, HOST, 2, "4x", "NDR", 400.0),
        FabricLink(LEAF, 33, SPINE, 32, "2x", "NDR", 200.0),
        FabricLink(LEAF, 34, SPINE, 31, "4x", "HDR", 200.0),
        FabricLink(LEAF, 65, AGGREGATION, 1, "4x", None, None),
    ),
)


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        TEXT.replace("\t", "   "),
        TEXT.replace("\n", "\r\n"),
        "ibwarn: [1] _do_madrpc: recv failed\n$ ibnetdiscover\n" + TEXT + "[gpu01]$ ",
        "".join(f"[1,3]<stdout>:{line}\n" for line in TEXT.splitlines()),
    ],
    ids=["as printed", "spaces", "CRLF", "noise", "mpirun"],
)
def test_every_value(text: str) -> None:
    assert parse_ibnetdiscover(text) == FOUND


def test_a_switch_stands_where_its_own_block_is() -> None:
    spine = f'Switch\t65 "S-{SPINE}"\t\t# "spine 02" base port 0 lid 236 lmc 0\n'
    names = [switch.name for switch in parse_ibnetdiscover(spine + LEAF_BLOCK).switches]
    assert names == ["spine 02", 'MF0;leaf 01 "A":MQM9701/U1']


def test_a_node_without_a_live_link() -> None:
    found = parse_ibnetdiscover(f'Switch\t65 "S-{SPINE}"\t\t# "spine"\nCa\t1 "H-{HOST}"\t\t# "gpu-01 HCA-1"\n')
    assert found == IbNetDiscover((FabricNode(SPINE, "spine", 0),), (FabricNode(HOST, "gpu-01 HCA-1", 0),), ())


def test_two_cables_between_the_same_switches_are_two_links() -> None:
    assert len({(link.a_port, link.b_port) for link in FOUND.links if link.b == SPINE}) == 2


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


@given(
    leaves=st.integers(1, 4),
    spines=st.integers(1, 3),
    hosts=st.integers(1, 4),
    name=st.text("abcXYZ 019;:/-_.'\"()[]#", max_size=30),
    speed=st.sampled_from((("4x", "HDR", 200.0), ("4x", "NDR", 400.0), ("2x", "NDR", 200.0), ("4x", "FDR10", 40.0))),
)
def test_a_printed_fat_tree_is_read(
    leaves: int, spines: int, hosts: int, name: str, speed: tuple[str, str, float]
) -> None:
    width, of_lane, gbit_s = speed
    kind_of = {**{f"a{leaf:015x}": "S" for leaf in range(leaves)}, **{f"b{spine:015x}": "S" for spine in range(spines)}}
    cables = []
    for leaf in range(leaves):
        for host in range(hosts):
            guid = f"c{leaf * 16 + host:015x}"
            kind_of[guid] = "H"
            cables.append((f"a{leaf:015x}", host + 1, guid, 1))
        cables += [(f"a{leaf:015x}", 33 + spine, f"b{spine:015x}", leaf + 1) for spine in range(spines)]
    text = ""
    for guid, kind in kind_of.items():
        text += f'\n{"Switch" if kind == "S" else "Ca"}\t65 "{kind}-{guid}"\t\t# "{name}" base port 0 lid 1 lmc 0\n'
        both_ways = cables + [(b, b_port, a, a_port) for a, a_port, b, b_port in cables]
        for near, near_port, far, far_port in sorted(cable for cable in both_ways if cable[0] == guid):
            port_guid, lids = (f"({near}) ", "lid 9 lmc 0 ") if kind == "H" else ("", "")
            peer_guid = f"({far}) " if kind_of[far] == "H" else ""
            text += (
                f'[{near_port}]{port_guid}\t"{kind_of[far]}-{far}"[{far_port}]{peer_guid}\t\t# {lids}"{name}" lid 2 '
            )
            text += f"{width}{of_lane}\n"
    found = parse_ibnetdiscover(text)
    assert {(link.a, link.a_port, link.b, link.b_port) for link in found.links} == set(cables)
    assert {(link.width, link.speed, link.gbit_s) for link in found.links} == {(width, of_lane, gbit_s)}
    assert [switch.guid for switch in found.switches] == [guid for guid, kind in kind_of.items() if kind == "S"]
    assert {host.ports_used for host in found.hosts} == {1}
    assert {node.name for node in found.switches + found.hosts} == {name.strip() or None}
