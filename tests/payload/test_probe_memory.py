"""probes/memory as a node runs it, and what it reads of a machine."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nodectl.common.resources import payload_dir
from nodectl.payload.common import machine
from nodectl.payload.common.frames import texts
from nodectl.payload.probes.memory import Rates, best_of_ten, sustained
from tests.torch_venv import torch_venv

PROGRAM = (str(payload_dir() / "run.py"), "probes.memory")
QUICK = ("--seconds=0.01", "--repetitions=2", "--runs=2")


def run(*args: str, python: str = sys.executable) -> list[dict[str, Any]]:
    done = subprocess.run([python, "-B", *PROGRAM, *args], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(text) for text in texts(done.stdout)]


def check(events: list[dict[str, Any]], kernels: set[str]) -> None:
    assert {event["kernel"] for event in events} == kernels
    for event in events:
        assert len(event["runs_gb_s"]) == 2 and all(rate > 0.05 for rate in event["runs_gb_s"])
        assert len(event["sustained_gb_s"]) == 2 and all(rate > 0.05 for rate in event["sustained_gb_s"])
        assert event["threads"] >= 1 and event["array_bytes"] >= machine.LEAST_BYTES
    assert [event["numa"] for event in events][: len(kernels)] == [None] * len(kernels)


def test_the_c_library_copies() -> None:
    check(run("measure", "--method=libc", *QUICK), {"copy"})


@pytest.mark.slow
def test_torch_copies_and_adds() -> None:
    check(run("measure", "--method=torch", *QUICK, python=f"{torch_venv()}/bin/python"), {"copy", "triad"})


def test_look_says_what_there_is(tmp_path: Path) -> None:
    (tmp_path / "lib/python3.11/site-packages/torch-2.9.0.dist-info").mkdir(parents=True)
    (plain,), (with_torch,) = run("look"), run("look", "--venv", str(tmp_path))
    assert plain["methods"] == ["libc"] and plain["machine"]
    assert with_torch["methods"] == ["torch", "libc"]


@pytest.mark.parametrize(
    ("repetitions", "best"),
    [
        ([Rates(5.0, [4.0, 6.0, 5.0])], 6.0),
        # passes of both repetitions are one run
        ([Rates(5.0, [4.0] * 5), Rates(5.0, [7.0, *[4.0] * 4])], 7.0),
        # one lucky pass of thirty says little: ten passes of STREAM would mostly miss it
        ([Rates(5.0, [9.0, *[4.0] * 29])], 4.0),
        ([Rates(5.0, [9.0, 8.0, 4.0] * 10)], 8.0),
        # single passes are not timed: the best repetition
        ([Rates(5.0, []), Rates(6.0, [])], 6.0),
    ],
)
def test_the_best_of_ten_passes_counts(repetitions: list[Rates], best: float) -> None:
    assert best_of_ten(repetitions) == best
    assert sustained(repetitions) == max(each.sustained for each in repetitions)


def sysfs(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight processors: four cores of two threads, two caches of 16 MiB, two NUMA nodes."""
    for cpu in range(8):
        core = cpu % 4
        files = {
            "topology/thread_siblings_list": f"{core},{core + 4}",
            "cache/index0/level": "1",
            "cache/index0/type": "Data",
            "cache/index0/size": "32K",
            "cache/index0/shared_cpu_list": f"{core},{core + 4}",
            "cache/index3/level": "3",
            "cache/index3/type": "Unified",
            "cache/index3/size": "16M",
            "cache/index3/shared_cpu_list": "0-1,4-5" if core < 2 else "2-3,6-7",
        }
        for name, text in files.items():
            path = root / f"cpu{cpu}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
    for node, cpus in enumerate(("0-1,4-5", "2-3,6-7")):
        (root / f"node{node}").mkdir()
        (root / f"node{node}" / "cpulist").write_text(cpus + "\n")
    monkeypatch.setattr(machine, "CPU", root)
    monkeypatch.setattr(machine, "NODES", root)


def test_a_thread_a_core_and_a_scope_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sysfs(tmp_path, monkeypatch)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    assert machine.scopes() == [(None, [0, 1, 2, 3]), (0, [0, 1]), (1, [2, 3])]
    assert machine.cache_bytes([0, 1, 2, 3]) == 32 << 20 and machine.cache_bytes([2]) == 16 << 20
    # a control group that leaves one node only
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    assert machine.scopes() == [(None, [0, 1])]


def test_arrays_are_beyond_the_cache_and_leave_the_host_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_bytes", lambda: 64 << 30)
    assert machine.array_bytes(32 << 20, 3) == 128 << 20
    monkeypatch.setattr(machine, "available_bytes", lambda: 600 << 20)
    assert machine.array_bytes(32 << 20, 3) == 50 << 20
    monkeypatch.setattr(machine, "available_bytes", lambda: 0)
    assert machine.array_bytes(32 << 20, 3) == machine.LEAST_BYTES
