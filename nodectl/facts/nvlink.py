"""The GPUs' NVLinks: state, rate and error counters of each."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from nodectl.common.counting import counted
from nodectl.errors import ParseError
from nodectl.facts.base import AbsentError, Fact, UnknownError, output, parsed_as
from nodectl.model.recording import Command, Recording

if TYPE_CHECKING:
    from nodectl.parsers.nvidia.smi_nvlink import NvidiaSmiNvlink, NvLink

_STATE = Command("nvidia-smi-nvlink", ("nvidia-smi", "nvlink", "-s"), deadline_s=20, hardware=True)
_ERRORS = Command("nvidia-smi-nvlink-errors", ("nvidia-smi", "nvlink", "-e"), deadline_s=20, hardware=True)


def _read(recording: Recording) -> NvidiaSmiNvlink:
    """Each link's state, and its error counters where those could be read too."""
    if not output(recording, _STATE.key).strip():
        # some GPUs without NVLink print nothing at all, others that they have none
        raise AbsentError("the GPUs have no NVLink")
    state: NvidiaSmiNvlink = parsed_as(recording, _STATE.key)
    if all(gpu.links == () for gpu in state.gpus):
        raise AbsentError("the GPUs have no NVLink")
    try:
        counters: NvidiaSmiNvlink = parsed_as(recording, _STATE.key, _ERRORS.key)
    except (AbsentError, UnknownError, ParseError):
        return state
    counted = {(gpu.index, link.link): link for gpu in counters.gpus for link in gpu.links or ()}
    gpus = []
    for gpu in state.gpus:
        links = (_counted(link, counted.get((gpu.index, link.link))) for link in gpu.links or ())
        gpus.append(gpu if gpu.links is None else replace(gpu, links=tuple(links)))
    return replace(state, gpus=tuple(gpus))


def _counted(link: NvLink, counters: NvLink | None) -> NvLink:
    if counters is None:
        return link
    # not by replace, which looks at every field: a host has a hundred links
    return type(counters)(
        counters.link,
        link.active,
        link.speed_gb_s,
        counters.replay_errors,
        counters.recovery_errors,
        counters.crc_errors,
        counters.errors,
        link.unavailable,
    )


def _words(nvlink: NvidiaSmiNvlink) -> str:
    active = Counter(sum(1 for link in gpu.links or () if link.active) for gpu in nvlink.gpus)
    return ", ".join(f"{gpus} x {counted(links, 'link')} active" for links, gpus in active.most_common())


FACT = Fact("nvlink", (_STATE, _ERRORS), _read, _words, row=630)
