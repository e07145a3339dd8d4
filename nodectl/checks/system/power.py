"""Whether the power supplies give what the GPUs are allowed to draw, beside processors and board."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from nodectl.checks.check import Check, Subject, judges, warning_unless
from nodectl.checks.gpu.rules import gpus_of
from nodectl.common.counting import counted
from nodectl.facts.base import tally
from nodectl.facts.board import PowerSupplies, PowerSupply
from nodectl.facts.gpus import Gpu
from nodectl.facts.processors import Cpu
from nodectl.model.facts import Unread
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 161
VARIABLE = "nodectl_psu_watt"

# what Intel's example for its power supply design guide 336521 gives a processor, and all else beside the GPUs
_SOCKET_W, _BOARD_W = 300, 150
_NUMBER = re.compile(r"([1-9]\d{1,5})(?:\.0)? *W?", re.IGNORECASE)
PSU_POWER = Check(
    "psu_power",
    looks_at=f"`dmidecode -t 39` or the variable {VARIABLE}, nvidia-smi's power limits",
    fires="the GPUs' limits alone are more than the supplies give; warning: they are with processors and board, or "
    "with one redundant supply gone",
)


@judges(PSU_POWER, reads=("power_supplies", "gpus", "cpu", "lab"), variables=(VARIABLE,))
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
    cpu = host.fact("cpu", Cpu)
    drawn = sum(limit for limit in limits if limit)
    rest = _SOCKET_W * ((cpu.sockets if cpu else None) or 1) + _BOARD_W
    ratings = [supply.watt or 0 for supply in supplies]
    whole = sum(ratings)
    # one of several that stand in for each other may fail
    spare = max(ratings) if len(ratings) > 1 and all(supply.redundant for supply in supplies) else 0
    status = Status.FAILED if drawn > whole else warning_unless(drawn + rest <= whole - spare)
    units = tally(Counter(f"{watt} W" for watt in ratings))
    return host.finding(
        PSU_POWER,
        status,
        expected=f"at most {whole - spare} W ({f'{len(ratings) - 1} of {units}: one may fail' if spare else units})",
        actual=f"{counted(len(gpus), 'GPU')} up to {drawn:.0f} W, about {rest} W for the rest",
        remedy=f"lower `gpu: power_limit_w` in the tuning, or take supplies of {drawn + rest + spare:.0f} W together",
    )
