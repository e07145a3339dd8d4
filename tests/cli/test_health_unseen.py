"""`nodectl health` on folders that nobody made for it: a few files, no profiles, odd numbers and names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nodectl.cli.terminal import as_json
from tests.conftest import Cli

XID = "[  100.000000] NVRM: Xid (PCI:0000:07:00): 79, pid=1, GPU has fallen off the bus.\n"


def folder(path: Path, **files: str) -> Path:
    host = path / "n1"
    host.mkdir()
    for key, text in files.items():
        (host / f"{key.replace('_', '-')}.out").write_text(text)
    return path


def strict(text: str) -> Any:
    def no_constant(name: str) -> None:
        raise ValueError(name)

    return json.loads(text, parse_constant=no_constant)


@pytest.mark.parametrize("more", [(), ("--stack", "cu128"), ("--hardware", "dgx-a100", "--stack", "cu128")])
def test_a_kernel_log_alone_tells_its_xids(nodectl: Cli, tmp_path: Path, more: tuple[str, ...]) -> None:
    argv = ("--replay", str(folder(tmp_path, dmesg=XID)), "health", "--output", "json", *more)
    done = nodectl(*argv, check=False)
    told = [(each["check"], each["action"]) for each in strict(done.stdout)["findings"] if each["status"] == "failed"]
    assert done.returncode == 1 and told == [("xid", "reboot")]


def test_profiles_beside_the_hosts_are_no_host(nodectl: Cli, tmp_path: Path) -> None:
    (folder(tmp_path, dmesg=XID) / "profiles" / "hardware").mkdir(parents=True)
    done = nodectl("--replay", str(tmp_path), "facts", "--output", "json")
    assert list(strict(done.stdout)["hosts"]) == ["n1"]


def test_a_tool_that_no_collector_runs_is_read_from_a_folder(nodectl: Cli, tmp_path: Path) -> None:
    port = "Infiniband device 'mlx5_0' port 1 status:\n\tdefault gid:\t fe80:0000:0000:0000:b83f:d203:0d00:0001\n"
    port += "\tbase lid:\t 0x1\n\tsm lid:\t\t 0x2\n\tstate:\t\t 4: ACTIVE\n\tphys state:\t 5: LinkUp\n"
    path = folder(tmp_path, ibstatus=f"{port}\trate:\t\t 200 Gb/sec (4X HDR)\n\tlink_layer:\t InfiniBand\n")
    told = strict(nodectl("--replay", str(path), "facts", "--output", "json").stdout)["hosts"]["n1"]["ib_ports"]
    assert [(each["device"], each["rate_gbit_s"]) for each in told] == [("mlx5_0", 200)]


def test_numbers_that_no_json_has_are_null() -> None:
    document = strict(as_json("x", {"a": [float("nan"), {"b": float("-inf")}, 1.5]}))
    assert document == {"schema": "nodectl.x/1", "a": [None, {"b": None}, 1.5]}


def test_a_load_that_is_no_number_is_not_told(nodectl: Cli, tmp_path: Path) -> None:
    path = folder(tmp_path, processes="load nan inf 0.1\ncount 5\n")
    done = nodectl("--replay", str(path), "facts", "--output", "json")
    assert "no load" in strict(done.stdout)["hosts"]["n1"]["processes"]["unknown"]


@pytest.mark.parametrize("what", [("health", "--write"), ("profile", "learn", "node01", "--output-file")])
def test_a_file_that_cannot_be_written_is_the_callers_fault(
    nodectl: Cli, tmp_path: Path, what: tuple[str, ...]
) -> None:
    done = nodectl("--replay", "dgx-a100", *what, str(tmp_path / "none" / "x"), check=False)
    assert done.returncode == 2 and "none/x: No such file" in done.stderr


def test_a_name_that_spells_out_to_millions_is_one_name(nodectl: Cli, tmp_path: Path) -> None:
    folder(tmp_path, dmesg=XID)
    (tmp_path / "n1").rename(tmp_path / "gpu[1-99999999]")
    done = nodectl("--replay", str(tmp_path), "facts")
    assert "gpu[1-99999999]" in done.stdout
