"""Each preflight check: when it fires, when it is quiet, and when it cannot tell."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from nodectl.checks.launch.candidate import Candidate, JobNeeds
from nodectl.checks.launch.container import container_engine
from nodectl.facts.gpus import Gpu, Gpus
from nodectl.facts.job import (
    Containers,
    Folder,
    FreePorts,
    GpuCount,
    GpuUsers,
    JobAddress,
    JobVenv,
    Launcher,
    Names,
    NeededPaths,
    RdmaDevices,
    RunningJobs,
    SharedMemory,
)
from nodectl.facts.parsers.linux.dmesg import Dmesg, KernelEvent
from nodectl.facts.services import Clock
from nodectl.facts.settings import SessionLimits
from nodectl.jobs.preflight import judge
from nodectl.model.facts import Unread
from nodectl.model.finding import Finding
from nodectl.model.status import Status

NEEDS = JobNeeds(candidate_ports=(21001, 21002, 21003), checkpoint_dir="/ckpt")
NAMES = ("a", "b", "c")


FALLEN = KernelEvent("xid", None, "0000:0f:00", 79, None, None, None, None, "GPU has fallen off the bus.")


def gpus(driver: str = "580.65", **status: Any) -> Gpus:
    """One GPU as `nvidia-smi -q` tells of it."""
    return Gpus(1, (Gpu(index=0, **status),), driver_version=driver, source="nvidia-smi-q")


def facts(name: str) -> dict[str, Any]:
    number = NAMES.index(name) + 1
    return {
        "names": Names(name, (f"10.0.0.{number}",)),
        "job_address": JobAddress(f"10.0.0.{number}", "10.0.0.0/24", "eth1", 9000, True, ("eth0", "eth1")),
        "free_ports": FreePorts(NEEDS.candidate_ports, (32768, 60999)),
        "launcher": Launcher("ab" * 32, True),
        "job_venv": JobVenv("3.11.7", "2.13.0", "2.27.3"),
        "gpu_count": GpuCount(4),
        "gpu_users": GpuUsers(()),
        "state_folder": Folder("/root/.local/state/nodectl", "", 9000),
        "checkpoint_folder": Folder("/ckpt", "", 8000),
        "needed_paths": NeededPaths({}),
        "containers": Containers({}),
        "shared_memory": SharedMemory(1024),
        "running_jobs": RunningJobs(()),
        "rdma_devices": RdmaDevices(()),
        "gpus": gpus(),
        "kernel_events": Dmesg(()),
        "limits": SessionLimits("unlimited", "1024", "8192"),
        "time": Clock(0.01 * number, 0.1),
    }


def node(name: str, needs: JobNeeds = NEEDS, **changes: Any) -> Candidate:
    """A good host; a change is of a fact's field (fact__field), or a whole fact (None: it was not read)."""
    known = facts(name)
    for path, value in changes.items():
        subject, _, part = path.partition("__")
        known[subject] = replace(known[subject], **{part: value}) if part else value
    known = {subject: value for subject, value in known.items() if value is not None}
    return Candidate(name, known, None, needs=needs, hosts=1)


def fleet(*names: str, needs: JobNeeds = NEEDS, **changes: dict[str, Any]) -> list[Candidate]:
    return [replace(node(name, needs, **changes.get(name, {})), hosts=len(names)) for name in names]


def bad(findings: Sequence[Finding]) -> set[tuple[str, str, str]]:
    return {(one.host, one.check, one.status.value) for one in findings if one.status is not Status.OK}


def test_a_good_fleet_is_quiet_and_every_check_speaks() -> None:
    findings = judge(fleet("a", "b", "c"))
    assert bad(findings) == set()
    checks = {host: {one.check for one in findings if one.host == host} for host in NAMES}
    assert checks["a"] == checks["b"] == checks["c"] and len(checks["a"]) == 22


@pytest.mark.parametrize(
    ("check", "changes", "status", "actual"),
    [
        ("launch_own_name", {"names__own": ()}, "failed", "unknown"),
        ("launch_own_name", {"names__own": ("127.0.1.1", "::1")}, "warning", "127.0.1.1"),
        ("launch_own_name", {"names__own": None}, "unknown", "did not answer"),
        (
            "launch_interface",
            {
                "job_address__address": "",
                "job_address__interface": "",
                "job_address__network": "",
                "job_address__mtu": 0,
            },
            "unknown",
            "eth0, eth1",
        ),
        ("launch_interface", {"job_address__link_up": False}, "failed", "down"),
        ("launch_script", {"launcher__sha256": ""}, "failed", "not there"),
        ("launch_script", {"launcher__executable": False}, "failed", "not executable"),
        ("launch_venv", {"job_venv__python": "", "job_venv__torch": "", "job_venv__nccl": ""}, "failed", "no Python"),
        ("launch_state_folder", {"state_folder__error": "No space left on device"}, "failed", "No space left"),
        ("launch_state_folder", {"state_folder__free_mib": 12}, "failed", "12 MiB"),
        ("launch_state_folder", {"state_folder__free_mib": None}, "unknown", "cannot be told"),
        ("launch_checkpoint_folder", {"checkpoint_folder__error": "Read-only file system"}, "failed", "Read-only"),
        ("launch_checkpoint_folder", {"checkpoint_folder__free_mib": None}, "unknown", "cannot be told"),
        ("launch_venv", {"job_venv__cuda": "none"}, "failed", "torch 2.13.0"),
        ("launch_cuda", {"job_venv__cuda": "13.0", "gpus": gpus("570.86.15")}, "failed", "driver 570.86.15"),
        ("launch_cuda", {"job_venv__cuda": "12.8", "gpus": gpus("520.61.05")}, "failed", "driver 520.61.05"),
        ("launch_gpus", {"gpu_count__count": None}, "unknown", "does not answer"),
        ("launch_shared_memory", {"shared_memory__size_mib": 64}, "warning", "64 MiB"),
        ("launch_shared_memory", {"shared_memory__size_mib": None}, "unknown", "no /dev/shm"),
        (
            "launch_locked_memory",
            {"limits__memlock": "8192", "rdma_devices__names": ("mlx5_0",)},
            "warning",
            "8192 KiB",
        ),
        (
            "launch_gpu_users",
            {"gpu_users__processes": ("pid 7 (python, bob), 9 MiB",)},
            "warning",
            "pid 7 (python, bob)",
        ),
        ("launch_other_jobs", {"running_jobs__ids": ("20260101-000000-ab12",)}, "warning", "20260101"),
        ("launch_hostname", {"names__hostname": "a"}, "failed", "a has it too"),
        ("launch_network", {"job_address__address": "10.0.0.1"}, "failed", "10.0.0.1 of eth1, as on a"),
        ("launch_interface", {"job_address__interface": "docker0"}, "failed", "docker0 10.0.0.2"),
        ("launch_xid", {"kernel_events": Dmesg((FALLEN,))}, "failed", "Xid 79 0000:0f:00: "),
        (
            "launch_xid",
            {"kernel_events": Unread("unknown", "dmesg: needs root")},
            "warning",
            "unknown: dmesg: needs root",
        ),
        ("launch_gpu_memory", {"gpus": gpus(ecc_volatile_uncorrectable=3)}, "failed", "3 since the driver"),
        ("launch_gpu_memory", {"gpus": gpus(remap_pending=True)}, "failed", "GPU 0: a row waits for a reset"),
        ("launch_gpu_memory", {"gpus": Unread("unknown", "printed too much")}, "warning", "printed too much"),
        ("launch_driver", {"gpus": gpus(driver="570.1")}, "failed", "570.1"),
        ("launch_network", {"job_address__network": "192.168.1.0/24"}, "warning", "192.168.1.0/24"),
        ("launch_mtu", {"job_address__mtu": 1500}, "warning", "1500"),
        ("launch_script_version", {"launcher__sha256": "cd" * 32}, "failed", "cdcd"),
        ("launch_python", {"job_venv__python": "3.12.1"}, "failed", "3.12"),
        ("launch_torch", {"job_venv__torch": "2.12.0"}, "failed", "2.12.0"),
        ("launch_nccl", {"job_venv__nccl": ""}, "failed", "none"),
        ("launch_clock", {"time__offset_s": 2.5}, "warning", "2.4 s ahead"),
        ("launch_clock", {"time__offset_s": -40.0}, "failed", "39.9 s behind"),
        ("launch_clock", {"time": None}, "unknown", "did not arrive"),
    ],
)
def test_a_check_names_the_one_host_that_differs(check: str, changes: dict[str, Any], status: str, actual: str) -> None:
    findings = judge(fleet("a", "b", "c", b=changes))
    fired = [one for one in findings if one.check == check and one.status is not Status.OK and one.host == "b"]
    assert [one.status.value for one in fired] == [status]
    assert actual in fired[0].actual and fired[0].expected and fired[0].remedy
    expected_hosts = {"b", "a"} if check == "launch_hostname" or "as on a" in actual else {"b"}
    assert {host for host, _, _ in bad(findings)} == expected_hosts


def test_a_job_of_one_host_needs_no_name_of_its_own() -> None:
    assert bad(judge(fleet("a", a={"names__own": ()}))) == {("a", "launch_own_name", "warning")}


def test_patch_versions_of_python_and_hosts_without_rdma_do_not_matter() -> None:
    assert bad(judge(fleet("a", "b", "c", b={"job_venv__python": "3.11.9", "limits__memlock": "64"}))) == set()


def test_a_named_interface_must_be_on_every_host() -> None:
    needs = replace(NEEDS, interface="ib0")
    gone = {"job_address__address": "", "job_address__interface": "", "job_address__network": "", "job_address__mtu": 0}
    without_address = {
        "job_address__address": "",
        "job_address__interface": "ib0",
        "job_address__network": "",
        "job_address__mtu": 2044,
    }
    findings = [
        one
        for one in judge(fleet("a", "b", "c", b=gone, c=without_address, needs=needs))
        if one.check == "launch_interface"
    ]
    assert [one.status.value for one in findings] == ["ok", "failed", "failed"]
    assert findings[1].actual == "no ib0 there; there are: eth0, eth1"
    assert findings[2].actual.startswith("ib0 has no address")


def test_the_code_to_be_copied_counts_as_needed_room() -> None:
    needs = replace(NEEDS, code_bytes=9000 * 1024 * 1024)
    assert ("a", "launch_state_folder", "failed") in bad(judge(fleet("a", needs=needs)))


def test_too_few_common_ports_blame_the_hosts_where_they_are_taken() -> None:
    nodes = fleet("a", "b", "c", a={"free_ports__free": (21001, 21002)}, b={"free_ports__free": (21001,)})
    assert bad(judge(nodes)) == {("a", "launch_ports", "failed"), ("b", "launch_ports", "failed")}
    assert bad(judge(fleet("a", "b", "c", a={"free_ports__free": (21001, 21002)}))) == set()


@pytest.mark.parametrize(
    ("built", "driver"), [("12.8", "525.60.13"), ("13.0", "580.65.06"), ("99.1", "580.1"), ("", "1")]
)
def test_a_driver_runs_newer_programs_of_its_major_cuda(built: str, driver: str) -> None:
    assert bad(judge(fleet("a", a={"job_venv__cuda": built, "gpus": gpus(driver)}))) == set()


def test_without_a_venv_no_versions_are_compared() -> None:
    needs = replace(NEEDS, venv=None)
    assert (
        bad(
            judge(
                fleet("a", "b", a={"job_venv__torch": "", "job_venv__python": "", "job_venv__nccl": "1"}, needs=needs)
            )
        )
        == set()
    )


@pytest.mark.parametrize(
    ("check", "asked", "wrong", "right", "actual"),
    [
        (
            "launch_paths",
            {"paths": (("/data", "any"),)},
            {"needed_paths__errors": {"/data": "No such file or directory"}},
            {"needed_paths__errors": {"/data": ""}},
            "/data: No such file or directory",
        ),
        ("launch_engine", {"engine": "deepspeed"}, {}, {"job_venv__engine": "0.15.4"}, "not there"),
    ],
)
def test_what_only_some_launches_need(
    check: str, asked: dict[str, Any], wrong: dict[str, Any], right: dict[str, Any], actual: str
) -> None:
    [found] = [one for one in judge([node("a", replace(NEEDS, **asked), **wrong)]) if one.check == check]
    assert (found.status, found.actual) == (Status.FAILED, actual) and found.remedy
    [found] = [one for one in judge([node("a", replace(NEEDS, **asked), **right)]) if one.check == check]
    assert found.status is Status.OK


@pytest.mark.parametrize(
    ("there", "engine", "actual"),
    [
        ({"docker": "a1", "podman": ""}, "docker", ["docker, image a1"] * 3),
        ({"podman": "a1"}, "podman", ["podman, image a1"] * 3),
        ({"docker": ""}, "docker", ["docker has no image img:1"] * 3),
        ({}, "", ["none is installed"] * 3),
    ],
)
def test_all_hosts_need_one_engine_and_one_image(there: dict[str, str], engine: str, actual: list[str]) -> None:
    hosts = fleet(
        *NAMES, needs=replace(NEEDS, image="img:1"), **{name: {"containers__images": there} for name in NAMES}
    )
    found = [one for one in judge(hosts) if one.check == "launch_container"]
    assert [one.actual for one in found] == actual and container_engine(hosts) == engine
    assert {one.status is Status.OK for one in found} == {"image a1" in actual[0]}
    other = [
        hosts[0],
        hosts[1],
        replace(hosts[2], facts={**hosts[2].facts, "containers": Containers({"docker": "b2"})}),
    ]
    if there == {"docker": "a1", "podman": ""}:
        odd = [one for one in judge(other) if one.check == "launch_container" and one.status is not Status.OK]
        assert [(one.host, one.actual) for one in odd] == [("c", "docker has another image of that name: b2")]


def test_a_host_that_answers_late_is_not_taken_for_one_whose_clock_is_off() -> None:
    busy = fleet("a", "b", "c", b={"time": Clock(-6.0, 6.5)})
    assert {one.status.value for one in judge(busy) if one.check == "launch_clock"} == {"ok"}
    off = fleet("a", "b", "c", b={"time": Clock(-12.0, 6.5)})
    assert bad(judge(off)) == {("b", "launch_clock", "failed")}
