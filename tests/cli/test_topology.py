"""`nodectl topology`: exit statuses, JSON, and what is asked of whom."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import Cli, LabUnderTest
from tests.topology.fabrics import Fabric, three_level


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


@pytest.mark.lab
def test_launch_numbers_its_ranks_by_the_switches(nodectl: Cli, lab4: LabUnderTest, tmp_path: Path) -> None:
    switches = {host: {"nodectl_switch": f"leaf{n % 2}"} for n, host in enumerate(lab4.hosts)}
    more = tmp_path / "switches.yml"
    more.write_text(yaml.safe_dump({"all": {"hosts": switches}}))
    (tmp_path / "job.py").write_text("print(1)\n")
    args = ("launch", "-e", "launcher_path=/bin/true", "--dry-run", "--output", "json", str(tmp_path / "job.py"))
    plan = json.loads(nodectl("-i", lab4.inventory, "-i", str(more), *args).stdout)["plan"]
    first, second, third, fourth = lab4.hosts
    assert [host["name"] for host in plan["hosts"]] == [first, third, second, fourth]
