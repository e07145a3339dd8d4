"""What `tc` is told; the kernel's own netem cannot be tried where it is missing."""

from nodectl.lab.network import host_shaping, port_shaping
from nodectl.lab.spec import LabSpec

SHAPED = LabSpec(rate_bits=10**9, delay_s=0.01, loss=0.001)


def test_netem_takes_the_queues_place_and_one_way_of_the_delay() -> None:
    lines = port_shaping("p3", SHAPED, "netem")
    assert lines[2] == "qdisc add dev p3 parent 1:10 handle 10: netem limit 200000 delay 10ms loss 0.1%"
    only = LabSpec(delay_s=0.01)
    assert port_shaping("p3", only, "netem")[0].startswith("qdisc add dev p3 root handle 10: netem limit ")
    assert host_shaping(only) == ()
