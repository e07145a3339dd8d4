"""The parts of the GPU probes' programs that need no torch: what a host shows, the watch, the crew, NUMA memory."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodectl.common.resources import payload_dir
from nodectl.payload.common import machine
from nodectl.payload.probes.device import h2d, hardware
from nodectl.payload.probes.device.devices import Crew


def tree(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def pci(bus: str, vendor: str, kind: str, numa: str = "0") -> dict[str, str]:
    at = f"sys/bus/pci/devices/{bus}"
    return {f"{at}/vendor": vendor, f"{at}/class": kind, f"{at}/numa_node": numa}


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty host: no PCI, no nvidia-smi."""
    for name in ("SYS", "PROC", "DEV"):
        monkeypatch.setattr(hardware, name, tmp_path / name.lower())
    monkeypatch.setattr(machine, "PCI", tmp_path / "sys/bus/pci/devices")
    monkeypatch.setattr(machine, "NODES", tmp_path / "sys/devices/system/node")
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    return tmp_path


def smi(host: Path, script: str) -> None:
    program = host / "bin/nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


GPU = pci("0000:18:00.0", "0x10de", "0x030200", "1")
NIC = pci("0000:19:00.0", "0x15b3", "0x020000")
NVSWITCH = pci("0000:1a:00.0", "0x10de", "0x068000")


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({}, None),
        ({"sys/bus/cpu/uevent": ""}, 0),
        (NIC, 0),
        (NVSWITCH, 0),
        ({**NIC, **GPU}, 1),
        ({**NIC, "proc/driver/nvidia/gpus/0000:18:00.0/information": "", "dev/nvidia0": "", "dev/nvidia1": ""}, 2),
        ({**NIC, "dev/nvidiactl": ""}, 0),
        ({**NIC, "dev/dxg": ""}, None),
    ],
    ids=["nothing is shown", "no PCI", "a NIC", "a switch", "a GPU", "two", "no GPU left", "elsewhere"],
)
def test_gpus_are_counted_and_none_is_said_only_where_it_is_certain(
    host: Path, files: dict[str, str], count: int | None
) -> None:
    tree(host, files)
    assert hardware.gpu_count() == count


def test_the_far_node_is_the_farthest_that_has_memory(host: Path) -> None:
    for node, (distances, kb) in {
        0: ("10 12 32 32", 9),
        1: ("12 10 32 40", 9),
        2: ("32 32 10 12", 9),
        3: ("32 40 12 10", 0),
    }.items():
        at = f"sys/devices/system/node/node{node}"
        tree(host, {f"{at}/cpulist": f"{4 * node}-{4 * node + 3}", f"{at}/distance": distances})
        tree(host, {f"{at}/meminfo": f"Node {node} MemTotal:  {kb} kB"})
    nodes = hardware.numa_nodes()
    assert sorted(nodes) == [0, 1, 2]
    assert hardware.farthest(0, nodes) == 2 and hardware.farthest(2, nodes) in (0, 1)
    assert hardware.farthest(0, {0: [10]}) is None
    assert machine.cpus_of(1) == [4, 5, 6, 7]
    assert h2d.nodes_for(0, 2) == (("near", 0), ("far", 2)) and h2d.nodes_for(None, None) == (("any", None),)


def until(true: Callable[[], Any], seconds: float = 20.0) -> Any:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends and not true():
        time.sleep(0.02)
    return true()


# each member says when it was let go; between its first and second step it waits for the others again
MEMBER = """
import json, os, sys, time
def say(**event):
    text = json.dumps(event)
    os.write(1, f"nodectl-frame/1 {{len(text)}} {{text}}\\n".encode())
gpu = int(sys.argv[1])
{body}
"""
STEPS = """
for step in range(2):
    time.sleep(0.15 * gpu)
    ready = time.monotonic()
    say(event="waiting")
    sys.stdin.readline()
    say(event="went", step=step, ready=ready, at=time.monotonic())
"""


def crew(body: str, gpus: list[int], seconds: float = 20.0) -> tuple[bool, list[dict[str, Any]], list[int]]:
    told: list[dict[str, Any]] = []
    members = Crew(lambda gpu: [sys.executable, "-c", MEMBER.format(body=body), str(gpu)], gpus)
    pids = [member.pid for member in members._members.values()]
    return members.play(lambda **event: told.append(event), seconds), told, pids


def test_members_of_a_crew_go_together() -> None:
    well, told, _ = crew(STEPS, [0, 1, 2])
    assert well and sorted((each["gpu"], each["step"]) for each in told) == [(g, s) for g in range(3) for s in range(2)]
    for step in range(2):
        own = [each for each in told if each["step"] == step]
        assert min(each["at"] for each in own) >= max(each["ready"] for each in own)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ('say(event="error", text="no memory") if gpu else None\nsys.exit(gpu)', "no memory"),
        ("os.kill(os.getpid(), 9) if gpu else None", "GPU 1: ended by signal 9"),
    ],
)
def test_one_that_dies_does_not_hold_the_others_up(body: str, text: str) -> None:
    well, told, _ = crew(STEPS.replace("time.sleep", "pass  # ") + body, [0, 1])
    assert not well and sum(each["event"] == "went" for each in told) >= 2
    assert [each["text"] for each in told if each["event"] == "error"] == [text]


def test_who_hangs_is_killed_at_the_deadline_and_named() -> None:
    well, told, pids = crew("time.sleep(60 if gpu == 2 else 0)", [1, 2], seconds=2.0)
    assert not well and [each["gpu"] for each in told] == [2] and "no end within 2 s" in told[0]["text"]
    for pid in pids:
        assert not Path(f"/proc/{pid}").exists()


def test_members_die_with_the_program_that_started_them() -> None:
    starter = (
        "import sys, os; sys.path.insert(0, sys.argv[1]); from payload.probes.device.devices import Crew\n"
        "c = Crew(lambda gpu: [sys.executable, '-c', 'import time; time.sleep(60)'], [0, 1])\n"
        "print(*[m.pid for m in c._members.values()], flush=True); os.kill(os.getpid(), 9)"
    )
    argv = [sys.executable, "-c", starter, str(payload_dir().parent)]
    pids = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False).stdout.split()
    assert len(pids) == 2 and until(lambda: not any(alive(pid) for pid in pids))


def alive(pid: str) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@pytest.mark.parametrize(
    ("script", "watts"),
    [
        ("echo '0, 2500, 10501, 61, 300, 4, 16, 512.5, 0x4'", 512.5),
        # a card that tells no moment, and a driver that knows no such column
        ("echo '0, 2500, 10501, 61, 300, 4, 16, [N/A], 0x4'", 300.0),
        ("case $* in *instant*) exit 6;; esac; echo '0, 2500, 10501, 61, 300, 4, 16, 0x4'", 300.0),
    ],
)
def test_the_watch_takes_the_power_of_the_moment_where_it_is_told(host: Path, script: str, watts: float) -> None:
    smi(host, script)
    watch, began = hardware.Watch().start(), time.monotonic()
    while not (seen := watch.between(0, began, time.monotonic()))["samples"] and time.monotonic() < began + 20:
        time.sleep(0.02)
    watch.stop()
    assert (seen["power_w"], seen["throttled"]) == (watts, ["power cap"])
