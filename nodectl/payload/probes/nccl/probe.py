"""Collectives on this host: by torch.distributed (`ranks`, its part of a group) or nccl-tests (`programs`).

`look` says what there is to measure with.  It ends when one of its ranks fails, and leaves nothing behind.
"""

import argparse
import os
import stat
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple

from ...common import machine, program
from ...common import ranks as host_ranks
from ...common.events import first_line, say
from ...common.sockets import ESTABLISHED, kernel_rows, parsed
from ...jobs.syscalls import die_with_parent
from ..endpoints import addresses
from . import group, nccl_tests
from .log import Log
from .sweep import Sweep

COLUMNS = "index,clocks.sm,clocks.mem,temperature.gpu"
EVERY_S = 1.0
SMI_S = 10.0
_CPU_MHZ = "cpu MHz"


class Clocks:
    """Samples of these GPUs, or of the processors where there are none, from its making to `stop`."""

    def __init__(self, gpus: Sequence[int]) -> None:
        self.gpus = gpus
        self.samples: Dict[str, List[List[float]]] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> Dict[str, Dict[str, float]]:
        """Return, by GPU (or `cpu`), the median clocks and the highest temperature."""
        self._over.set()
        self._thread.join(10)
        summaries = {}
        for name, samples in list(self.samples.items()):
            summaries[name] = {"mhz": median(sample[0] for sample in samples)}
            if len(samples[0]) > 2:
                summaries[name]["memory_mhz"] = median(sample[1] for sample in samples)
                summaries[name]["temperature_c"] = max(sample[2] for sample in samples)
        return summaries

    def _watch(self) -> None:
        # what a process does before it computes says nothing of its clocks
        while not self._over.wait(EVERY_S):
            for name, values in (gpu_sample(self.gpus) if self.gpus else cpu_sample()).items():
                self.samples.setdefault(name, []).append(values)


def gpu_sample(gpus: Sequence[int]) -> Dict[str, List[float]]:
    """Return the columns of each GPU by its index; nothing where the driver does not tell."""
    asked = "-i", ",".join(map(str, gpus))
    rows = machine.smi("--query-gpu=" + COLUMNS, "--format=csv,noheader,nounits", *asked, timeout_s=SMI_S) or ""
    values = {}
    for line in rows.splitlines():
        index, *cells = [cell.strip() for cell in line.split(",")]
        try:
            values[index] = [float(cell) for cell in cells]
        except ValueError:
            continue
    return values


def cpu_sample() -> Dict[str, List[float]]:
    """Return the mean over all processors, where the kernel tells it."""
    lines = machine.text(Path("/proc/cpuinfo")).splitlines()
    values = [float(line.partition(":")[2]) for line in lines if line.startswith(_CPU_MHZ)]
    return {"cpu": [round(sum(values) / len(values), 1)]} if values else {}


def used_interfaces(but_port: int) -> Dict[str, Any]:
    """Return connections by interface and their other ends; `but_port` is of the meeting, not of data."""
    names = {address: name for name, address in addresses()}
    interfaces: Dict[str, int] = {}
    peers: Set[str] = set()
    for local, peer in established(own_inodes(), but_port):
        # a link-local address of IPv6 is not among the listed ones
        name = names.get(local, "lo" if local.startswith("127.") or local == "::1" else "?")
        interfaces[name] = interfaces.get(name, 0) + 1
        peers.add(peer)
    return {"interfaces": interfaces, "peers": sorted(peers)}


def own_inodes() -> Set[str]:
    """Return the inodes of this process's sockets."""
    inodes = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            status = os.fstat(int(entry.name))
        except OSError:
            continue
        if stat.S_ISSOCK(status.st_mode):
            inodes.add(str(status.st_ino))
    return inodes


def established(inodes: Set[str], but_port: int) -> Iterator[Tuple[str, str]]:
    """(own address, other's address) of established established."""
    for row in kernel_rows():
        if len(row) < 10 or row[3] != ESTABLISHED or row[9] not in inodes:
            continue
        (local, own_port), (peer, their_port) = parsed(row[1]), parsed(row[2])
        if but_port not in (own_port, their_port):
            yield local, peer


def look(options: argparse.Namespace) -> int:
    """Say what there is to measure with."""
    say(event="look", **nccl_tests.look(options.folder))
    return 0


def programs(options: argparse.Namespace) -> int:
    """Run nccl-tests."""
    say(event="started", pid=os.getpid())
    die_with_parent()
    return nccl_tests.run(options)


def ranks(options: argparse.Namespace) -> int:
    """All ranks of this host, and what the clocks were; with --local-rank one of them."""
    gpus = [int(index) for index in options.devices.split(",")] if options.devices else []
    if options.local_rank >= 0:
        return run_rank(options, gpus)
    say(event="started", pid=os.getpid())
    clocks = Clocks(gpus)
    status, ended_by = host_ranks.spawn(options.nproc)
    if ended_by:
        say(event="error", text=ended_by.text, remedy=ended_by.remedy, peer=ended_by.peer)
    say(event="clocks", clocks=clocks.stop())
    return status


def run_rank(options: argparse.Namespace, gpus: List[int]) -> int:
    """One rank's part of the sweep, and the proof of the way that its data took."""
    began = time.monotonic()
    die_with_parent()
    rank = options.rank_base + options.local_rank
    nccl_log = Log() if options.backend == "nccl" else None
    try:
        _set_environment(options, nccl_log)
        bus_ids = options.bus_ids.split(",") if options.bus_ids else []
        bus_id = bus_ids[options.local_rank] if options.local_rank < len(bus_ids) else ""
        numa = group.bind(bus_id, options.local_rank, options.nproc)
        joined = group.join(options, rank, gpus[options.local_rank] if gpus else -1)
        say(event="ready", **group.described(joined, numa))
        Sweep(joined, options, nccl_log, began).run()
        _prove(options, rank, nccl_log)
        joined.dist.barrier()
        joined.dist.destroy_process_group()
        say(event="done", rank=rank)
    except Exception as error:
        text = first_line(error)
        _prove(options, rank, nccl_log)
        say(event="error", text=text, peer=host_ranks.of_peer(text))
        return 1
    finally:
        if nccl_log is not None:
            nccl_log.remove()
    return 0


def _prove(options: argparse.Namespace, rank: int, nccl_log: Optional[Log]) -> None:
    """Say which way the data really went; also of a run that failed."""
    say(event="sockets", rank=rank, **used_interfaces(options.master_port))
    if nccl_log is not None:
        say(event="nccl_log", rank=rank, lines=nccl_log.lines())


def _set_environment(options: argparse.Namespace, nccl_log: Optional[Log]) -> None:
    """Set what gloo and NCCL read, for this process only."""
    if options.backend == "gloo" and options.interface:
        os.environ["GLOO_SOCKET_IFNAME"] = options.interface
    if options.backend == "nccl":
        # all GPUs, in the order in which nvidia-smi counts
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    if options.nccl_interface:
        # `=`: this very name, not all that begin so
        os.environ["NCCL_SOCKET_IFNAME"] = "=" + options.nccl_interface
    os.environ.update(nccl_tests.NICS_ONLY if options.nics_only else {})
    if options.adapter:
        os.environ["NCCL_IB_HCA"] = "=" + options.adapter
    if nccl_log is not None:
        os.environ.update(nccl_log.environment())


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run `look`, `ranks` or `programs`."""
    parser, (looking, by_ranks, by_programs) = program.commands(look, ranks, programs)
    looking.add_argument("--folder", required=True)
    host_ranks.add_arguments(by_ranks)
    for name in ("--nccl-interface", "--adapter", "--devices", "--bus-ids"):
        by_ranks.add_argument(name, default="")
    for name in ("--folder", "--hosts", "--devices", "--nccl-interface"):
        by_programs.add_argument(name, default="")
    by_programs.add_argument("--gpus", type=int, required=True)
    for command in (by_ranks, by_programs):
        for name in ("--collectives", "--sizes"):
            command.add_argument(name, required=True)
        command.add_argument("--repetitions", type=int, required=True)
        command.add_argument("--seconds", type=float, required=True, help="of a repetition")
        command.add_argument("--more", default="", help="collective:size by comma, besides, where there is room")
        command.add_argument("--usual", type=int, default=0, help="1: smaller sizes where an operation takes too long")
        command.add_argument("--grow", type=int, default=0, help="the last size times this, up to the memory's limit")
        command.add_argument("--nics-only", type=int, default=0, help="1: between GPUs of one host, too")
        command.add_argument("--deadline", type=float, default=0.0, help="seconds for all; 0 is no limit")
    options = parser.parse_args(argv)
    status: int = options.run(options)
    return status
