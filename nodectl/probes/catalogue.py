"""Which probes there are."""

from nodectl.errors import UsageError
from nodectl.probes.base import Probe
from nodectl.probes.latency import run_latency
from nodectl.probes.memory import run_memory
from nodectl.probes.nccl import run_nccl
from nodectl.probes.storage import run_storage
from nodectl.probes.tcp import run_tcp

PROBES: dict[str, Probe] = {
    "latency": run_latency,
    "memory": run_memory,
    "nccl": run_nccl,
    "storage": run_storage,
    "tcp": run_tcp,
}


def chosen(names: str) -> list[tuple[str, Probe]]:
    """The probes of `NAME[,NAME…]`, each once, in that order; UsageError for a name that is none."""
    wanted = list(dict.fromkeys(name.strip() for name in names.split(",")))
    for name in wanted:
        if name not in PROBES:
            raise UsageError(f"no probe '{name}'", f"one of: {', '.join(sorted(PROBES))}")
    return [(name, PROBES[name]) for name in wanted]
