"""Which probes there are."""

from nodectl.errors import UsageError
from nodectl.probes.base import Probe
from nodectl.probes.device.gemm import run_gemm
from nodectl.probes.device.h2d import run_h2d
from nodectl.probes.device.hbm import run_hbm
from nodectl.probes.device.p2p import run_p2p
from nodectl.probes.device.sdc import run_sdc
from nodectl.probes.latency.probe import run_latency
from nodectl.probes.memory import run_memory
from nodectl.probes.nccl.probe import run_nccl
from nodectl.probes.rdma.probe import run_rdma
from nodectl.probes.storage.probe import run_storage
from nodectl.probes.tcp.probe import run_tcp

PROBES: dict[str, Probe] = {
    "gemm": run_gemm,
    "h2d": run_h2d,
    "hbm": run_hbm,
    "latency": run_latency,
    "memory": run_memory,
    "nccl": run_nccl,
    "p2p": run_p2p,
    "rdma": run_rdma,
    "sdc": run_sdc,
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
