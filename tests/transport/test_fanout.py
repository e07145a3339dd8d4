"""Work on many hosts: bounded, as it ends, and over when the caller stops."""

import threading
import time

import pytest

from nodectl.model.host import Host
from nodectl.transport.fanout import fan_out

HOSTS = [Host(f"h{number}", "x", connection="local") for number in range(20)]


def test_no_more_than_forks_at_a_time() -> None:
    lock, running, most = threading.Lock(), 0, 0

    def work(host: Host) -> str:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.02)
        with lock:
            running -= 1
        return host.name

    assert {name for _, name in fan_out(HOSTS, work, forks=4)} == {host.name for host in HOSTS}
    assert most == 4


def test_an_exception_is_not_lost() -> None:
    def work(host: Host) -> None:
        raise ZeroDivisionError(host.name)

    with pytest.raises(ZeroDivisionError):
        list(fan_out(HOSTS, work, forks=2))


def test_nothing_is_begun_after_the_caller_stopped() -> None:
    begun: list[str] = []

    def work(host: Host) -> None:
        begun.append(host.name)
        time.sleep(0.1)

    results = fan_out(HOSTS, work, forks=2)
    next(results)
    results.close()  # type: ignore[attr-defined]
    time.sleep(0.5)
    assert len(begun) <= 4
