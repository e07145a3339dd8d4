"""`nodectl topology`: exit statuses, JSON, and what is asked of whom."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import Cli, LabUnderTest
from tests.topology.fabrics import Fabric, three_level, two_level


def document(nodectl: Cli, *args: str, status: int = 0) -> dict[str, Any]:
    done = nodectl("topology", *args, "--output", "json", check=False)
    assert done.returncode == status, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["schema"] == "nodectl.topology/1"
    return found


def saved(tmp_path: Path, fabric: Fabric) -> str:
    path = tmp_path / "fabric.txt"
    path.write_text(fabric.text())
    return str(path)


def test_two_levels_of_128_hosts_are_three_hops(nodectl: Cli, tmp_path: Path) -> None:
    path = saved(tmp_path, two_level(128, 2))
    fabric = document(nodectl, "--fabric", "--fabric-from", path)["fabric"]
    assert fabric["max_hops"] == 3 and len(fabric["witness"]) == 5
    assert fabric["rank_order"] == [f"node{n:03}" for n in range(1, 129)]
    assert len(fabric["rails"]) == 2


def test_three_levels_fail_with_the_witness_and_a_higher_limit_lets_them_pass(nodectl: Cli, tmp_path: Path) -> None:
    path = saved(tmp_path, three_level())
    found = document(nodectl, "--fabric-from", path, status=1)
    assert found["fabric"]["max_hops"] == 5 and len(found["fabric"]["witness"]) == 7
    (failed,) = [each for each in found["findings"] if each["status"] == "failed"]
    assert failed["check"] == "fabric_hops" and " - ".join(found["fabric"]["witness"]) in failed["actual"]
    assert failed["hosts"] == [found["fabric"]["witness"][0], found["fabric"]["witness"][-1]]
    document(nodectl, "--fabric-from", path, "--max-hops", "5")


def inventory(tmp_path: Path, **hosts: Mapping[str, object]) -> str:
    path = tmp_path / "hosts.yml"
    path.write_text(yaml.safe_dump({"all": {"hosts": hosts, "vars": {"ansible_host": "192.0.2.1"}}}))
    return str(path)


def test_host_variables_order_the_ranks_and_no_host_is_asked(nodectl: Cli, tmp_path: Path) -> None:
    path = inventory(tmp_path, **{f"n{n}": {"nodectl_switch": f"leaf{n % 2}"} for n in range(4)})
    found = document(nodectl, "-i", path, "--fabric", status=3)
    assert found["fabric"]["rank_order"] == ["n0", "n2", "n1", "n3"] and found["fabric"]["max_hops"] is None
    assert found["hosts"] == {} and [each["status"] for each in found["findings"]] == ["unknown"]
    one = inventory(tmp_path, **{f"n{n}": {"nodectl_switch": "leaf"} for n in range(4)})
    assert document(nodectl, "-i", one, "--fabric")["fabric"]["max_hops"] == 1


def test_an_inventory_takes_its_own_hosts_from_the_file(nodectl: Cli, tmp_path: Path) -> None:
    path = saved(tmp_path, two_level(32))
    hosts = inventory(tmp_path, node001={}, node002={}, other={})
    found = document(nodectl, "-i", hosts, "--fabric-from", path, status=3)
    assert found["fabric"]["max_hops"] == 1 and found["fabric"]["rank_order"] == ["node001", "node002", "other"]
    assert [(each["host"], each["check"]) for each in found["findings"] if each["status"] == "unknown"] == [
        ("other", "fabric_host")
    ]


TOPO = """\
\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV4\tPIX\t0-7\t0
GPU1\tNV4\t X \tSYS\t8-15\t1
NIC0\tPIX\tSYS\t X

NIC Legend:

  NIC0: mlx5_0
"""


def test_a_folder_with_nothing_but_the_matrix(nodectl: Cli, tmp_path: Path) -> None:
    for host in ("a", "b"):
        (tmp_path / "rec" / host).mkdir(parents=True)
        (tmp_path / "rec" / host / "nvidia-smi-topo.out").write_text(TOPO)
    found = document(nodectl, "--replay", str(tmp_path / "rec"), "--svg", str(tmp_path / "p.svg"), status=3)
    host = found["hosts"]["a"]
    assert host["gpus"] == ["GPU0", "GPU1"] and host["gpu_nic"]["GPU0"]["nic"] == "NIC0"
    assert host["gpu_nic"]["GPU1"]["link"] == "SYS" and found["fabric"] is None
    assert {each["check"] for each in host["bottlenecks"]} == {"topology_gpu_without_near_nic", "topology_shared_nic"}
    assert [each["host"] for each in found["findings"] if each["status"] == "unknown"] == ["a", "b"]
    assert (tmp_path / "p.svg").read_text().startswith("<svg ")
    assert nodectl("topology", "--replay", str(tmp_path / "rec"), check=False).stdout.startswith("a,b: 2 x GPU")


def test_proposed_environments_are_written_once_and_over_nothing_of_others(nodectl: Cli, tmp_path: Path) -> None:
    args = ("topology", "--replay", "dgx-a100", "--propose-env")
    proposed = yaml.safe_load(nodectl(*args).stdout)["all"]["hosts"]["node01"]["nodectl_nccl_env"]
    assert proposed["NCCL_IB_HCA"].startswith("=mlx5_0:1,") and "NCCL_IB_GID_INDEX" not in proposed
    nodectl(*args, "--write", str(tmp_path))
    file = tmp_path / "node01" / "nccl.yml"
    assert yaml.safe_load(file.read_text()) == {"nodectl_nccl_env": proposed}
    nodectl(*args, "--write", str(tmp_path))
    file.write_text("mine: true\n")
    refused = nodectl(*args, "--write", str(tmp_path), check=False)
    assert refused.returncode == 2 and "not nodectl's" in refused.stderr and file.read_text() == "mine: true\n"


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [("", 1, "empty"), ("{", 1, "JSON")],
)
def test_a_file_that_cannot_be_read_is_refused(nodectl: Cli, tmp_path: Path, text: str, status: int, said: str) -> None:
    path = tmp_path / "f"
    path.write_text(text)
    done = nodectl("topology", "--fabric-from", str(path), check=False)
    assert done.returncode == status and str(path) in done.stderr and said in done.stderr and "try:" in done.stderr


def test_a_fabric_of_which_nobody_tells_is_unknown(nodectl: Cli, tmp_path: Path) -> None:
    (tmp_path / "rec" / "a").mkdir(parents=True)
    (tmp_path / "rec" / "a" / "nvidia-smi-topo.out").write_text(TOPO)
    found = document(nodectl, "--replay", str(tmp_path / "rec"), "--fabric", status=3)
    assert found["fabric"]["max_hops"] is None and found["fabric"]["rank_order"] == ["a"]
    assert "no nodectl_switch" in next(each["actual"] for each in found["findings"] if each["check"] == "fabric_hops")


def test_lldp_in_a_recording_tells_of_the_switches(nodectl: Cli, tmp_path: Path) -> None:
    for host, leaf in (("a", "leaf1"), ("b", "leaf1")):
        (tmp_path / "rec" / host).mkdir(parents=True)
        (tmp_path / "rec" / host / "nvidia-smi-topo.out").write_text(TOPO)
        chassis = {leaf: {"id": {"type": "mac", "value": "02:00:00:00:00:01"}}}
        text = json.dumps({"lldp": {"interface": {"eth1": {"chassis": chassis}}}})
        (tmp_path / "rec" / host / "lldpctl.out").write_text(text)
    fabric = document(nodectl, "--replay", str(tmp_path / "rec"), "--fabric", status=3)["fabric"]
    assert fabric["max_hops"] == 1 and fabric["witness"] == ["a", "leaf1", "b"]


@pytest.mark.lab
def test_launch_numbers_its_ranks_by_the_switches(nodectl: Cli, lab4: LabUnderTest, tmp_path: Path) -> None:
    switches = {host: {"nodectl_switch": f"leaf{n % 2}"} for n, host in enumerate(lab4.hosts)}
    more = tmp_path / "switches.yml"
    more.write_text(yaml.safe_dump({"all": {"hosts": switches}}))
    (tmp_path / "job.py").write_text("print(1)\n")
    args = ("launch", "--launcher", "/bin/true", "--dry-run", "--output", "json", str(tmp_path / "job.py"))
    plan = json.loads(nodectl("-i", lab4.inventory, "-i", str(more), *args).stdout)["plan"]
    first, second, third, fourth = lab4.hosts
    assert [host["name"] for host in plan["hosts"]] == [first, third, second, fourth]


@pytest.mark.lab
def test_hosts_without_gpus_are_skipped_where_their_profile_says_so(nodectl: Cli, lab4: LabUnderTest) -> None:
    found = document(nodectl, "-i", lab4.inventory, "-l", lab4.hosts[0])
    assert found["hosts"] == {} and [each["status"] for each in found["findings"]] == ["skipped"]
