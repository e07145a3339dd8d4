"""All checks of `health`: the modules that have them, and a line for each check id."""

from __future__ import annotations

from functools import cache
from types import ModuleType

from nodectl.checks.base import About, Check
from nodectl.checks.fleet.fields import ABOUT as FLEET
from nodectl.checks.gpu import count as gpu_count
from nodectl.checks.gpu import fabric_manager, nvlink, xid
from nodectl.checks.gpu import memory as gpu_memory
from nodectl.checks.gpu import pcie as gpu_pcie
from nodectl.checks.gpu import processes as gpu_processes
from nodectl.checks.gpu import recovery as gpu_recovery
from nodectl.checks.gpu import state as gpu_state
from nodectl.checks.kernel import log as kernel_log
from nodectl.checks.kernel import pcie, settings
from nodectl.checks.kernel import state as kernel_state
from nodectl.checks.network import infiniband, infiniband_counters, infiniband_setup, nics, ports
from nodectl.checks.stack import versions
from nodectl.checks.system import clock as node
from nodectl.checks.system import hardware as system
from nodectl.checks.system import slurm, storage, units

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
