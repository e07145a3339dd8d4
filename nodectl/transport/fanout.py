"""Work on many hosts in parallel, with a limit, results as they arrive, and Ctrl-C at any moment."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from nodectl.model.host import Host
from nodectl.model.result import CommandResult
from nodectl.transport.base import Transport

# hosts at a time by default
FORKS = 64

H = TypeVar("H")
T = TypeVar("T")


def fan_out(hosts: Sequence[H], work: Callable[[H], T], forks: int) -> Iterator[tuple[H, T]]:
    """Run `work` on each host, at most `forks` at a time; yield (host, result) in the order in which they end.

    An exception out of `work` is a bug and is raised here. When the caller stops, by Ctrl-C or by itself, no
    further host is begun; what runs ends with the transport.
    """
    waiting: queue.SimpleQueue[H] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[H, T | BaseException, bool]] = queue.SimpleQueue()
    stop = threading.Event()
    for host in hosts:
        waiting.put(host)
    # daemon threads: one that hangs on a dead host must not keep the process from ending
    for _ in range(min(forks, len(hosts))):
        threading.Thread(target=_serve, args=(waiting, done, work, stop), daemon=True).start()
    try:
        for _ in hosts:
            host, value, failed = done.get()
            if failed:
                raise value  # type: ignore[misc]
            yield host, value  # type: ignore[misc]
    finally:
        stop.set()


def _serve(
    waiting: queue.SimpleQueue[H],
    done: queue.SimpleQueue[tuple[H, T | BaseException, bool]],
    work: Callable[[H], T],
    stop: threading.Event,
) -> None:
    while not stop.is_set():
        try:
            host = waiting.get_nowait()
        except queue.Empty:
            return
        try:
            done.put((host, work(host), False))
        except BaseException as error:
            done.put((host, error, True))


def run_all(
    transport: Transport,
    hosts: Sequence[Host],
    argv: Sequence[str],
    *,
    timeout_s: float | None,
    forks: int,
) -> list[CommandResult]:
    """Run one command on all hosts; return the results in the hosts' order."""

    def work(host: Host) -> CommandResult:
        return transport.run(host, argv, timeout_s=timeout_s)

    by_name = {host.name: result for host, result in fan_out(hosts, work, forks)}
    return [by_name[host.name] for host in hosts]
