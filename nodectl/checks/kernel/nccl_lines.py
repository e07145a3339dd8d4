"""Lines of NCCL's files that NCCL reads otherwise than whoever wrote them: it trims nothing and knows no quotes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import chain

from nodectl.checks.check import Check, Subject, judges_fact
from nodectl.facts.nccl_files import NcclFiles
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 12

# a slip of a letter or two, not another variable of a plug-in or of a newer NCCL
_NEAR = 0.92
# NCCL user guide, "Environment variables", without those that are one letter beside another
_VARIABLES = frozenset(
    f"NCCL_{name}"
    for name in (
        *("SOCKET_IFNAME", "SOCKET_FAMILY", "SOCKET_NTHREADS", "NSOCKS_PERTHREAD", "CROSS_NIC", "COMM_ID", "NET"),
        *("SOCKET_RETRY_CNT", "SOCKET_RETRY_SLEEP_MSEC", "SOCKET_POLL_TIMEOUT_MSEC", "NET_PLUGIN", "TUNER_PLUGIN"),
        *("IB_HCA", "IB_TIMEOUT", "IB_RETRY_CNT", "IB_GID_INDEX", "IB_ADDR_FAMILY", "IB_ADDR_RANGE", "IB_SL", "IB_TC"),
        *("IB_ROCE_VERSION_NUM", "IB_FIFO_TC", "IB_CUDA_SUPPORT", "IB_RETURN_ASYNC_EVENTS", "IB_MERGE_VFS"),
        *("IB_MERGE_NICS", "IB_QPS_PER_CONNECTION", "IB_SPLIT_DATA_ON_QPS", "IB_PCI_RELAXED_ORDERING", "IB_DISABLE"),
        *("IB_ADAPTIVE_ROUTING", "IB_ECE_ENABLE", "IB_AR_THRESHOLD", "IB_PKEY", "IB_USE_INLINE", "OOB_NET_IFNAME"),
        *("OOB_NET_ENABLE", "UID_STAGGER_THRESHOLD", "UID_STAGGER_RATE", "P2P_DISABLE", "P2P_LEVEL", "SHM_DISABLE"),
        *("P2P_DIRECT_DISABLE", "NET_GDR_LEVEL", "NET_GDR_READ", "NET_GDR_C2C", "NET_SHARED_BUFFERS"),
        *("NET_SHARED_COMMS", "SINGLE_RING_THRESHOLD", "LL_THRESHOLD", "TREE_THRESHOLD", "ALGO", "PROTO", "BUFFSIZE"),
        *(
            "NTHREADS",
            "MAX_NCHANNELS",
            "MIN_NCHANNELS",
            "MAX_CTAS",
            "MIN_CTAS",
            "NCHANNELS_PER_NET_PEER",
            "CHECKS_DISABLE",
        ),
        *("CHECK_POINTERS", "LAUNCH_MODE", "LAUNCH_RACE_FATAL", "LAUNCH_ORDER_IMPLICIT", "NVB_DISABLE", "PXN_DISABLE"),
        *("P2P_PXN_LEVEL", "RUNTIME_CONNECT", "GRAPH_REGISTER", "LOCAL_REGISTER", "LEGACY_CUDA_REGISTER"),
        *("SET_STACK_SIZE", "SET_THREAD_NAME", "SET_CPU_STACK_SIZE", "GRAPH_MIXING_SUPPORT", "DMABUF_ENABLE"),
        *("P2P_NET_CHUNKSIZE", "P2P_LL_THRESHOLD", "ALLOC_P2P_NET_LL_BUFFERS", "COMM_BLOCKING", "CGA_CLUSTER_SIZE"),
        *(
            "MAX_P2P_NCHANNELS",
            "PROFILER_PLUGIN",
            "WIN_ENABLE",
            "WIN_STRIDE",
            "COLLNET_ENABLE",
            "COLLNET_NODE_THRESHOLD",
        ),
        *("NVLS_ENABLE", "NVLS_NCHANNELS", "MNNVL_ENABLE", "MNNVL_UUID", "MNNVL_CLIQUE_ID", "CUMEM_ENABLE"),
        *("CUMEM_HOST_ENABLE", "RAS_ENABLE", "RAS_ADDR", "RAS_TIMEOUT_FACTOR", "TOPO_FILE", "TOPO_DUMP_FILE"),
        *("GRAPH_FILE", "GRAPH_DUMP_FILE", "IGNORE_CPU_AFFINITY", "DEBUG", "DEBUG_FILE", "DEBUG_SUBSYS", "CONF_FILE"),
        *("DEBUG_TIMESTAMP_FORMAT", "DEBUG_TIMESTAMP_LEVELS", "HOSTID", "WORK_FIFO_BYTES", "IGNORE_DISABLED_P2P"),
    )
)
NCCL_LINES = Check(
    "nccl_lines",
    looks_at="the lines of `/etc/nccl.conf` and `~/.nccl.conf`",
    fires="warning: blanks or quotes that NCCL takes literally, a name that NCCL does not know, no `=`",
    expected="NAME=value: NCCL trims nothing and knows no quotes",
    remedy="correct the line; `nodectl provision --tags nccl_env` writes /etc/nccl.conf anew",
    roles=("nccl_env",),
)


@judges_fact(NcclFiles, NCCL_LINES, reads=("nccl_files",), unread="NCCL's files", or_absent=True)
def nccl_lines(host: Subject, files: NcclFiles) -> Iterator[Finding]:
    """Each line means to NCCL what it looks like."""
    texts = {"/etc/nccl.conf": files.system or "", "~/.nccl.conf": files.user or ""}
    yield from host.all_of(NCCL_LINES, chain(*(_wrong(host, path, text) for path, text in texts.items())), actual="so")


def _wrong(host: Subject, path: str, text: str) -> Iterator[Finding]:
    for number, line in enumerate(text.split("\n"), 1):
        if reason := why_misread(line):
            yield host.finding(NCCL_LINES, Status.WARNING, f"{path} line {number}", actual=f"{line[:200]!r}: {reason}")


def why_misread(line: str) -> str:
    """What NCCL makes of the line that nobody means by it; empty where there is nothing of that."""
    name, equals, value = line.partition("=")
    if not line.strip() or line.startswith("#"):
        return ""
    if line.lstrip().startswith("#"):
        return "# is a comment in the first column only"
    if not equals:
        return "no `=`: NCCL passes over it"
    if name != name.strip():
        return "a blank is part of the name"
    if not value.strip():
        return "the value is blank"
    if value != value.strip():
        return "a blank is part of the value"
    if set(value[:1] + value[-1:]) & set("\"'"):
        return "the quotes are part of the value"
    return _why_unknown(name)


def _why_unknown(name: str) -> str:
    if re.fullmatch(r"NCCL_[A-Z0-9_]+", name) is None:
        return (
            "NCCL reads no variable of that name" if not name.startswith("export ") else "`export` is part of the name"
        )
    near = get_close_matches(name, _VARIABLES, n=1, cutoff=_NEAR) if name not in _VARIABLES else []
    return f"NCCL's guide has no such variable; did you mean {near[0]}?" if near else ""
