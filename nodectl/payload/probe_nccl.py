"""Collectives on this host: `look` says what there is to measure with, `ranks` is this host's part of a group by
torch.distributed, `programs` runs nccl-tests.

JSON lines; Python 3.8, the standard library and torch. It ends when one of its ranks fails, and leaves nothing behind.
"""

import argparse
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any, List, Optional

if TYPE_CHECKING:
    from nodectl.payload.ncclbench import log, programs, ranks, sockets, spawn
    from nodectl.payload.ncclbench.sweep import Sweep, first_line, say
else:  # on a node this folder is sys.path[0], and there is no nodectl
    from ncclbench import log, programs, ranks, sockets, spawn
    from ncclbench.sweep import Sweep, first_line, say

PEER_WORDS = ("peer", "Connection", "connection", "timed out", "Timed out", "timeout", "ncclRemoteError")


def run_ranks(options: argparse.Namespace) -> int:
    """All ranks of this host, and what the clocks were."""
    devices = _devices(options)
    if options.local_rank >= 0:
        return run_rank(options, devices)
    say(event="started", pid=os.getpid())
    clocks = spawn.Clocks(devices)
    status, ended_by = spawn.spawn(options.nproc)
    if ended_by:
        say(event="error", text=ended_by, remedy="was memory short there? see its kernel log", peer=False)
    say(event="clocks", clocks=clocks.stop())
    return status


def run_rank(options: argparse.Namespace, devices: List[int]) -> int:
    began = time.monotonic()
    spawn.die_with_parent()
    nccl_log = log.Log() if options.backend == "nccl" else None
    try:
        _environment(options, nccl_log)
        index = devices[options.local_rank] if devices else -1
        bus_ids = options.bus_ids.split(",") if options.bus_ids else []
        bus_id = bus_ids[options.local_rank] if options.local_rank < len(bus_ids) else ""
        numa = ranks.bind(bus_id, options.local_rank, options.nproc)
        joined = ranks.join(options, options.rank_base + options.local_rank, index)
        say(event="ready", **ranks.described(joined, numa))
        Sweep(joined, options, nccl_log, began).run()
        _proof(options, joined.rank, nccl_log)
        joined.dist.barrier()
        joined.dist.destroy_process_group()
        say(event="done", rank=joined.rank)
    except Exception as error:
        text = first_line(error)
        _proof(options, options.rank_base + options.local_rank, nccl_log)
        say(event="error", text=text, peer=any(word in text for word in PEER_WORDS))
        return 1
    finally:
        if nccl_log is not None:
            nccl_log.remove()
    return 0


def _proof(options: argparse.Namespace, rank: int, nccl_log: Optional[log.Log]) -> None:
    """Which way the data really went; also of a run that failed."""
    say(event="sockets", rank=rank, **sockets.used(options.master_port))
    if nccl_log is not None:
        say(event="nccl_log", rank=rank, lines=nccl_log.lines())


def _environment(options: argparse.Namespace, nccl_log: Optional[log.Log]) -> None:
    """For this process only."""
    if options.backend == "gloo" and options.interface:
        os.environ["GLOO_SOCKET_IFNAME"] = options.interface
    if options.nccl_interface:
        # `=`: this very name, not all that begin so
        os.environ["NCCL_SOCKET_IFNAME"] = "=" + options.nccl_interface
    if options.adapter:
        os.environ["NCCL_IB_HCA"] = "=" + options.adapter
    if nccl_log is not None:
        os.environ.update(nccl_log.environment())


def _devices(options: argparse.Namespace) -> List[int]:
    return [int(each) for each in options.devices.split(",")] if options.devices else []


def look(options: argparse.Namespace) -> int:
    print(json.dumps({"event": "look", **programs.look(options.folder, options.interface)}), flush=True)
    return 0


def run_programs(options: argparse.Namespace) -> int:
    say(event="started", pid=os.getpid())
    spawn.die_with_parent()
    return programs.run(options, say)


def parse(argv: Optional[List[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    looking = commands.add_parser("look")
    looking.set_defaults(run=look)
    looking.add_argument("--folder", required=True)
    looking.add_argument("--interface", default="")
    one = commands.add_parser("ranks")
    one.set_defaults(run=run_ranks)
    for name in ("--rank-base", "--world-size", "--nproc", "--master-port"):
        one.add_argument(name, type=int, required=True)
    for name in ("--master-addr", "--backend"):
        one.add_argument(name, required=True)
    one.add_argument("--timeout", type=float, required=True)
    for name in ("--interface", "--nccl-interface", "--adapter", "--devices", "--bus-ids"):
        one.add_argument(name, default="")
    one.add_argument("--local-rank", type=int, default=-1)
    several = commands.add_parser("programs")
    several.set_defaults(run=run_programs)
    for name in ("--folder", "--hosts", "--devices", "--nccl-interface"):
        several.add_argument(name, default="")
    several.add_argument("--gpus", type=int, required=True)
    for each in (one, several):
        for name in ("--collectives", "--sizes"):
            each.add_argument(name, required=True)
        each.add_argument("--repetitions", type=int, required=True)
        each.add_argument("--seconds", type=float, required=True, help="of a repetition")
        each.add_argument("--grow", type=int, default=0, help="the last size times this, up to the memory's limit")
        each.add_argument("--deadline", type=float, default=0.0, help="seconds for all; 0 is no limit")
    return parser.parse_args(argv)


def main(argv: Optional[List[str]] = None) -> int:
    options = parse(argv)
    run: Any = options.run
    status: int = run(options)
    return status


if __name__ == "__main__":
    sys.exit(main())
