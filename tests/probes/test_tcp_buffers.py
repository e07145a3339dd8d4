"""When socket buffers hold a flow back, by what was offered, what was on its way, and the idle round trip."""

from typing import Any

import pytest

from nodectl.facts.parsers.linux.iperf3 import Iperf3
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.probes.duet import Played
from nodectl.probes.events import Events
from nodectl.probes.tcp import Window, buffer_hint, window_of

MIB = 1 << 20


def run(window_bytes: int | None) -> Iperf3:
    return Iperf3("iperf 3.12", "TCP", 1, 3.0, False, 1.0, 0, 20.2, "bbr", None, window_bytes)


def played(path: dict[str, Any] | None, listening: dict[str, Any]) -> Played:
    events = Events()
    if path is not None:
        events.all.append({"event": "path", **path})
    return Played(events, {"event": "listening", **listening})


def window(receive_mib: float, send_mib: float, window_bytes: int | None, streams: int = 1) -> Window:
    buffers = [int(receive_mib * MIB), int(send_mib * MIB)]
    told = played({"rtt_ms": 20.0, "buffers": buffers}, {"buffers": buffers})
    return window_of(told, [run(window_bytes)], streams)


# measured in the lab over 20 ms: buffers of both ends in MiB, the largest window offered, Gbit/s reached
@pytest.mark.parametrize(
    ("receive_mib", "send_mib", "window_bytes", "gbit_s", "limited"),
    [
        (1, 1, 693_504, 0.26, "receive buffer"),
        (16, 16, 11_140_096, 4.05, "receive buffer"),
        # the machine's own: much to receive into, little to send from
        (32, 4, 3_500_000, 1.38, "send buffer"),
        # a link of 1 Gbit/s is full before the buffers are
        (4, 4, 2_779_392, 0.947, None),
        # the window has not grown: something else held the flow back
        (16, 16, 2_000_000, 0.78, None),
        # a version that does not tell of windows
        (2, 2, None, 0.52, None),
    ],
)
def test_who_holds_a_flow_back(
    receive_mib: float, send_mib: float, window_bytes: int | None, gbit_s: float, limited: str | None
) -> None:
    for reverse in (False, True):
        told = window(receive_mib, send_mib, window_bytes).conditions(gbit_s, 1, reverse=reverse)
        assert told["limited_by"] == limited
        assert told["buffer_bytes"] == min(receive_mib, send_mib) * MIB and told["rtt_ms"] == 20.0


def test_one_warning_for_all_that_blames_nobody() -> None:
    held = window(16, 16, 11_140_096)
    flows = []
    for number, gbit_s in enumerate((4.2, 4.05, 0.9)):
        conditions = {"streams": 1, **held.conditions(gbit_s, 1, reverse=False)}
        ends = ("a", f"b{number}")
        flows.append(Measurement("tcp", ends, gbit_s, "Gbit/s", " -> ".join(ends), conditions=conditions))
    (finding,) = buffer_hint(flows)
    assert (finding.status, finding.kind, finding.hosts) == (Status.WARNING, "", ("a", "b1"))
    assert "16 MiB is full at 4.05 Gbit/s over 20 ms" in finding.actual and "1 more of 3 directions" in finding.actual
    assert "tcp_rmem" in finding.remedy and buffer_hint(flows[2:]) == ()
