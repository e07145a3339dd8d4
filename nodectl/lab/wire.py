"""The user-space link: one process that carries packets between TUN devices with a rate, a delay and a loss a link.

For kernels without netem. A star: every port sends at most `rate_bits`, and is sent at most `rate_bits`; between two
hosts a packet travels `delay_s`. What comes from or goes to the uplink (the operator) has no delay and no loss.
Run as `python -m nodectl.lab.wire` with its task as JSON on standard input.
"""

import fcntl
import heapq
import json
import os
import random
import select
import signal
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodectl.lab.syscalls import precise_timers

READY = b"+"
_TUNSETCARRIER = 0x400454E2
HEADER_BYTES = 10  # virtio's, before every packet
_DESTINATION = slice(HEADER_BYTES + 16, HEADER_BYTES + 20)
_LARGEST_BYTES = 70_000
_BATCH = 16  # packets read, or sent, before the other side has its turn
_NS = 1_000_000_000


@dataclass(slots=True)
class Port:
    """One cable; the busy times say until when its two directions are taken, in monotonic ns."""

    descriptor: int
    uplink: bool = False
    cut: bool = False
    send_busy_ns: int = 0
    receive_busy_ns: int = 0


@dataclass(slots=True)
class Star:
    """Packets on their way: a heap of (due ns, order, destination, packet, it has crossed)."""

    ports: dict[bytes, Port]
    ns_per_byte: float
    delay_ns: int
    loss: float
    queue_ns: int
    travelling: list[tuple[int, int, Port, bytes, bool]] = field(default_factory=list)
    order: int = 0

    def take(self, port: Port, packet: bytes, now_ns: int) -> None:
        """Drop a packet that has come from `port`, or put it on its way."""
        target = self.ports.get(packet[_DESTINATION])
        if target is None or target.cut or port.cut:
            return
        if port.uplink or target.uplink:
            self._add(now_ns, target, packet, crossed=True)
            return
        if self.loss and random.random() < self.loss:  # noqa: S311 - a lost packet is no secret
            return
        due_ns = now_ns
        if self.ns_per_byte:
            start_ns = max(now_ns, port.send_busy_ns)
            if start_ns - now_ns > self.queue_ns:
                return
            due_ns = port.send_busy_ns = start_ns + round((len(packet) - HEADER_BYTES) * self.ns_per_byte)
        self._add(due_ns + self.delay_ns, target, packet, crossed=not self.ns_per_byte)

    def arrive(self, now_ns: int) -> None:
        """Hand over what is due; a packet that has crossed waits, if need be, for the receiving end."""
        sent = 0
        travelling = self.travelling
        while travelling and travelling[0][0] <= now_ns and sent < _BATCH:
            due_ns, _, target, packet, crossed = heapq.heappop(travelling)
            if not crossed:
                length_ns = round((len(packet) - HEADER_BYTES) * self.ns_per_byte)
                # it has been coming in for as long as it was going out
                free_ns = max(due_ns, target.receive_busy_ns + length_ns)
                if free_ns - due_ns > self.queue_ns:
                    continue
                target.receive_busy_ns = free_ns
                if free_ns > now_ns:
                    self._add(free_ns, target, packet, crossed=True)
                    continue
            sent += 1
            if not target.cut:
                _write(target, packet)

    def wait_s(self, now_ns: int) -> float | None:
        """Return the seconds until the next packet is due; None if none is on its way."""
        return max(0, self.travelling[0][0] - now_ns) / _NS if self.travelling else None

    def _add(self, due_ns: int, target: Port, packet: bytes, *, crossed: bool) -> None:
        self.order += 1
        heapq.heappush(self.travelling, (due_ns, self.order, target, packet, crossed))


def carry(star: Star, cut_file: Path) -> None:
    """Carry packets until the uplink is taken away; SIGHUP reads `cut_file` again."""
    by_descriptor = {port.descriptor: port for port in star.ports.values()}
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_write)
    signal.signal(signal.SIGHUP, lambda *_: None)
    poll = select.epoll()
    for descriptor in (*by_descriptor, wake_read):
        poll.register(descriptor, select.EPOLLIN)
    now_ns = time.monotonic_ns
    while True:
        star.arrive(now_ns())
        wait_s = star.wait_s(now_ns())
        if not select.select([poll], [], [], wait_s)[0]:  # epoll itself counts in milliseconds
            continue
        for descriptor, event in poll.poll(0):
            if descriptor == wake_read:
                os.read(wake_read, 512)
                apply_cuts(star, cut_file)
            elif event & select.EPOLLERR:  # the host has died, and its device with it; the uplink goes last
                if by_descriptor[descriptor].uplink:
                    return
                poll.unregister(descriptor)
            else:
                port = by_descriptor[descriptor]
                for packet in _packets(descriptor):
                    star.take(port, packet, now_ns())


def apply_cuts(star: Star, cut_file: Path) -> None:
    """Take the signal from the cables of the hosts that the file names, and give it back to the others."""
    cut = {_packed(address) for address in json.loads(cut_file.read_text(encoding="utf-8"))}
    for address, port in star.ports.items():
        if port.cut != (address in cut):
            port.cut = address in cut
            fcntl.ioctl(port.descriptor, _TUNSETCARRIER, struct.pack("i", not port.cut))


def make_star(task: dict[str, Any]) -> Star:
    """Return the star that the task describes."""
    uplink = task["uplink"]
    rate_bits = task["rate_bits"]
    ns_per_byte = 8 * _NS / rate_bits if rate_bits else 0.0
    return Star(
        ports={_packed(name): Port(number, uplink=name == uplink) for name, number in task["ports"].items()},
        ns_per_byte=ns_per_byte,
        delay_ns=round(task["delay_s"] * _NS),
        loss=task["loss"],
        queue_ns=round(task["queue_bytes"] * ns_per_byte),
    )


def _packets(descriptor: int) -> Iterator[bytes]:
    for _ in range(_BATCH):
        try:
            yield os.read(descriptor, _LARGEST_BYTES)
        except OSError:  # nothing more
            return


def _write(port: Port, packet: bytes) -> None:
    try:
        os.write(port.descriptor, packet)
    except OSError:  # the device is down or gone: a packet lost, as on a cable
        return


def _packed(address: str) -> bytes:
    return bytes(int(part) for part in address.split("."))


def main() -> None:
    """Read the task, say that it is understood, carry."""
    text = sys.stdin.buffer.read()
    if not text:  # the launcher has died
        return
    task = json.loads(text)
    precise_timers()
    os.write(1, READY)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(null, descriptor)
    carry(make_star(task), Path(task["cut_file"]))


if __name__ == "__main__":
    main()
