"""Hosts with RDMA ports that answer as a test tells them to, and perftest's recorded words."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from tests.probes import scripted
from tests.probes.rdma_samples import FIXTURES, recorded
from tests.probes.scripted import ENDPOINT, HOSTS, Answer, Fleet

PROGRAMS = ("ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat", "ib_send_lat", "ib_read_lat")
LISTENING = Answer([{"event": "listening", "port": 40001, "pid": 77}])


def address_of(host: str) -> str:
    return next(each.address for each in HOSTS if each.name == host)


def gid(index: int, host: str, version: str = "RoCE v2", netdev: str = "eth0") -> dict[str, Any]:
    """As sysfs writes an IPv4 address."""
    numbers = [int(part) for part in address_of(host).split(".")]
    tail = f"{numbers[0]:02x}{numbers[1]:02x}:{numbers[2]:02x}{numbers[3]:02x}"
    return {"index": index, "gid": f"0000:0000:0000:0000:0000:ffff:{tail}", "type": version, "netdev": netdev}


def port(host: str, device: str = "mlx5_0", **more: Any) -> dict[str, Any]:
    """A healthy RoCE port."""
    return {
        "device": device, "port": 1, "state": "ACTIVE", "physical_state": "LinkUp", "rate_gbit_s": 0.25,
        "link_layer": "Ethernet", "netdev": "eth0", "carrier_changes": 1, "numa_node": 1, "cpus": [4, 5, 6, 9],
        "pci": "/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0", "gids": [gid(0, host, "IB/RoCE v1"), gid(3, host)],
        "networks": ["192.0.2.0/24"], "verbs": {"mtu": 4096, "mtu_max": 4096}, **more,
    }  # fmt: skip


def look(host: str, **more: Any) -> dict[str, Any]:
    """What the payload says of a host with one such port."""
    options = ["--report_gbits"]
    return {
        "event": "rdma", "ports": [port(host)], "adapters": ["0000:81:00.0"],
        "programs": {name: {"version": "6.06", "options": options} for name in PROGRAMS},
        "memlock": {"soft": -1, "hard": -1, "exempt": False},
        "gpus": {"on_bus": 0, "paths": [], "peermem": False, "open_modules": False}, **more,
    }  # fmt: skip


def told(name: str, **more: Any) -> dict[str, Any]:
    """A run of which the recording of this name was printed."""
    run = recorded(FIXTURES / f"{name}.txt")
    return {
        "argv": list(run.argv), "status": run.exit_status, "stdout": run.stdout, "stderr": "", "timed_out": False,
        "cpus": [4, 5], "link": {"state": "ACTIVE", "carrier_changes": 1}, **more,
    }  # fmt: skip


Tests = Callable[[int, Mapping[str, Any]], dict[str, Any]]


def rdma_fleet(
    monkeypatch: pytest.MonkeyPatch, tests: Tests, looks: Mapping[str, Mapping[str, Any]] | None = None, **more: Any
) -> Fleet:
    """`tests` gives the event of each test of a plan; `looks` what is otherwise on a host; `more` is the leader's."""

    def answer(host: str, module: str, args: Sequence[str]) -> Answer:
        if module == "probes.endpoints":
            return Answer([{**ENDPOINT, "address": address_of(host)}])
        if args[0] == "look":
            return Answer([look(host, **(looks or {}).get(host, {}))])
        if args[0] == "serve":
            return LISTENING
        plan = json.loads(args[args.index("--plan") + 1])
        peer = args[args.index("--address") + 1]
        ways = [address_of(host), peer]
        runs = [
            {"event": "run", "test": number, "addresses": ways, "gone": "", **tests(number, {**test, "host": host})}
            for number, test in enumerate(plan)
        ]
        return Answer(runs, **more)

    return scripted.play(monkeypatch, answer)


def plans(fleet: Fleet) -> list[list[dict[str, Any]]]:
    """The tests that each client was given."""
    return [json.loads(args[args.index("--plan") + 1]) for _, _, args in fleet.asked if args[0] == "measure"]
