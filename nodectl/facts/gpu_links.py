"""How GPUs reach one another: the matrix, peer access, NVLink, and NVSwitch's fabric manager."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from nodectl.errors import ParseError
from nodectl.facts import units
from nodectl.facts.base import AbsentError, Fact, UnknownError, output, read_fact, told
from nodectl.model.gpus import FabricManager
from nodectl.model.recording import Command, Recording
from nodectl.model.system import Units

if TYPE_CHECKING:
    from nodectl.parsers.nvidia.smi_nvlink import NvidiaSmiNvlink
    from nodectl.parsers.nvidia.smi_p2p import NvidiaSmiP2p
    from nodectl.parsers.nvidia.smi_topo import NvidiaSmiTopo

_STATE = Command("nvidia-smi-nvlink", ("nvidia-smi", "nvlink", "-s"), deadline_s=20, hardware=True)
_ERRORS = Command("nvidia-smi-nvlink-errors", ("nvidia-smi", "nvlink", "-e"), deadline_s=20, hardware=True)
_TOPO = Command("nvidia-smi-topo", ("nvidia-smi", "topo", "-m"), deadline_s=20, hardware=True)
_P2P = Command("nvidia-smi-p2p", ("nvidia-smi", "topo", "-p2p", "r"), deadline_s=20, hardware=True)
_MANAGER = Command("fabric-manager", ("nv-fabricmanager", "--version"), hardware=True)


def _topology(recording: Recording) -> NvidiaSmiTopo:
    found: NvidiaSmiTopo = told(recording, _TOPO.key)
    return found


def _p2p(recording: Recording) -> NvidiaSmiP2p:
    found: NvidiaSmiP2p = told(recording, _P2P.key)
    return found


def _nvlink(recording: Recording) -> NvidiaSmiNvlink:
    """Each link's state, and its error counters where those could be read too."""
    if not output(recording, _STATE.key).strip():
        # some GPUs without NVLink print nothing at all, others that they have none
        raise AbsentError("the GPUs have no NVLink")
    state: NvidiaSmiNvlink = told(recording, _STATE.key)
    if all(gpu.links == () for gpu in state.gpus):
        raise AbsentError("the GPUs have no NVLink")
    try:
        counted: NvidiaSmiNvlink = told(recording, "nvidia-smi-nvlink", _ERRORS.key)
    except (AbsentError, UnknownError, ParseError):
        return state
    errors = {(gpu.index, link.link): link for gpu in counted.gpus for link in gpu.links or ()}
    gpus = []
    for gpu in state.gpus:
        links = []
        for link in gpu.links or ():
            known = errors.get((gpu.index, link.link))
            if known is not None:
                link = replace(
                    link,
                    replay_errors=known.replay_errors,
                    recovery_errors=known.recovery_errors,
                    crc_errors=known.crc_errors,
                    errors=known.errors,
                )
            links.append(link)
        gpus.append(gpu if gpu.links is None else replace(gpu, links=tuple(links)))
    return replace(state, gpus=tuple(gpus))


def _manager(recording: Recording) -> FabricManager:
    text = output(recording, _MANAGER.key)
    version = re.search(r"(?i)version\s*(?:is)?\s*:?\s*(\d+(?:\.\d+)+)", text)
    if version is None:
        raise ParseError(f"nv-fabricmanager: {text[:200]!r} names no version")
    known = read_fact(units.FACT, recording)
    unit = known.units.get("nvidia-fabricmanager") if isinstance(known, Units) else None
    return FabricManager(version[1], unit.active if unit else None, unit.enabled if unit else None)


TOPOLOGY = Fact("gpu_topology", lambda venv: (_TOPO,), _topology)
P2P = Fact("p2p", lambda venv: (_P2P,), _p2p)
NVLINK = Fact("nvlink", lambda venv: (_STATE, _ERRORS), _nvlink)
MANAGER = Fact("fabric_manager", lambda venv: (_MANAGER, *units.FACT.commands(venv)), _manager)
