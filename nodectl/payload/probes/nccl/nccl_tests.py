"""nccl-tests on this host: which programs there are, and what they print."""

import argparse
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

from ...common import machine
from ...common.events import say
from .log import Log, reduced

ANY = "all_reduce_perf"
# how their programs call what has another name here
NAMES = {"all_to_all": "alltoall"}
GPUS = Path("/proc/driver/nvidia/gpus")
# buffers of one GPU: sent, received, and the values to compare with
BUFFERS = 3
SMI_S = 20.0
MOST_BYTES = 8 << 20
# each operation writes a line of the log that proves the way: it is a run of its own, and none that is timed
PROOF, TIMED = "INFO", "WARN"
_LOGGED = re.compile(r"NCCL (?:INFO|WARN|TRACE)\b")


def look(folder: str) -> Dict[str, Any]:
    """Return what a plan needs of this host."""
    nodes = [scope for scope in machine.scopes() if scope.numa is not None]
    return {
        "numa_nodes": max(1, len(nodes)),
        "bus_ids": bus_ids(),
        "programs": programs_in(folder),
    }


def programs_in(folder: str) -> str:
    """Return the newest build below the folder, or where the search path has them; empty if there are none."""
    built = [*Path(folder).glob("*/" + ANY), Path(folder) / ANY]
    folders = [path.parent for path in built if os.access(str(path), os.X_OK)]
    if folders:
        return str(max(folders, key=lambda path: path.stat().st_mtime))
    program = shutil.which(ANY)
    return str(Path(program).resolve().parent) if program else ""


def bus_ids() -> List[str]:
    """Return the GPUs' places on the bus in the order of their indices; empty if the driver does not tell."""
    rows = machine.smi("--query-gpu=index,pci.bus_id", "--format=csv,noheader", timeout_s=SMI_S) or ""
    places = re.findall(r"^\s*(\d+), *([0-9A-Fa-f:.]+)\s*$", rows, re.MULTILINE)
    return [place for _, place in sorted((int(index), place) for index, place in places)]


def run(options: argparse.Namespace) -> int:
    """Each collective once for proof and so often for its time, its output whole; what time was lacking for is said."""
    ends = time.monotonic() + options.deadline if options.deadline else None
    for collective, sizes in planned(options):
        program = str(Path(options.folder) / (NAMES.get(collective, collective) + "_perf"))
        if not os.access(program, os.X_OK):
            say(event="unsupported", collective=collective, asked_bytes=0, text="no %s on the host" % program)
            continue
        for repetition in range(-1, options.repetitions):
            left = None if ends is None else ends - time.monotonic()
            if left is not None and left <= 0:
                say(event="cut", collective=collective, asked_bytes=0, reason="the time was over")
                break
            level = TIMED if repetition >= 0 else PROOF
            status, text, lines = one(command(sizes, program, level), options, left, level)
            kind = "printed" if repetition >= 0 or status else "proven"
            say(event=kind, collective=collective, repetition=repetition, status=status, text=text, log=lines)
            if status:
                return status
    return 0


def planned(options: argparse.Namespace) -> Iterator[Tuple[str, argparse.Namespace]]:
    """Yield collectives with the options of a run; those of floors last, as far as there is room."""
    for collective in options.collectives.split(","):
        yield collective, options
    for case in options.more.split(",") if options.more else []:
        collective, _, size = case.partition(":")
        run_options = argparse.Namespace(**{**vars(options), "sizes": size})
        room = limit_bytes(run_options)
        if int(size) > room:
            say(event="left", collective=collective, asked_bytes=int(size), reason="there is room for %d bytes" % room)
            continue
        yield collective, run_options


def command(options: argparse.Namespace, program: str, level: str = TIMED) -> List[str]:
    """Return the command of one program over this host's GPUs; for proof one operation."""
    sizes = [int(size) for size in options.sizes.split(",")]
    argv = [program, "-b", str(sizes[0]), "-e", str(sizes[-1]), "-f", str(_factor(sizes)), "-g", str(options.gpus)]
    return argv + (["-c", "1", "-n", "20", "-w", "5"] if level == TIMED else ["-c", "0", "-n", "1", "-w", "1"])


def _factor(sizes: List[int]) -> int:
    """nccl-tests measures a series; of sizes that are none, all powers of two between the ends."""
    return sizes[1] // sizes[0] if len(sizes) > 1 and sizes[1] >= 2 * sizes[0] else 2


def limit_bytes(options: argparse.Namespace) -> int:
    """Return the size for which every GPU has room; the largest asked for if no free memory is known."""
    rows = machine.smi("--query-gpu=memory.free", "--format=csv,noheader,nounits", timeout_s=SMI_S) or ""
    free_mib = rows.split()
    if not free_mib or not all(map(str.isdigit, free_mib)):
        return int(options.sizes.split(",")[-1])
    return int(0.8 * min(map(int, free_mib)) * (1 << 20) / BUFFERS)


def one(
    argv: List[str], options: argparse.Namespace, left_s: Optional[float], level: str
) -> Tuple[int, str, List[str]]:
    """Exit status (124: it was ended for lack of time), the output without NCCL's log, and what that log proves."""
    nccl_log = Log()
    # the devices are counted as nvidia-smi does
    environment = {**os.environ, **nccl_log.environment(level), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if options.devices:
        environment["CUDA_VISIBLE_DEVICES"] = options.devices
    if options.nccl_interface:
        environment["NCCL_SOCKET_IFNAME"] = "=" + options.nccl_interface
    late = False
    child = subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
        pass_fds=(nccl_log.number,),
    )
    try:
        signal.signal(signal.SIGTERM, lambda *_: os.killpg(child.pid, signal.SIGKILL))
        try:
            out, _ = child.communicate(timeout=left_s)
        except subprocess.TimeoutExpired:
            late = True
            os.killpg(child.pid, signal.SIGKILL)
            out, _ = child.communicate()
        lines = out[:MOST_BYTES].decode(errors="replace").splitlines()
        proof = nccl_log.lines() or reduced(lines)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        nccl_log.remove()
    text = "\n".join(line for line in lines if not _LOGGED.search(line))
    return 124 if late else abs(child.returncode), text, proof
