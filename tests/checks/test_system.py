"""Processors and memory: all there, or not."""

import pytest

from nodectl.checks.system import hardware as system
from nodectl.facts.look import Lab
from nodectl.facts.processors import Cpu, Memory, Numa, NumaNode, cpu_set
from tests.checks.table import UNREAD, Case, found, plain

WANTED = plain(cpu={"model": "EPYC 7742", "sockets": 2, "cores": 128, "threads": 256}, memory_gb=1024)
CPU = Cpu("AMD EPYC 7742 64-Core Processor", "x86_64", 2, 128, 256, 8, online="0-255")
GIB = 1024


def cpu(**changes: object) -> dict[str, object]:
    values = {name: getattr(CPU, name) for name in CPU.__slots__}
    return {"cpu": Cpu(**{**values, **changes})}


def numa(*mib: int | None) -> dict[str, object]:
    return {**cpu(), "numa": Numa(tuple(NumaNode(n, "0-3", size, None) for n, size in enumerate(mib)))}


# 72 processors and their memory, and the GPU's memory as nodes of its own
GRACE_HOPPER = {
    **cpu(sockets=1),
    "numa": Numa((NumaNode(0, "0-71", 490_000, None), NumaNode(1, "", 97_000, None), NumaNode(2, "", 0, None))),
}


def memory(total: int, swap: int | None = 0, free: int | None = None) -> dict[str, object]:
    return {"memory": Memory(total, total, swap, 1024, swap_free_mib=free)}


CASES = [
    Case("cpu_model", "ok", cpu(), WANTED),
    Case("cpu_model", "failed", cpu(model="Intel(R) Xeon(R) Platinum 8480C"), WANTED),
    Case("cpu_model", "unknown", cpu(model=None), WANTED),
    Case("cpu_model", "unknown", {"cpu": UNREAD}, WANTED),
    Case("cpu_model", "nothing", cpu(model="anything"), plain()),
    Case("cpu_sockets", "ok", cpu(), WANTED),
    Case("cpu_sockets", "failed", cpu(sockets=1), WANTED),
    Case("cpu_sockets", "unknown", cpu(sockets=None), WANTED),
    Case("cpu_cores", "ok", cpu(), WANTED),
    Case("cpu_cores", "failed", cpu(cores=127), WANTED),
    Case("cpu_cores", "unknown", cpu(cores=None), WANTED),
    Case("cpu_threads", "ok", cpu(), WANTED),
    Case("cpu_threads", "failed", cpu(threads=128, online="0-127"), WANTED),
    Case("cpu_threads", "unknown", {"cpu": UNREAD}, WANTED),
    Case("cpu_offline", "ok", cpu()),
    Case("cpu_offline", "warning", cpu(online="0-3,8-255")),
    Case("cpu_offline", "unknown", cpu(online=None)),
    Case("memory_balance", "ok", numa(64000, 63000)),
    Case("memory_balance", "warning", numa(64000, 32000)),
    Case("memory_balance", "ok", GRACE_HOPPER),
    Case("memory_balance", "unknown", numa(64000, None)),
    Case("memory_size", "ok", memory(1_000 * GIB * 95 // 100), WANTED),
    Case("memory_size", "failed", memory(800 * GIB), WANTED),
    Case("memory_size", "unknown", {"memory": UNREAD}, WANTED),
    Case("memory_size", "nothing", memory(800 * GIB), plain()),
    Case("memory_available", "ok", memory(4096)),
    Case("memory_available", "ok", {"memory": Memory(4096, 500, 0, 64, huge_pages_mib=3000)}),
    Case("memory_available", "warning", {"memory": Memory(4096, 400, 0, 64)}),
    Case("memory_available", "unknown", {"memory": Memory(4096, None, 0, 64)}),
]


def test_a_lab_hosts_processors_are_the_machines() -> None:
    shared = {**numa(8192), **cpu(sockets=1), **memory(100), "lab": Lab("lab", ("cpu", "memory", "sys", "kernel"))}
    assert found(system, Case("", "", shared, WANTED)) == []
    dressed = {**shared, "lab": Lab("lab", ("cpu", "memory", "sys", "kernel"), "dgx-a100")}
    assert {each.check for each in found(system, Case("", "", dressed, WANTED)) if each.status == "failed"} == {
        "cpu_sockets",
        "memory_size",
    }


@pytest.mark.parametrize(("text", "count"), [("0-7", 8), ("0", 1), ("0-3,8,10-11", 7), ("", 0)])
def test_lists_of_cpus(text: str, count: int) -> None:
    assert len(cpu_set(text)) == count
