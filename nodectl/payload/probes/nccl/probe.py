"""Collectives by torch.distributed: this host's ranks of a group.

It ends when one of its ranks fails, and leaves nothing behind.
"""

import argparse
import os
import stat
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set, Tuple

from ...common import ranks as host_ranks
from ...common.frames import first_line, say
from ...common.sockets import ESTABLISHED, kernel_rows, parsed
from ...jobs.syscalls import die_with_parent
from ..endpoints import addresses
from . import group
from .group import BUFFERS, Case, Group
from .log import Log

MAX_ITERATIONS = 1000
# an operation of a size that nobody asked for takes no longer
CARRIED_S = 1.0
# of the memory that is free, what a size may need
FREE_PART = 0.8
UNSUPPORTED_WORDS = ("not implemented", "not support", "unsupported", "Unsupported", "no backend")
NO_ROOM_WORDS = ("out of memory", "allocate memory", "not enough memory")


def predicted_s(size: int, last: Tuple[int, float]) -> float:
    """Return the seconds of one operation by the last one that was measured; all ranks predict the same."""
    return last[1] * size / last[0]


class CutError(Exception):
    """The sweep of a collective ends here, for a reason that all ranks know."""


class Sweep:
    """All cases of one run."""

    def __init__(self, group: Group, options: argparse.Namespace, log: Optional[Log], began: float) -> None:
        self.group, self.options, self.log = group, options, log
        # of all, and of the collective that is measured: each has its part of what the ones before left
        self.ends = began + options.deadline if options.deadline else None
        self.part_ends = self.ends
        # of the last case: its size, the seconds of an operation, and those besides what was timed
        self.seen: Optional[Tuple[int, float, float]] = None
        self.sizes = [int(size) for size in options.sizes.split(",")]

    def run(self) -> None:
        """Measure every collective at every size."""
        limit = FREE_PART * self.group.least(self.group.free_bytes(self.group.neighbours()) / BUFFERS)
        last: Dict[str, Tuple[int, float]] = {}
        collectives = self.options.collectives.split(",")
        for number, collective in enumerate(collectives):
            if self.ends is not None:
                now = time.monotonic()
                self.part_ends = now + max(0.0, self.ends - now) / (len(collectives) - number)
            self.seen = None
            for asked in self.sizes:
                size = self._carried(asked, last.get(collective))
                once = self._tried(collective, size, limit) if size else None
                if once is None:
                    break
                last[collective] = size, once
        self.part_ends, self.seen = self.ends, None
        for case in self.options.more.split(",") if self.options.more else []:
            collective, _, size_text = case.partition(":")
            self._of_a_floor(collective, int(size_text), limit, last.get(collective))

    def _carried(self, size: int, last: Optional[Tuple[int, float]]) -> int:
        """Return a quarter, and so on, where an operation of a usual size would take too long; 0 if none is left."""
        if last is None or not self.options.usual:
            return size
        while size > last[0] and predicted_s(size, last) > CARRIED_S:
            size //= 4
        return size if size > last[0] else 0

    def _of_a_floor(self, collective: str, size: int, limit: float, last: Optional[Tuple[int, float]]) -> None:
        """Measure a floor's size; one without room, or for which the network is too slow, is no fault of anything."""
        reason = "there is room for %d bytes" % limit if size > limit else ""
        if not reason and last is not None and predicted_s(size, last) > CARRIED_S:
            reason = "an operation would take %.1f s" % predicted_s(size, last)
        if reason:
            self._say_once(event="left", collective=collective, asked_bytes=size, reason=reason)
        else:
            self._tried(collective, size, limit)

    def _tried(self, collective: str, size: int, limit: float) -> Optional[float]:
        """Return how long an operation takes; None where larger sizes of this collective are not worth a try."""
        case = {"collective": collective, "asked_bytes": size}
        try:
            if size > limit:
                raise CutError("no room: the ranks have memory for %d bytes" % limit)
            once = self._measured(collective, size)
        except CutError as error:
            self._say_once(event="cut", reason=str(error), **case)
            return None
        except RuntimeError as error:
            # every rank has the same backend, so all pass over it together
            if not any(word in str(error) for word in UNSUPPORTED_WORDS):
                raise
            self._say_once(event="unsupported", text=first_line(error), **case)
            return None
        return once

    def _say_once(self, **event: Any) -> None:
        if self.group.rank == 0:
            say(**event)

    def _measured(self, collective: str, size: int) -> float:
        group, options = self.group, self.options
        self._require(0.0)
        self._require_room_in_time(size)
        began = time.monotonic()
        case = self._built(collective, size)
        if self.log is not None:
            self.log.resume()
        wrong = group.checked(case)
        chosen = None
        if self.log is not None:
            self.log.pause()
            # the only operation since: which one a line is of, NCCL before 2.23 does not tell
            chosen = self.log.chosen()
        once = group.largest(group.timed(case, 1))
        self._require(once * (options.repetitions + 1), once)
        iterations = max(1, min(MAX_ITERATIONS, int(options.seconds / max(once, 1e-9))))
        seconds = [group.timed(case, iterations) for _ in range(options.repetitions)]
        wrong += group.checked(case)
        self.seen = size, once, max(0.0, time.monotonic() - began - iterations * sum(seconds))
        say(
            event="times",
            collective=collective,
            asked_bytes=size,
            size_bytes=case.size_bytes,
            rank=group.rank,
            wrong=wrong,
            iterations=iterations,
            chosen=chosen,
            seconds=[round(took, 9) for took in seconds],
        )
        return once

    def _built(self, collective: str, size: int) -> Case:
        case: Optional[Case] = None
        try:
            case = self.group.cases.case(collective, size)
        except (RuntimeError, MemoryError) as error:
            if isinstance(error, RuntimeError) and not any(word in str(error) for word in NO_ROOM_WORDS):
                raise
        if self.group.least(float(case is not None)) < 1 or case is None:
            raise CutError("no room: a rank could not allocate its buffers")
        return case

    def _require_room_in_time(self, size: int) -> None:
        """Raise CutError if the time is limited and the case would take longer, by what smaller sizes took."""
        if self.part_ends is None or self.seen is None:
            return
        seen, once, besides_s = self.seen
        operation_s = once * size / seen
        timed_s = self.options.repetitions * max(operation_s, self.options.seconds)
        self._require(timed_s + besides_s * max(1.0, size / seen), operation_s)

    def _require(self, seconds: float, operation_s: float = 0.0) -> None:
        if self.part_ends is None:
            return
        late = time.monotonic() + seconds > self.part_ends
        if self.group.largest(float(late)):
            longest = self.group.largest(operation_s)
            why = ": an operation takes about %.3g s" % longest if longest else ""
            raise CutError("the time is over for it and larger ones" + why)


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


def ranks(options: argparse.Namespace) -> int:
    """Run all ranks of this host; with --local-rank one of them."""
    gpus = [int(index) for index in options.devices.split(",")] if options.devices else []
    if options.local_rank >= 0:
        return run_rank(options, gpus)
    say(event="started", pid=os.getpid())
    status, ended_by = host_ranks.spawn(options.nproc)
    if ended_by:
        say(event="error", text=ended_by.text, remedy=ended_by.remedy, peer=ended_by.peer)
    return status


def run_rank(options: argparse.Namespace, gpus: List[int]) -> int:
    """One rank's part of the sweep, and the proof of the way that its data took."""
    began = time.monotonic()
    die_with_parent()
    rank = options.rank_base + options.local_rank
    nccl_log = Log() if options.backend == "nccl" else None
    try:
        _set_environment(options, nccl_log)
        gpu = gpus[options.local_rank] if gpus else None
        numa = group.bind(gpu, options.local_rank, options.nproc)
        joined = group.join(options, rank, gpu)
        say(event="ready", **group.described(joined, numa))
        Sweep(joined, options, nccl_log, began).run()
        _say_data_path(options, rank, nccl_log)
        joined.dist.barrier()
        joined.dist.destroy_process_group()
        say(event="done", rank=rank)
    except Exception as error:
        text = first_line(error)
        _say_data_path(options, rank, nccl_log)
        say(event="error", text=text, peer=host_ranks.of_peer(text))
        return 1
    finally:
        if nccl_log is not None:
            nccl_log.remove()
    return 0


def _say_data_path(options: argparse.Namespace, rank: int, nccl_log: Optional[Log]) -> None:
    say(event="sockets", rank=rank, **used_interfaces(options.master_port))
    if nccl_log is not None:
        say(event="nccl_log", rank=rank, lines=nccl_log.lines())


def _set_environment(options: argparse.Namespace, nccl_log: Optional[Log]) -> None:
    if options.backend == "gloo" and options.interface:
        os.environ["GLOO_SOCKET_IFNAME"] = options.interface
    if options.backend == "nccl":
        # all GPUs, in the order in which nvidia-smi counts
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    if options.nccl_interface:
        # `=`: this very name, not all that begin so
        os.environ["NCCL_SOCKET_IFNAME"] = "=" + options.nccl_interface
    if nccl_log is not None:
        os.environ.update(nccl_log.environment())


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the ranks."""
    parser = argparse.ArgumentParser()
    host_ranks.add_arguments(parser)
    for name in ("--nccl-interface", "--devices"):
        parser.add_argument(name, default="")
    for name in ("--collectives", "--sizes"):
        parser.add_argument(name, required=True)
    parser.add_argument("--repetitions", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True, help="of a repetition")
    parser.add_argument("--more", default="", help="collective:size by comma, besides, where there is room")
    parser.add_argument("--usual", type=int, default=0, help="1: smaller sizes where an operation takes too long")
    parser.add_argument("--deadline", type=float, default=0.0, help="seconds for all; 0 is no limit")
    return ranks(parser.parse_args(argv))
