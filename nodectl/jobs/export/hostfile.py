"""Lists of hosts as other launchers read them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from nodectl.errors import UsageError
from nodectl.jobs.export.templates import render

_PORT = 29500
_ADDRESS = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:%-]*")


@dataclass(frozen=True, slots=True)
class Node:
    """`slots` are the ranks that it takes: its GPUs."""

    address: str
    slots: int


def hostfile(nodes: Sequence[Node], form: str) -> str:
    """Return the file's text; raise UsageError for an address that the form cannot hold."""
    for node in nodes:
        if not _ADDRESS.fullmatch(node.address):
            raise UsageError(
                f"{node.address!r} is not an address for a hostfile", "set ansible_host to a plain address"
            )
    return FORMS[form](nodes)


def _openmpi(nodes: Sequence[Node]) -> str:
    lines = [f"{node.address} slots={node.slots}" for node in nodes]
    return "\n".join(["# Written by nodectl for `mpirun --hostfile` of Open MPI.", *lines, ""])


def _hydra(nodes: Sequence[Node]) -> str:
    if bad := [node.address for node in nodes if ":" in node.address]:
        raise UsageError(f"{bad[0]} has a colon, which this form takes for its own", "use names or IPv4 addresses")
    lines = [f"{node.address}:{node.slots}" for node in nodes]
    return "\n".join(["# Written by nodectl for `mpirun -f` of MPICH or Intel MPI.", *lines, ""])


def _torchrun(nodes: Sequence[Node]) -> str:
    lines = ["# Written by nodectl. torchrun reads no hostfile: run each line on its node, with the script behind it."]
    for rank, node in enumerate(nodes):
        argv = ["torchrun", "--nnodes", str(len(nodes)), "--node-rank", str(rank), "--nproc-per-node", str(node.slots)]
        argv += ["--master-addr", nodes[0].address, "--master-port", str(_PORT)]
        lines.append(f"{shlex.join(argv)}  # on {node.address}")
    return "\n".join([*lines, ""])


FORMS: Mapping[str, Callable[[Sequence[Node]], str]] = {
    "deepspeed": lambda nodes: render("hostfile.j2", nodes=nodes),
    "openmpi": _openmpi,
    "mpich": _hydra,
    "torchrun": _torchrun,
}
