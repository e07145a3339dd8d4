"""ibstat: every label once, old and new forms, and where it gives up."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodectl.errors import ParseError
from nodectl.facts.parsers.rdma.ports import Adapter, Ibstat, Port, parse_ibstat

TEXT = """\
CA 'mlx5_0'
\tCA type: MT4129
\tNumber of ports: 2
\tFirmware version: 28.39.1002
\tHardware version: 0
\tNode GUID: 0x946dae0300cde72c
\tSystem image GUID: 0x946dae0300cde72d
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 400
\t\tBase lid: 75
\t\tLMC: 0
\t\tSM lid: 334
\t\tCapability mask: 0xa751e848
\t\tPort GUID: 0x946dae0300cde72e
\t\tLink layer: InfiniBand
\tPort 2:
\t\tState: Down
\t\tPhysical state: Polling
\t\tRate: 2.5
\t\tBase lid: 0xffff
\t\tLMC: 0
\t\tSM lid: 0
\t\tCapability mask: 0x00010000
\t\tPort GUID: 0x966daefffec2b691
\t\tLink layer: Ethernet
CA 'rxe0'
\tCA type:\x20
\tNumber of ports: 1
\tFirmware version:\x20
\tHardware version:\x20
\tNode GUID: 0x505400fffe000001
\tSystem image GUID: 0x505400fffe000001
"""
FOUND = Ibstat(
    (
        Adapter(
            name="mlx5_0",
            type="MT4129",
            firmware="28.39.1002",
            node_guid="0x946dae0300cde72c",
            system_image_guid="0x946dae0300cde72d",
            ports=(
                Port(1, "Active", "LinkUp", 400.0, 75, 334, "InfiniBand", "0x946dae0300cde72e"),
                Port(2, "Down", "Polling", 2.5, 65535, 0, "Ethernet", "0x966daefffec2b691"),
            ),
        ),
        Adapter("rxe0", None, None, "0x505400fffe000001", "0x505400fffe000001", ()),
    )
)


def test_every_value() -> None:
    assert parse_ibstat(TEXT) == FOUND


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace("\n", "\r\n"),
        TEXT.replace("\t", "        "),
        "$ ibstat\nWarning: State of the art\n" + TEXT + "$ \n",
        TEXT.replace("CA 'mlx5_0'", "\x1b[1mCA 'mlx5_0'\x1b[0m"),
        "".join(f"[1,0]<stdout>:{line}\n" for line in TEXT.splitlines()),
    ],
    ids=["CRLF", "spaces", "prompt", "colour", "mpirun"],
)
def test_noise(text: str) -> None:
    assert parse_ibstat(text) == FOUND


def test_what_was_printed_before_ibstat_gave_up_is_kept_with_its_reason() -> None:
    panic = "ibpanic: [1400444] main: stat of IB device 'mlx5_8' failed: No such file or directory"
    found = parse_ibstat(TEXT + panic + "\n")
    assert found.adapters == FOUND.adapters
    assert found.error == panic


def test_one_port_with_the_old_fdr10_rate() -> None:
    found = parse_ibstat("CA: 'mlx4_0'\nPort 2:\nState: Initializing\nPhysical state: LinkUp\nRate: 40 (FDR10)\n")
    assert found.adapters[0].ports == (Port(2, "Initializing", "LinkUp", 40.0, None, None, None, None),)


def test_refused_values_are_none_and_kept_as_printed() -> None:
    port = parse_ibstat("CA 'a'\n\tPort 1:\n\t\tState: Active\n\t\tRate: N/A\n").adapters[0].ports[0]
    assert (port.rate_gbit_s, port.unavailable) == (None, {"rate_gbit_s": "N/A"})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty"),
        (" \n\n", "empty"),
        ("ibpanic: [7] main: can't init UMAD library", "can't init UMAD library"),
        ("ibwarn: [1] x\nibpanic: [7] main: can't list IB device names: (No such file)", "can't list IB device names"),
        ("bash: ibstat: command not found", "command not found"),
        ("nothing of it", "no adapter"),
        ("CA 'mlx5", "line 1.*name is cut"),
        (TEXT + "CA 'mlx5_2'\n\tPort 1:\n\t\tSta", "line 3[0-9]: .*Sta.*cut"),
        (TEXT.replace("Rate: 400", "Rate: 4x0"), "line 11.*4x0"),
        (TEXT.replace("Rate: 400", "Rate:"), "line 11.*no value"),
        (TEXT.replace("State: Active", "State: Act"), "line 9.*cut"),
        (TEXT.replace("Base lid: 75", "Base lid: 7 5"), "line 12"),
        (TEXT.replace("0x946dae0300cde72e", "0x946dae03"), "line 16.*16 digits"),
        (TEXT.replace("Base lid: 75", "Base lid: " + "9" * 100), "line 12"),
    ],
)
def test_refused(text: str, told: str) -> None:
    with pytest.raises(ParseError, match=told):
        parse_ibstat(text)


_GUIDS = st.integers(0, 2**64 - 1).map(lambda guid: f"0x{guid:016x}")
_PORTS = st.builds(
    Port,
    port=st.integers(0, 36),
    state=st.sampled_from(("Down", "Initializing", "Armed", "Active", "???")),
    physical_state=st.sampled_from(("Sleep", "Polling", "Disabled", "LinkUp", "PhyTest", "No state change")),
    rate_gbit_s=st.sampled_from((2.5, 10.0, 40.0, 100.0, 400.0, 800.0)),
    lid=st.integers(0, 65535),
    sm_lid=st.integers(0, 65535),
    link_layer=st.sampled_from(("InfiniBand", "Ethernet")),
    guid=_GUIDS,
    unavailable=st.just({}),
)
_ADAPTERS = st.builds(
    Adapter,
    name=st.from_regex(r"[a-z][a-z0-9_]{0,14}", fullmatch=True),
    type=st.sampled_from(("MT4129", "MT4125", "BCM57508")),
    firmware=st.from_regex(r"\d\d\.\d\d\.\d{4}", fullmatch=True),
    node_guid=_GUIDS,
    system_image_guid=_GUIDS,
    ports=st.lists(_PORTS, max_size=3).map(tuple),
    unavailable=st.just({}),
)


def _printed(adapter: Adapter) -> str:
    head = (
        f"CA '{adapter.name}'\n\tCA type: {adapter.type}\n\tNumber of ports: {len(adapter.ports)}\n"
        f"\tFirmware version: {adapter.firmware}\n\tHardware version: 0\n\tNode GUID: {adapter.node_guid}\n"
        f"\tSystem image GUID: {adapter.system_image_guid}\n"
    )
    return head + "".join(
        f"\tPort {port.port}:\n\t\tState: {port.state}\n\t\tPhysical state: {port.physical_state}\n"
        f"\t\tRate: {port.rate_gbit_s:g}\n\t\tBase lid: {port.lid}\n\t\tLMC: 0\n\t\tSM lid: {port.sm_lid}\n"
        f"\t\tCapability mask: 0xa751e848\n\t\tPort GUID: {port.guid}\n\t\tLink layer: {port.link_layer}\n"
        for port in adapter.ports
    )


@settings(max_examples=25)
@given(st.lists(_ADAPTERS, min_size=1, max_size=4))
def test_what_is_printed_is_read(adapters: list[Adapter]) -> None:
    assert parse_ibstat("".join(map(_printed, adapters))) == Ibstat(tuple(adapters))
