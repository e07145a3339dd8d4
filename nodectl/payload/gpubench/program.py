"""What the programs of these probes have in common: what there is, which devices, all at once, and what they say."""

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from . import hardware
from .crew import Crew, Say, error_text, nobody_to_wait_for, say, wait_for_others
from .cuda import Cuda
from .watch import Watch

BOOT_ID = "sys/kernel/random/boot_id"
# the controller waits a little longer than the host does
_LAST_S = 20


class Device(NamedTuple):
    """What one process works on: a GPU by number, or the processors (None)."""

    torch: Any
    gpu: Optional[int]
    options: argparse.Namespace
    say: Say
    ready: Callable[[], None]


Work = Callable[[Device], None]
Arguments = Callable[[argparse.ArgumentParser], None]


def main(work: Work, arguments: Arguments, *, on_cpu: bool, one_process: bool = False) -> int:
    """`look`: what there is.  `measure`: on all GPUs at once, a process each, or in one process for all (gpu 0)."""
    options = _parsed(arguments)
    if options.command == "look":
        say(look(options.venv))
        return 0
    # whatever hangs is over then, also where this program is stuck in the driver
    signal.alarm(int(options.deadline) + _LAST_S)
    # all GPUs, in the order in which nvidia-smi counts
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    os.environ.update(CUDA_DEVICE_ORDER="PCI_BUS_ID", CUBLAS_WORKSPACE_CONFIG=":4096:8")
    try:
        return _measure(work, options, on_cpu, one_process)
    except (RuntimeError, OSError, MemoryError, ImportError, ValueError) as error:
        say({"event": "error", "text": error_text(error)})
        return 1


def look(venv: str) -> Dict[str, Any]:
    """GPUs that are there, torch in the launcher's environment, and which machine this is."""
    found = sorted(Path(venv).glob("lib/python3*/site-packages/torch-*.dist-info")) if venv else []
    gpus = hardware.gpu_count()
    return {
        "event": "ready",
        "gpus": gpus,
        "torch": found[0].name[len("torch-") : -len(".dist-info")] if found else None,
        "machine": hardware.text(hardware.PROC / BOOT_ID),
        "topology": hardware.smi("topo", "-m") if gpus else None,
    }


def _parsed(arguments: Arguments) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("look").add_argument("--venv", default="")
    measuring = commands.add_parser("measure")
    measuring.add_argument("--seconds", type=float, required=True, help="of a run")
    measuring.add_argument("--runs", type=int, required=True)
    measuring.add_argument("--deadline", type=float, required=True)
    measuring.add_argument("--need", type=int, default=0, help="GPUs that are known to be there")
    measuring.add_argument("--gpu", type=int, help="in a member of the crew")
    arguments(measuring)
    return parser.parse_args()


def _measure(work: Work, options: argparse.Namespace, on_cpu: bool, one_process: bool) -> int:
    import torch

    if options.gpu is not None:
        torch.cuda.set_device(options.gpu)
        work(Device(torch, options.gpu, options, say, wait_for_others))
        return 0
    gpus = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    if not gpus and (options.need or not on_cpu):
        known = " of the %d that are there" % options.need if options.need else ""
        say({"event": "error", "text": "torch %s sees no GPU%s" % (torch.__version__, known)})
        return 1
    say({"event": "devices", "gpus": [describe(torch, gpu) for gpu in gpus], "host": host(torch)})
    watch = Watch() if gpus else None

    def relay(event: Dict[str, Any]) -> None:
        if watch is not None and "began" in event and event.get("gpu") is not None:
            event["seen"] = watch.between(event["gpu"], event["began"], event["ended"])
        say(event)

    try:
        if len(gpus) > 1 and not one_process:
            # before the watch: what forks should have no threads
            crew = Crew(lambda gpu: [sys.executable, *sys.argv, "--gpu", str(gpu)], gpus)
            if watch is not None:
                watch.start()
            return 0 if crew.play(relay, options.deadline) else 1
        if watch is not None:
            watch.start()
        work(Device(torch, gpus[0] if gpus else None, options, relay, nobody_to_wait_for))
    finally:
        if watch is not None:
            watch.stop()
    return 0


def describe(torch: Any, gpu: int) -> Dict[str, Any]:
    """What is to stand beside the figures of this GPU."""
    known = torch.cuda.get_device_properties(gpu)
    card = next((each for each in cards() if each.gpu == gpu), None)
    return {
        "gpu": gpu,
        "device": known.name,
        "processors": known.multi_processor_count,
        "memory_bytes": known.total_memory,
        "capability": "%d.%d" % Cuda(torch).capability(gpu),
        "uuid": card.uuid if card else None,
        "bus": card.bus if card else None,
        "numa": hardware.numa_of(card.bus) if card else None,
        "pcie_gen": card.pcie_gen if card else None,
        "pcie_width": card.pcie_width if card else None,
        "clock_max_mhz": card.clock_max_mhz if card else None,
        "power_limit_w": card.power_limit_w if card else None,
    }


_CARDS: List[hardware.Card] = []


def cards() -> List[hardware.Card]:
    """Asked for once."""
    if not _CARDS:
        _CARDS.extend(hardware.cards())
    return _CARDS


def host(torch: Any) -> Dict[str, Any]:
    """Of the processor and the libraries: what decides which bits come out."""
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cpu": hardware.cpu_model(),
        "cpu_kernels": _cpu_kernels(torch),
        "threads": len(os.sched_getaffinity(0)),
    }


def _cpu_kernels(torch: Any) -> Optional[str]:
    """Which set of instructions torch has chosen; older torch does not tell."""
    try:
        return str(torch.backends.cpu.get_cpu_capability())
    except AttributeError:
        return None
