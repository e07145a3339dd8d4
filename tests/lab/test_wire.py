"""The user-space link's arithmetic, on packets and clocks made by hand."""

import os
from collections.abc import Iterator

import pytest

from nodectl.lab.wire import Port, Star, make_star

MS = 1_000_000
A, B, C, UPLINK = (bytes((10, 77, 0, last)) for last in (1, 2, 3, 254))


def packet(target: bytes, size_bytes: int = 1000) -> bytes:
    """A packet as a TUN device gives it: 10 bytes of virtio's, then IPv4; `size_bytes` without the 10."""
    return bytes(10 + 16) + target + bytes(size_bytes - 20)


class Fixture:
    """A star whose ports are pipes, so that what arrives can be read."""

    def __init__(self, rate_bits: int = 0, delay_s: float = 0.0, loss: float = 0.0, queue_bytes: int = 10_000) -> None:
        self.read: dict[bytes, int] = {}
        ports = {}
        for name in (A, B, C, UPLINK):
            reader, writer = os.pipe2(os.O_NONBLOCK)
            self.read[name] = reader
            ports[".".join(map(str, name))] = writer
        task = {"ports": ports, "uplink": "10.77.0.254", "rate_bits": rate_bits}
        self.star: Star = make_star({**task, "delay_s": delay_s, "loss": loss, "queue_bytes": queue_bytes})

    def port(self, name: bytes) -> Port:
        return self.star.ports[name]

    def send(self, source: bytes, target: bytes, at_ms: float, size_bytes: int = 1000) -> None:
        self.star.take(self.port(source), packet(target, size_bytes), round(at_ms * MS))

    def arrived(self, target: bytes, at_ms: float) -> int:
        """Packets of 1,000 bytes that have come by then."""
        while (wait_s := self.star.wait_s(round(at_ms * MS))) is not None and wait_s == 0:
            self.star.arrive(round(at_ms * MS))
        try:
            return len(os.read(self.read[target], 10**6)) // 1010
        except BlockingIOError:
            return 0

    def close(self) -> None:
        for descriptor in (*self.read.values(), *(port.descriptor for port in self.star.ports.values())):
            os.close(descriptor)


@pytest.fixture
def delayed() -> Iterator[Fixture]:
    made = Fixture(delay_s=0.01)
    yield made
    made.close()


@pytest.fixture
def rated() -> Iterator[Fixture]:
    made = Fixture(rate_bits=8_000_000)  # 1,000 bytes a millisecond
    yield made
    made.close()


def test_a_packet_arrives_after_the_delay_and_not_before(delayed: Fixture) -> None:
    delayed.send(A, B, 0)
    assert delayed.arrived(B, 9.9) == 0
    assert delayed.arrived(B, 10) == 1
    assert delayed.arrived(C, 20) == 0


def test_the_operator_is_not_delayed(delayed: Fixture) -> None:
    delayed.send(UPLINK, A, 0)
    delayed.send(A, UPLINK, 0)
    assert (delayed.arrived(A, 0), delayed.arrived(UPLINK, 0)) == (1, 1)


def test_one_sender_gets_the_rate(rated: Fixture) -> None:
    for _ in range(10):
        rated.send(A, B, 0)
    assert rated.arrived(B, 4) == 4
    assert rated.arrived(B, 10) == 6


def test_a_full_queue_drops(rated: Fixture) -> None:
    for _ in range(30):
        rated.send(A, B, 0)
    assert rated.arrived(B, 1000) == 11  # one on the cable, ten waiting


def test_loss_is_a_share_of_packets_and_never_the_operators() -> None:
    made = Fixture(loss=0.5)
    for _ in range(60):
        made.send(A, B, 0)
        made.send(UPLINK, C, 0)
    assert 10 < made.arrived(B, 1) < 50
    assert made.arrived(C, 1) == 60
    made.close()


def test_a_cut_cable_carries_nothing_either_way(delayed: Fixture) -> None:
    delayed.send(A, B, 0)
    delayed.port(B).cut = True
    delayed.send(B, A, 0)
    delayed.send(A, B, 0)
    assert (delayed.arrived(A, 50), delayed.arrived(B, 50)) == (0, 0)
