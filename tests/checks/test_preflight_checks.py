"""Each preflight check: when it fires, when it is quiet, and when it cannot tell."""

from dataclasses import replace
from typing import Any

import pytest

from nodectl.checks.launch.fleet import few, odd_ones
from nodectl.checks.launch.preflight import common_ports, judge
from nodectl.model.finding import Finding
from nodectl.model.preflight import NodeInfo, PreflightRequest
from nodectl.model.status import Status

REQUEST = PreflightRequest(candidate_ports=(21001, 21002, 21003), checkpoint_dir="/ckpt")
NAMES = ("a", "b", "c")


def node(name: str, **changes: Any) -> NodeInfo:
    number = NAMES.index(name) + 1
    base = NodeInfo(
        host=name,
        hostname=name,
        address=f"10.0.0.{number}",
        interface="eth1",
        own_addresses=(f"10.0.0.{number}",),
        peers={"a": ("10.0.0.1",), "b": ("10.0.0.2",), "c": ("10.0.0.3",)},
        network="10.0.0.0/24",
        mtu=9000,
        link_up=True,
        interfaces=("eth0", "eth1"),
        free_ports=REQUEST.candidate_ports,
        ephemeral_ports=(32768, 60999),
        python="3.9.2",
        launcher_sha256="ab" * 32,
        launcher_runs=True,
        venv_python="3.11.7",
        torch="2.13.0",
        nccl="2.27.3",
        cpu_count=8,
        gpu_count=4,
        state_dir="/root/.local/state/nodectl",
        state_error="",
        state_free_mib=9000,
        checkpoint_error="",
        checkpoint_free_mib=8000,
        running_jobs=(),
        shm_mib=1024,
        memlock_kib=None,
        rdma_devices=(),
        clock_offset_s=0.01 * number,
    )
    return replace(base, **changes)


def fleet(*names: str, **changes: dict[str, Any]) -> list[NodeInfo]:
    return [node(name, **changes.get(name, {})) for name in names]


def bad(findings: tuple[Finding, ...]) -> set[tuple[str, str, str]]:
    return {(one.host, one.check, one.status.value) for one in findings if one.status is not Status.OK}


def test_a_good_fleet_is_quiet_and_every_check_speaks() -> None:
    findings = judge(fleet("a", "b", "c"), REQUEST)
    assert bad(findings) == set()
    checks = {host: {one.check for one in findings if one.host == host} for host in NAMES}
    assert checks["a"] == checks["b"] == checks["c"] and len(checks["a"]) == 19


def test_a_single_host_has_nobody_to_disagree_with() -> None:
    findings = judge([node("a", clock_offset_s=None, own_addresses=("127.0.1.1",), link_up=False)], REQUEST)
    assert bad(findings) == set()


@pytest.mark.parametrize(
    ("check", "changes", "status", "actual"),
    [
        ("own_name", {"own_addresses": ()}, "failed", "unknown"),
        ("own_name", {"own_addresses": ("127.0.1.1", "::1")}, "warning", "127.0.1.1"),
        ("own_name", {"own_addresses": None}, "unknown", "did not answer"),
        ("interface", {"address": "", "interface": "", "network": "", "mtu": 0}, "unknown", "eth0, eth1"),
        ("interface", {"link_up": False}, "failed", "down"),
        ("launcher", {"launcher_sha256": ""}, "failed", "not there"),
        ("launcher", {"launcher_runs": False}, "failed", "not executable"),
        ("venv", {"venv_python": "", "torch": "", "nccl": ""}, "failed", "no Python"),
        ("state_folder", {"state_error": "No space left on device"}, "failed", "No space left"),
        ("state_folder", {"state_free_mib": 12}, "failed", "12 MiB"),
        ("state_folder", {"state_free_mib": None}, "unknown", "cannot be told"),
        ("checkpoint_folder", {"checkpoint_error": "Read-only file system"}, "failed", "Read-only"),
        ("checkpoint_folder", {"checkpoint_free_mib": None}, "unknown", "cannot be told"),
        ("gpus", {"gpu_count": None}, "unknown", "does not answer"),
        ("shared_memory", {"shm_mib": 64}, "warning", "64 MiB"),
        ("shared_memory", {"shm_mib": None}, "unknown", "no /dev/shm"),
        ("locked_memory", {"memlock_kib": 8192, "rdma_devices": ("mlx5_0",)}, "warning", "8192 KiB"),
        ("other_jobs", {"running_jobs": ("20260101-000000-ab12",)}, "warning", "20260101"),
        ("hostname", {"hostname": "a"}, "failed", "a has it too"),
        ("peer_names", {"peers": {"a": ("10.9.9.9",), "b": ("10.0.0.2",), "c": ("10.0.0.3",)}}, "warning", "10.9.9.9"),
        ("peer_names", {"peers": {"a": None, "b": ("10.0.0.2",), "c": ("10.0.0.3",)}}, "unknown", "no answer"),
        ("network", {"network": "192.168.1.0/24"}, "warning", "192.168.1.0/24"),
        ("mtu", {"mtu": 1500}, "warning", "1500"),
        ("launcher_version", {"launcher_sha256": "cd" * 32}, "failed", "cdcd"),
        ("python", {"venv_python": "3.12.1"}, "failed", "3.12"),
        ("torch", {"torch": "2.12.0"}, "failed", "2.12.0"),
        ("nccl", {"nccl": ""}, "failed", "none"),
        ("clock", {"clock_offset_s": 2.5}, "warning", "2.5 s ahead"),
        ("clock", {"clock_offset_s": -40.0}, "failed", "40.0 s behind"),
        ("clock", {"clock_offset_s": None}, "unknown", "did not arrive"),
    ],
)
def test_a_check_names_the_one_host_that_differs(check: str, changes: dict[str, Any], status: str, actual: str) -> None:
    findings = judge(fleet("a", "b", "c", b=changes), REQUEST)
    fired = [one for one in findings if one.check == check and one.status is not Status.OK and one.host == "b"]
    assert [one.status.value for one in fired] == [status]
    assert actual in fired[0].actual and fired[0].expected and fired[0].remedy
    expected_hosts = {"b", "a"} if check == "hostname" else {"b"}
    assert {host for host, _, _ in bad(findings)} == expected_hosts


def test_patch_versions_of_python_and_hosts_without_rdma_do_not_matter() -> None:
    assert bad(judge(fleet("a", "b", "c", b={"venv_python": "3.11.9", "memlock_kib": 64}), REQUEST)) == set()


def test_of_two_hosts_both_show_the_difference() -> None:
    findings = judge(fleet("a", "b", a={"torch": "2.12.0"}, b={"clock_offset_s": 6.01}), REQUEST)
    assert bad(findings) == {(host, check, "failed") for host in "ab" for check in ("torch", "clock")}
    said = {one.host: one.actual for one in findings if one.check == "clock"}
    assert said == {"a": "6.0 s behind", "b": "6.0 s ahead"}


def test_a_named_interface_must_be_on_every_host() -> None:
    request = replace(REQUEST, interface="ib0")
    gone = {"address": "", "interface": "", "network": "", "mtu": 0}
    without_address = {"address": "", "interface": "ib0", "network": "", "mtu": 2044}
    findings = [
        one for one in judge(fleet("a", "b", "c", b=gone, c=without_address), request) if one.check == "interface"
    ]
    assert [one.status.value for one in findings] == ["ok", "failed", "failed"]
    assert findings[1].actual == "no ib0 there; there are: eth0, eth1"
    assert findings[2].actual.startswith("ib0 has no address")


def test_the_code_to_be_copied_counts_as_needed_room() -> None:
    request = replace(REQUEST, code_bytes=9000 * 1024 * 1024)
    assert ("a", "state_folder", "failed") in bad(judge(fleet("a"), request))


def test_too_few_common_ports_blame_the_hosts_where_they_are_taken() -> None:
    nodes = fleet("a", "b", "c", a={"free_ports": (21001, 21002)}, b={"free_ports": (21001,)})
    assert bad(judge(nodes, REQUEST)) == {("a", "ports", "failed"), ("b", "ports", "failed")}
    assert bad(judge(fleet("a", "b", "c", a={"free_ports": (21001, 21002)}), REQUEST)) == set()


def test_ports_outside_ephemeral_ranges_come_first() -> None:
    request = replace(REQUEST, candidate_ports=(40000, 21002, 40001, 21001))
    nodes = [node("a", free_ports=(40000, 21001, 21002, 40001)), node("b", free_ports=(21001, 21002, 40000))]
    assert common_ports(nodes, request) == (21002, 21001, 40000)


def test_without_a_venv_no_versions_are_compared() -> None:
    request = replace(REQUEST, venv=None)
    assert bad(judge(fleet("a", "b", a={"torch": "", "venv_python": "", "nccl": "1"}), request)) == set()


@pytest.mark.parametrize(
    ("values", "reference", "odd"),
    [
        ({"a": "1", "b": "1"}, "1", ""),
        ({"a": "1", "b": "2"}, "", "ab"),
        ({"a": "1", "b": "2", "c": "2"}, "2", "a"),
        ({"a": "1", "b": "2", "c": "3"}, "", "abc"),
        ({}, "", ""),
    ],
)
def test_odd_ones(values: dict[str, str], reference: str, odd: str) -> None:
    assert odd_ones(values) == (reference, frozenset(odd))


def test_few_names() -> None:
    assert few(["a", "b"]) == "a, b"
    assert few(list("abcdef")) == "a, b, c, d and 2 more"
