"""What links can reach, by their kind, width and number, and the floors that this predicts if nobody measured."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, get_args

from nodectl.profiles.gpus import capability_of, model_of
from nodectl.profiles.schema import Floor, GpuLink

# GB/s each way of an NVLink: of the first generation, of the second to fourth, of the fifth. nvidia-smi shows this, or
# the signalling rate, which is up to 6 % more (26.562 on an H100)
NVLINK_GB_S = (20.0, 25.0, 50.0)
_NVLINK_OF = {1: 20.0, 2: 25.0, 3: 25.0, 4: 25.0, 5: 50.0}
# a GA102's links are half as wide: NVIDIA Ampere GA102 GPU Architecture
_GA102, _GA102_GB_S = "8.6", 14.0625
# GB/s each way of a lane, by generation: PCI-SIG's rates less the coding
PCIE_LANE_GB_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
# between sockets: as NCCL models it (https://github.com/NVIDIA/nccl-tests/issues/307)
_SOCKETS_GB_S = 10.0
# of these rates: what healthy machines of any board and processor reach
_COPY_PART, _NVLINK_PART, _PCIE_PART = 0.6, 0.5, 0.3
_NVLINK = re.compile(r"NV(\d{1,3})")


def pcie_gb_s(generation: object, lanes: object) -> float | None:
    """Return GB/s each way of a PCIe link; None if it is not known whole."""
    lane = PCIE_LANE_GB_S.get(generation) if isinstance(generation, int) else None
    return lane * lanes if lane and isinstance(lanes, int | float) and lanes > 0 else None


def nvlink_gb_s(gpu: str, links: int) -> float | None:
    """Return GB/s each way of so many NVLinks of a GPU by its name; None if the catalogue knows no NVLink of it."""
    model = model_of(gpu)
    if model is None or model.nvlink is None:
        return None
    return links * (_GA102_GB_S if capability_of(gpu) == _GA102 else _NVLINK_OF[model.nvlink[0]])


def predicted(probe: str, given: Mapping[str, Any]) -> Floor | None:
    """Return the floor that the links in a measurement's conditions predict; None if they tell none."""
    model = model_of(str(given.get("device")))
    if probe == "h2d" and given.get("memory") != "far" and not (model and model.unified):
        return _of_pcie(probe, given, _COPY_PART)
    if probe == "p2p":
        return _pair(given)
    if probe == "nccl" and given.get("collective") == "all_reduce" and given.get("gpus"):
        return (
            ring(given.get("model_busbw_gb_s"), given.get("link_class"))
            if given.get("model_limit") == "inside"
            else None
        )
    return None


def _of_pcie(probe: str, given: Mapping[str, Any], part: float) -> Floor | None:
    generation, lanes = given.get("pcie_gen"), given.get("pcie_width_now") or given.get("pcie_width")
    rate = pcie_gb_s(generation, lanes)
    return _floor(probe, rate, part, f"PCIe generation {generation}, {lanes:g} lanes") if rate else None


def _pair(given: Mapping[str, Any]) -> Floor | None:
    link, direct = str(given.get("link") or ""), given.get("connection") == "direct"
    if direct and (joined := _NVLINK.fullmatch(link)):
        rate = nvlink_gb_s(str(given.get("device")), int(joined[1]))
        return _floor("p2p", rate, _NVLINK_PART, f"{joined[1]} NVLinks") if rate else None
    if link == "SYS":
        return _floor("p2p", _SOCKETS_GB_S, _PCIE_PART, "the way between sockets")
    is_near = direct and link in ("PIX", "PXB") and bool(given.get("can_access_peer"))
    return _of_pcie("p2p", given, _COPY_PART if is_near else _PCIE_PART)


def ring(rate: object, link_class: object) -> Floor | None:
    """Return the floor of an all_reduce in one node, whose links allow so many GB/s; NVLink wants 1 GiB for that."""
    if not isinstance(rate, float) or link_class not in get_args(GpuLink):
        return None
    part, what, size = (_PCIE_PART, "PCIe", {}) if link_class == "pcie" else (_NVLINK_PART, "NVLink", {"size": "1G"})
    floor = _floor("nccl", rate, part, f"what {what} allows")
    return floor.model_copy(update={"conditions": {"collective": "all_reduce", **size}})


def _floor(probe: str, rate: float, part: float, what: str) -> Floor:
    source = f"predicted: {100 * part:.0f} % of {what}, {rate:.4g} GB/s each way"
    return Floor(probe=probe, value=round(part * rate, 1), unit="GB/s", source=source, is_predicted=True)
