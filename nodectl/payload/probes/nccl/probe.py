"""Collectives on this host: `look` says what there is to measure with, `ranks` is this host's part of a group by
torch.distributed, `programs` runs nccl-tests.

It ends when one of its ranks fails, and leaves nothing behind.
"""

import argparse
import os
import time
from typing import List, Optional, Sequence

from ...common import program
from ...common import ranks as host_ranks
from ...common.events import first_line, say
from ...jobs.syscalls import die_with_parent
from . import connections, group, nccl_tests
from .clocks import Clocks
from .log import Log
from .sweep import Sweep


def look(options: argparse.Namespace) -> int:
    """Say what there is to measure with."""
    say(event="look", **nccl_tests.look(options.folder, options.interface))
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
    say(event="sockets", rank=rank, **connections.used(options.master_port))
    if nccl_log is not None:
        say(event="nccl_log", rank=rank, lines=nccl_log.lines())


def _set_environment(options: argparse.Namespace, nccl_log: Optional[Log]) -> None:
    """What gloo and NCCL read, for this process only."""
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
    looking.add_argument("--interface", default="")
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
