"""What `tc` is told; the kernel's own netem cannot be tried where it is missing."""

from nodectl.lab.shape import host_shaping, port_shaping, queue_bytes
from nodectl.lab.spec import LabSpec

SHAPED = LabSpec(rate_bits=10**9, delay_s=0.01, loss=0.001)


def test_an_unshaped_link_is_left_alone() -> None:
    assert host_shaping(LabSpec()) == () == port_shaping("p0", LabSpec(), "veth")


def test_both_ends_hold_the_rate_and_the_burst_of_a_gigabit_is_a_megabyte() -> None:
    for lines, interface in ((host_shaping(SHAPED), "eth0"), (port_shaping("p3", SHAPED, "veth"), "p3")):
        assert lines[0] == f"qdisc add dev {interface} root handle 1: htb default 10"
        assert "rate 1gbit ceil 1gbit burst 1000000 " in lines[1]
        assert lines[2].endswith(f"bfifo limit {queue_bytes(10**9)}")


def test_netem_takes_the_queues_place_and_one_way_of_the_delay() -> None:
    lines = port_shaping("p3", SHAPED, "netem")
    assert lines[2] == "qdisc add dev p3 parent 1:10 handle 10: netem limit 200000 delay 10ms loss 0.1%"
    only = LabSpec(delay_s=0.01)
    assert port_shaping("p3", only, "netem")[0].startswith("qdisc add dev p3 root handle 10: netem limit ")
    assert host_shaping(only) == ()
