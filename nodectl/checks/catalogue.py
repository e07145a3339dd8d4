"""All checks of `health`: the modules that have them, and a line for each check id."""

from __future__ import annotations

from functools import cache
from types import ModuleType

from nodectl.checks import (
    fabric_manager,
    gpu_count,
    gpu_memory,
    gpu_pcie,
    gpu_processes,
    gpu_recovery,
    gpu_state,
    infiniband,
    infiniband_counters,
    infiniband_setup,
    kernel_log,
    kernel_state,
    nics,
    node,
    nvlink,
    pcie,
    ports,
    settings,
    slurm,
    storage,
    system,
    units,
    versions,
    xid,
)
from nodectl.checks.base import About, Check
from nodectl.checks.fleet_fields import ABOUT as FLEET

# each has CHECKS, functions of one host, and ABOUT, a line for each id that they give
MODULES: tuple[ModuleType, ...] = (
    settings,
    node,
    versions,
    gpu_count,
    gpu_recovery,
    gpu_memory,
    gpu_state,
    gpu_pcie,
    gpu_processes,
    nvlink,
    fabric_manager,
    pcie,
    xid,
    ports,
    storage,
    system,
    kernel_state,
    kernel_log,
    nics,
    infiniband,
    infiniband_counters,
    infiniband_setup,
    units,
    slurm,
)

ENGINE = (
    About("profiles", "the host's profiles", "they cannot work together, none is named, or they warn"),
    About("reach", "the host", "no answer"),
)


@cache
def checks() -> tuple[Check, ...]:
    """Every check of one host."""
    return tuple(check for module in MODULES for check in module.CHECKS)


@cache
def about() -> tuple[About, ...]:
    """Every check id once, those of the fleet last."""
    return (*ENGINE, *(each for module in MODULES for each in module.ABOUT), *FLEET)


@cache
def ids() -> frozenset[str]:
    """The ids that findings may have."""
    return frozenset(each.check for each in about())
