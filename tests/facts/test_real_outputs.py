"""Real nvidia-smi of five drivers on seven kinds of GPU: nodectl's readers find the true values of each."""

from __future__ import annotations

import tarfile
from collections.abc import Mapping
from functools import cache, reduce
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodectl.facts.base import AbsentError
from nodectl.facts.gpus import GPU_TOPOLOGY_FACT, GPUS_FACT, NVLINK_FACT, P2P_FACT, Gpu
from nodectl.model.recording import Recording
from tests.facts.parsers.tool_outputs import SAMPLES
from tests.facts.recorded import recording

_FOLDER = SAMPLES.parent / "nvidia-smi"
_ARCHIVE = _FOLDER / "outputs.tar.xz"
pytestmark = pytest.mark.skipif(not _ARCHIVE.is_file(), reason="the outputs of the real nvidia-smi are not here")
VERSIONS = ("470", "525", "535", "550", "555")
GPUS = ("a100", "b200", "gb200", "gb300", "h100", "l40s", "t4")
_KEYS = {"nvidia_smi_query": "query-facts", "nvidia_smi_topo": "topo-m", "nvidia_smi_p2p": "topo-p2p-r"}
_KEYS |= {"nvidia_smi_nvlink": "nvlink-s", "nvidia_smi_nvlink_errors": "nvlink-e"}
TRUE: dict[str, tuple[str, int]] = yaml.safe_load(Path(__file__).with_name("real_outputs.yml").read_text())
_WORDS: dict[object, object] = {"enabled": True, "disabled": False, "default": "Default", "N/A": None}


@cache
def outputs() -> Mapping[str, str]:
    """The archive's texts by path: VERSION/GPU/KEY.out."""
    with tarfile.open(_ARCHIVE) as archive:
        files = {member.name.split("/", 1)[-1]: archive.extractfile(member) for member in archive if member.isfile()}
        return {name: file.read().decode() for name, file in files.items() if file and name.endswith(".out")}


def host(version: str, gpu: str, form: str = "q") -> Recording:
    names = {"nvidia_smi_q": form, **_KEYS}
    return recording(**{key: outputs()[f"{version}/{gpu}/{name}.out"] for key, name in names.items()})


@cache
def truth(gpu: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((_FOLDER / f"truth-{gpu}.yaml").read_text())
    return document


def true_value(device: dict[str, Any], path: str, unit: int) -> object:
    """The value at the path: of this device, else of all."""
    value: Any = reduce(lambda part, name: part.get(name, {}), path.split("."), device)
    return _WORDS.get(value, value) if not unit or value in _WORDS else value / unit


def wrong(gpus: tuple[Gpu, ...], gpu: str) -> list[tuple[object, ...]]:
    """Values that are read and are not the true ones."""
    found = []
    for seen, device in zip(gpus, truth(gpu)["devices"], strict=True):
        merged = {**truth(gpu)["device_defaults"], **device}
        assert seen.bus_id == device["pci"]["bus_id"]
        for name, (path, unit) in TRUE.items():
            value, expected = getattr(seen, name), true_value(merged, path, unit)
            if value != expected:
                found.append((name, value, expected, seen.unavailable.get(name)))
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("form", ["q", "qx"])
def test_a_report_holds_the_true_values(version: str, gpu: str, form: str) -> None:
    gpus = GPUS_FACT.read(host(version, gpu, form))
    assert (gpus.disputed, gpus.lost, gpus.warnings) == ("", (), ())
    # driver 470 prints no part number of the board
    assert [row for row in wrong(gpus.devices, gpu) if (version, row[0]) != ("470", "board_part_number")] == []


# under driver 470 the simulation below these outputs fails after 12 links
@pytest.mark.parametrize("version", VERSIONS[1:])
@pytest.mark.parametrize("gpu", GPUS)
def test_links_are_the_true_ones(version: str, gpu: str) -> None:
    # that of B200 has no links
    nvlink = {} if gpu == "b200" else truth(gpu).get("nvlink") or {}
    printed, count = host(version, gpu), nvlink.get("links_per_gpu", 0)
    topology, peers = GPU_TOPOLOGY_FACT.read(printed).links, P2P_FACT.read(printed).status
    assert {word for row in topology.values() for word in row.values()} == {f"NV{count}" if count else "PIX"}
    assert {word for row in peers.values() for word in row.values()} == {"OK" if count else "NS"}
    if not count:
        with pytest.raises(AbsentError):
            NVLINK_FACT.read(printed)
        return
    gpus = NVLINK_FACT.read(printed).gpus
    assert [len(each.links or ()) for each in gpus] == [count] * len(truth(gpu)["devices"])
    for link in (link for each in gpus for link in each.links or ()):
        assert link.active and link.speed_gb_s == nvlink["bandwidth_per_link_mbps"] / 1000
        assert (link.replay_errors, link.recovery_errors, link.crc_errors) == (0, 0, 0)
