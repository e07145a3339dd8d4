"""Whether the power supplies give what the GPUs are allowed to draw, beside processors and board."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from nodectl.checks.check import Check, Subject, judges, warning_unless
from nodectl.checks.gpu.rules import gpus_of
from nodectl.common.counting import counted
from nodectl.facts.base import tally
from nodectl.facts.board import PowerSupplies, PowerSupply
from nodectl.facts.gpus import Gpu
from nodectl.facts.last_boot import LastBoot
from nodectl.facts.processors import Cpu
from nodectl.model.facts import Unread
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.profiles.gpus import power

ORDER = 161
VARIABLE = "nodectl_psu_watt"

_STEP_W = 5
_NUMBER = re.compile(r"([1-9]\d{1,5})(?:\.0)? *W?", re.IGNORECASE)
PSU_POWER = Check(
    "psu_power",
    looks_at=f"`dmidecode -t 39` or the variable {VARIABLE}, nvidia-smi's power limits",
    fires="the GPUs' limits alone are more than the supplies give; warning: they are with processors and board, or "
    "with one redundant supply gone; a spike is beyond what ATX 3 bears, after a boot that simply stopped the rating",
)


@judges(PSU_POWER, reads=("power_supplies", "gpus", "cpu", "last_boot", "lab"), variables=(VARIABLE,))
def psu_power(host: Subject) -> Iterator[Finding]:
    """Compare the sum of the enforced limits and the rest's share with the supplies' rating."""
    gpus, given = gpus_of(host), host.variables.get(VARIABLE)
    if not gpus or host.borrows("sys"):
        return
    if given is not None and "{{" not in str(given):
        match = None if isinstance(given, bool) else _NUMBER.fullmatch(str(given).strip())
        if match is None:
            remedy = f"{VARIABLE}: the watts that all supplies give together, without redundant ones, as 1600"
            yield host.finding(PSU_POWER, Status.UNKNOWN, actual=f"{VARIABLE}: {given!r} is no watts", remedy=remedy)
        else:
            yield _judged(host, gpus, (PowerSupply(VARIABLE, int(match[1]), "", False),))
        return
    found = host.facts.get("power_supplies")
    if isinstance(found, Unread) and found.kind == "unknown":
        yield from host.unread(PSU_POWER, found, "the supplies' rating")
    elif found is not None:
        supplies = found.supplies if isinstance(found, PowerSupplies) else ()
        usable = tuple(supply for supply in supplies if supply.counts)
        if usable and all(supply.watt for supply in usable):
            yield _judged(host, gpus, usable)
        else:
            yield host.finding(PSU_POWER, Status.SKIPPED, actual=f"the firmware tells no rating; {VARIABLE} can say it")


def _judged(host: Subject, gpus: Sequence[Gpu], supplies: Sequence[PowerSupply]) -> Finding:
    limits = [gpu.power_limit_enforced_w or gpu.power_limit_w for gpu in gpus]
    if None in limits:
        return host.finding(PSU_POWER, Status.SKIPPED, actual="a GPU tells no power limit")
    figures, cpu = power(), host.fact("cpu", Cpu)
    drawn = sum(limit for limit in limits if limit)
    share = figures.socket_watt * ((cpu.sockets if cpu else None) or 1) + figures.board_watt
    ratings = [supply.watt or 0 for supply in supplies]
    whole = sum(ratings)
    # one of several that stand in for each other may fail
    spare = max(ratings) if len(ratings) > 1 and all(supply.redundant for supply in supplies) else 0
    spike = sum((limit or 0) * figures.spike(gpu.name or "") for limit, gpu in zip(limits, gpus, strict=True)) + share
    # after a boot that simply stopped a supply is not trusted with more than its rating
    stopped = (boot := host.fact("last_boot", LastBoot)) is not None and boot.way == "stopped"
    borne = whole if stopped else whole * figures.bears
    fits = drawn + share <= whole - spare and spike <= max(borne, drawn + share)
    status = Status.FAILED if drawn > whole else warning_unless(fits)
    safe = min(whole - spare - share, (borne - share) * drawn / max(spike - share, 1.0))
    units = tally(Counter(f"{watt} W" for watt in ratings))
    counts = f"{len(ratings) - 1} of {units}: one may fail" if spare else units
    told = f", for a moment up to {spike:.0f} W" if spike > max(whole, drawn + share) else ""
    return host.finding(
        PSU_POWER,
        status,
        expected=f"at most {whole - spare} W ({counts})",
        actual=f"{counted(len(gpus), 'GPU')} up to {drawn:.0f} W, about {share:.0f} W for the rest{told}",
        remedy=_remedy(gpus, safe, max(drawn + share, spike * whole / borne)),
    )


def _remedy(gpus: Sequence[Gpu], safe: float, needed: float) -> str:
    each = math.floor(safe / len(gpus) / _STEP_W) * _STEP_W
    least = max((gpu.power_limit_min_w or 0 for gpu in gpus), default=0)
    bigger = f"a supply of {math.ceil(needed / 50) * 50} W or more"
    if each < max(least, 1):
        return f"{bigger}, or fewer GPUs: they cannot be limited to {max(each, 0)} W"
    return f"`gpu: power_limit_w: {each}` in the tuning, then `nodectl provision --tags gpu_settings`; or {bigger}"
