"""ibstat: every label once, old and new forms, and where it gives up."""

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.rdma.ports import Adapter, Ibstat, Port, parse_ibstat
from tests.facts.parsers.tool_outputs import recorded_text

TEXT = recorded_text("ibstat-text.txt")
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


def test_what_was_printed_before_ibstat_gave_up_is_kept_with_its_reason() -> None:
    panic = "ibpanic: [1400444] main: stat of IB device 'mlx5_8' failed: No such file or directory"
    found = parse_ibstat(TEXT + panic + "\n")
    assert found.adapters == FOUND.adapters
    assert found.error == panic


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
