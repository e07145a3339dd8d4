"""Before anything is measured: devices, ports, GIDs, GPUs and rails."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.probes.endpoints import Endpoint
from nodectl.probes.rdma.argv import End, RdmaOptions, Size, command
from nodectl.probes.rdma.ready import Nic, Site, rails_of, ready, site_of
from tests.probes.scripted_rdma import gid, look, port

CUDA = {"ib_write_bw": {"version": "24.01", "options": ["--use_cuda", "--use_cuda_dmabuf"]}}
NEAR, FAR = "/sys/devices/pci0000:80/0000:80:01.0/0000:82:00.0", "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0"


def site(name: str = "node01", variables: dict[str, Any] | None = None, **more: Any) -> Site:
    host = Host(name, "192.0.2.1", variables=variables or {})
    endpoint = Endpoint(host, "192.0.2.1", "eth0", 1500, 1, None, None, 0)
    return site_of(endpoint, look(name, **more))


def judged(*sites: Site, **options: Any) -> tuple[dict[str, dict[str, Nic]], list[tuple[str, Status, str]]]:
    nics, findings = ready(sites, RdmaOptions(**options), ["ib_write_bw"])
    assert all(each.remedy for each in findings)
    return nics, [(each.subject, each.status, each.host) for each in findings]


def test_a_healthy_port_is_ready_with_the_gid_of_its_address() -> None:
    nics, findings = judged(site())
    assert findings == []
    end = nics["node01"]["0"].end
    assert (end.device, end.port, end.gid_index, end.gpu) == ("mlx5_0", 1, 3, None)


IB = {"link_layer": "InfiniBand"}
V6 = {"index": 1, "gid": "fe80:0000:0000:0000:004e:0aff:fe40:0001", "type": "RoCE v2", "netdev": "eth0"}


@pytest.mark.parametrize(
    ("more", "options", "kind", "status"),
    [
        ({"state": "DOWN", "physical_state": "Disabled"}, {}, "port_down", Status.FAILED),
        ({"state": "INIT", **IB}, {}, "no_subnet_manager", Status.FAILED),
        ({"gids": [gid(0, "node01", "IB/RoCE v1")]}, {}, "bad_gid", Status.FAILED),
        ({}, {"gid_index": 7}, "bad_gid", Status.FAILED),
        ({}, {"device": ("mlx5_9",)}, "no_device", Status.FAILED),
        ({"verbs": {"error": "Permission denied"}}, {}, "no_permission", Status.FAILED),
        ({}, {"memory": "gpu"}, "gpu_memory", Status.SKIPPED),
    ],
)
def test_a_port_that_cannot_be_measured(
    more: dict[str, Any], options: dict[str, Any], kind: str, status: Status
) -> None:
    nics, findings = judged(site(ports=[port("node01", **more)]), **options)
    assert (nics["node01"], findings) == ({}, [(kind, status, "node01")])


@pytest.mark.parametrize(
    ("gids", "options", "index"),
    [
        ([V6, gid(2, "node01", netdev="eth1"), gid(5, "node01")], {}, 5),
        ([gid(2, "node01", netdev="eth1")], {}, 2),
        ([V6], {}, 1),
        ([gid(5, "node01"), gid(6, "node01")], {"gid_index": 6}, 6),
    ],
)
def test_the_gid_that_is_chosen(gids: list[dict[str, Any]], options: dict[str, Any], index: int) -> None:
    nics, _ = judged(site(ports=[port("node01", gids=gids)]), **options)
    assert nics["node01"]["0"].end.gid_index == index


@pytest.mark.parametrize(
    ("adapters", "others", "status"),
    [
        # no hardware anywhere is no fault
        ([], [], Status.SKIPPED),
        # an adapter without driver, and the one host of several that has lost its adapter, are
        (["0000:81:00.0"], [], Status.FAILED),
        ([], [site("node02")], Status.FAILED),
    ],
)
def test_a_host_without_device(adapters: list[str], others: list[Site], status: Status) -> None:
    _, findings = judged(site(ports=[], adapters=adapters, programs={}), *others)
    assert findings == [("no_device", status, "node01")]


@pytest.mark.parametrize(
    ("gpus", "programs", "expected"),
    [
        ({"open_modules": True, "peermem": True}, CUDA, (1, True)),
        ({"open_modules": False, "peermem": True}, CUDA, (1, False)),
        ({"open_modules": False, "peermem": False}, CUDA, (1, True)),
        ({"peermem": True}, {"ib_write_bw": {"version": "4.5", "options": ["--use_cuda"]}}, (1, False)),
        ({"peermem": False}, {"ib_write_bw": {"version": "4.5", "options": ["--use_cuda"]}}, Status.FAILED),
        ({"peermem": True}, {"ib_write_bw": {"version": "4.5", "options": []}}, Status.UNKNOWN),
        ({"paths": []}, CUDA, Status.UNKNOWN),
    ],
)
def test_the_gpu_beside_the_nic_and_the_way_to_its_memory(
    gpus: dict[str, Any], programs: dict[str, Any], expected: object
) -> None:
    there = {"on_bus": 2, "paths": [FAR, NEAR], "peermem": False, "open_modules": False, **gpus}
    nics, findings = judged(site(gpus=there, programs=programs), memory="gpu")
    if isinstance(expected, Status):
        assert findings == [("gpu_memory", expected, "node01")]
    else:
        end = nics["node01"]["0"].end
        assert (end.gpu, end.dmabuf) == expected


@pytest.mark.parametrize(
    ("said", "labels"),
    [
        (None, ["0", "1", "2"]),
        (["a", "b", "c"], ["a", "b", "c"]),
        ({"mlx5_2": "b", "mlx5_10": "c", "eth9": "a"}, ["a", "b", "c"]),
        # a name for all does not tell them apart, and a list of another length names none
        ("leaf", ["0", "1", "2"]),
        (["a", "b"], ["0", "1", "2"]),
        (["a", "a", "c"], ["0", "1", "c"]),
    ],
)
def test_rails_by_the_inventory_or_by_place(said: object, labels: list[str]) -> None:
    ports = [port("node01", "mlx5_10"), port("node01", "mlx5_0", netdev="eth9"), port("node01", "mlx5_2")]
    found = rails_of(site(variables={"nodectl_rail": said}, ports=ports))
    assert [(label, each.device) for label, each in found] == list(
        zip(labels, ["mlx5_0", "mlx5_2", "mlx5_10"], strict=True)
    )


@pytest.mark.parametrize(
    ("operation", "end", "size", "written"),
    [
        ("write", End("mlx5_0", 1), Size(8 << 20, seconds=2),
         "ib_write_bw -d mlx5_0 -i 1 -s 8388608 -F -D 2 --report_gbits"),
        ("write", End("mlx5_0", 1, gpu=0), Size(4096, seconds=1),
         "ib_write_bw -d mlx5_0 -i 1 -s 4096 -F -D 1 --report_gbits --use_cuda=0"),
    ],
)  # fmt: skip
def test_what_an_end_is_told(operation: str, end: End, size: Size, written: str) -> None:
    assert shlex.join(command(operation, end, size)) == written
