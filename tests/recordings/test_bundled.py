"""The bundled recordings: whole, small, and of one machine throughout, though each text is edited by hand."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from nodectl.common.resources import recordings_dir
from nodectl.profiles.resolve import resolve

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("dgx-a100", "h100-8", "rtx4090-3")


def text(name: str, key: str) -> str:
    return (recordings_dir() / name / "node01" / f"{key}.out").read_text(encoding="utf-8")


def test_their_indexes_name_the_commands_of_today() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/index_recordings.py", "--check"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_its_profiles_work_together(name: str) -> None:
    about = yaml.safe_load((recordings_dir() / name / "recording.yml").read_text(encoding="utf-8"))
    assert about["made"] == "hand-written" and about["schema"] == "nodectl.recording/1"
    resolved = resolve(about["hardware"], about["stack"], about["tuning"])
    assert resolved.hardware.gpus == len(re.findall("(?m)^GPU 0000", text(name, "nvidia-smi-q")))


@pytest.mark.parametrize("name", NAMES)
def test_gpus_are_the_same_in_all_tools(name: str) -> None:
    report = re.findall(r"GPU UUID +: (\S+)", text(name, "nvidia-smi-q"))
    buses = [bus.lower() for bus in re.findall(r"Bus Id +: 0000(\S+)", text(name, "nvidia-smi-q"))]
    assert len(set(report)) == len(report) == len(set(buses))
    assert re.findall(r"GPU-[0-9a-f-]+", text(name, "nvidia-smi-query")) == report
    links = re.findall(r"GPU-[0-9a-f-]+", text(name, "nvidia-smi-nvlink"))
    assert links == (report if name != "rtx4090-3" else [])
    shown = re.findall(r"(?m)^(\S+) (?:3D|VGA compatible) controller: NVIDIA", text(name, "lspci-acs"))
    assert shown == sorted(buses)
    assert all(f"/{bus}\n" in text(name, "pci-tree") for bus in buses)


@pytest.mark.parametrize("name", NAMES[:2])
def test_rdma_devices_are_the_same_in_all_tools(name: str) -> None:
    names = re.findall(r"(?m)^CA '(\w+)'", text(name, "ibstat"))
    assert names == re.findall(r"NIC\d+: (\w+)", text(name, "nvidia-smi-topo"))
    assert names == re.findall(r"(?m)^hca_id:\t(\w+)", text(name, "ibv-devinfo"))
    assert names == re.findall(r"(?m)^link (\w+)/1", text(name, "rdma-link"))
    assert names == re.findall(r"(?m)^(\w+)/fw_ver:", text(name, "ib-sysfs"))
    guids = re.findall(r"Node GUID: 0x(\w+)", text(name, "ibstat"))
    sysfs = [each.replace(":", "") for each in re.findall(r"node_guid:(\S+)", text(name, "ib-sysfs"))]
    assert guids == sysfs and len(set(guids)) == len(names)
    places = re.findall(r"/pci:\S*/(\S+)", text(name, "ib-sysfs"))
    shown = re.findall(r"(?m)^(\S+) (?:Infiniband|Ethernet) controller: Mellanox", text(name, "lspci-acs"))
    assert sorted(places) == shown
