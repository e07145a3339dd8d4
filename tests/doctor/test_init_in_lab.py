"""`nodectl init --from` on lab hosts that are dressed in recordings, and provisioning by what it wrote."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Cli

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def dressed(nodectl: Cli, lab_machine: None) -> Iterator[str]:
    """The inventory of two hosts that are dressed as rtx4090-3."""
    with nodectl.lab("tests-init", 2, "--as", "rtx4090-3") as lab:
        yield lab.inventory


@pytest.fixture(scope="module")
def fleet(nodectl: Callable[..., Any], dressed: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("init") / "fleet"
    done = nodectl("-i", dressed, "--output", "json", "init", str(folder), "--from", "node[01-02],node02")
    return folder, json.loads(done.stdout)


def test_the_hosts_are_reached_as_before_and_get_what_fits(
    nodectl: Callable[..., Any], fleet: tuple[Path, Any]
) -> None:
    folder, document = fleet
    (group,) = document["groups"]
    assert group == {
        "name": "rtx4090_3",
        "hosts": ["node01", "node02"],
        "nodectl_hardware": "rtx4090-3",
        "nodectl_stack": "cu128",
        "nodectl_tuning": "stock",
        "nodectl_driver": "keep",
    }
    assert nodectl("-i", str(folder / "hosts.yml"), "exec", "--", "hostname").stdout.split()


def test_one_that_cannot_be_reached_is_named_and_nothing_is_written(
    nodectl: Callable[..., Any], dressed: str, tmp_path: Path
) -> None:
    done = nodectl("-i", dressed, "init", str(tmp_path / "x"), "--from", "node01,nobody.invalid", check=False)
    assert done.returncode == 3 and "nobody.invalid: " in done.stderr and "--from node01" in done.stderr
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ("a b", "'a b' is no host"),
        ("node*", "patterns need an inventory"),
        (" , ", "names no host"),
        ("-x", "is no host"),
    ],
)
def test_what_is_no_host_is_told(nodectl: Callable[..., Any], tmp_path: Path, wanted: str, told: str) -> None:
    done = nodectl("init", str(tmp_path / "x"), f"--from={wanted}", check=False)
    assert done.returncode == 2 and told in done.stderr


@pytest.mark.slow
def test_a_stack_without_cuda_is_refused_unless_it_is_meant(
    nodectl: Callable[..., Any], fleet: tuple[Path, Any]
) -> None:
    at = ("-i", str(fleet[0] / "hosts.yml"), "-l", "node01", "provision", "--yes", "--tags", "limits")
    for hardware in ("rtx4090-3", "lab-cpu"):
        refused = nodectl(*at, "-e", "nodectl_stack=cpu", "-e", f"nodectl_hardware={hardware}", check=False)
        assert refused.returncode == 1 and "leaves idle" in refused.stderr
        assert "hardware rtx4090-3 with stack cu" in refused.stderr and "nodectl_misfit: allow" in refused.stderr
        assert "changed" not in refused.stderr.replace("nothing was changed", "")


@pytest.mark.slow
def test_a_check_ends_well_and_says_what_it_did_not_look_for(
    nodectl: Callable[..., Any], fleet: tuple[Path, Any]
) -> None:
    at = ("-i", str(fleet[0] / "hosts.yml"), "-l", "node01", "provision")
    checked = nodectl(*at, "--check")
    assert "not looked for: wheels of cu128 and packages of NVIDIA's repository" in checked.stderr
    refused = nodectl(*at, "--yes", check=False)
    assert refused.returncode == 1 and "cu128 is a stack for CUDA: look with --check" in refused.stderr


@pytest.mark.slow
def test_the_cpu_build_that_is_meant_is_installed_to_the_end(
    nodectl: Callable[..., Any], fleet: tuple[Path, Any]
) -> None:
    meant = ("-e", "nodectl_stack=cpu", "-e", "nodectl_misfit=allow")
    inventory = str(fleet[0] / "hosts.yml")
    nodectl("-i", inventory, "-l", "node01", "provision", "--yes", *meant)
    document = json.loads(nodectl("-i", inventory, "-l", "node01", "--output", "json", "facts").stdout)
    assert document["hosts"]["node01"]["versions"]["cuda"] is None
