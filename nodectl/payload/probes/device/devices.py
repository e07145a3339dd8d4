"""One process a GPU, all loaded at the same moment: each says that it is ready, and is told to go when all are."""

import argparse
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set

from ...common import libraries, machine, program
from ...common.frames import Reader, say
from ...jobs.syscalls import die_with_parent
from . import hardware
from .hardware import Watch

Say = Callable[..., None]

# a lab's host that answers for hardware of a recording
_DRESSED = Path("/var/lib/nodectl-lab/recorded/name")


def wait_for_others() -> None:
    """In a member: ready; returns when all the others are, ends the process if nobody is there to say so."""
    say(event="waiting")
    if not sys.stdin.readline():
        sys.exit(1)


class Crew:
    """Members by GPU; `play` hands on what they say, with the GPU's number."""

    def __init__(self, argv: Callable[[int], List[str]], gpus: List[int]) -> None:
        self._lines: "queue.Queue[Any]" = queue.Queue()
        self._members: Dict[int, "subprocess.Popen[bytes]"] = {}
        try:
            for gpu in gpus:
                self._members[gpu] = subprocess.Popen(
                    argv(gpu), stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=die_with_parent
                )
        except BaseException:
            self.end()
            raise
        self._waiting: Set[int] = set()
        self._alive = set(self._members)

        def listen(gpu: int) -> None:
            reader = Reader()
            for line in self._members[gpu].stdout or ():
                for text in reader.feed(line):
                    self._lines.put((gpu, text))
            self._lines.put((gpu, None))

        for gpu in self._members:
            threading.Thread(target=listen, args=(gpu,), daemon=True).start()

    def play(self, relay: Say, seconds: float) -> bool:
        """Return True if all ended well in this time; those that did not are killed, each with an error of its own."""
        until, well = time.monotonic() + seconds, True
        try:
            while self._alive:
                try:
                    gpu, line = self._lines.get(timeout=max(0.0, until - time.monotonic()))
                except queue.Empty:
                    for gpu in sorted(self._alive):
                        relay(event="error", gpu=gpu, text="GPU %d: no end within %.0f s" % (gpu, seconds))
                    return False
                if line is None:
                    self._alive.discard(gpu)
                    self._waiting.discard(gpu)
                    status = self._members[gpu].wait()
                    well = well and status == 0
                    if status < 0:  # a death that it could not tell of
                        relay(event="error", gpu=gpu, text="GPU %d: ended by signal %d" % (gpu, -status))
                else:
                    self._take_line(gpu, line, relay)
                self._go()
            return well
        finally:
            self.end()

    def end(self) -> None:
        """End all members."""
        for member in self._members.values():
            if member.poll() is None:
                member.kill()
            member.wait()

    def _take_line(self, gpu: int, line: bytes, relay: Say) -> None:
        try:
            event = json.loads(line)
        except ValueError:  # some library's own words
            return
        if not isinstance(event, dict):
            return
        if event.get("event") == "waiting":
            self._waiting.add(gpu)
        else:
            relay(**{"gpu": gpu, **event})

    def _go(self) -> None:
        if self._alive and self._waiting == self._alive:
            self._waiting = set()
            for gpu in self._alive:
                pipe = self._members[gpu].stdin
                try:
                    if pipe is not None:
                        pipe.write(b"go\n")
                        pipe.flush()
                except OSError:  # it has just died; its end is heard next
                    continue


# the controller waits a little longer than the host does
_LAST_S = 20


class Device(NamedTuple):
    """The device of one process: a GPU by number, or the processors (None)."""

    torch: Any
    gpu: Optional[int]
    options: argparse.Namespace
    say: Say
    ready: Callable[[], None]


Work = Callable[[Device], None]


def main(
    argv: Optional[Sequence[str]],
    work: Work,
    *,
    on_cpu: bool,
    one_process: bool = False,
    arguments: Callable[[argparse.ArgumentParser], None] = lambda measuring: None,
) -> int:
    """`look`: what there is.  `measure`: on all GPUs at once, a process each, or in one process for all (gpu 0)."""

    def measure(options: argparse.Namespace) -> None:
        # whatever hangs is over then, also where this program is stuck in the driver
        signal.alarm(int(options.deadline) + _LAST_S)
        # all GPUs, in the order in which nvidia-smi counts
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        os.environ.update(CUDA_DEVICE_ORDER="PCI_BUS_ID", CUBLAS_WORKSPACE_CONFIG=":4096:8")
        _measure(work, options, on_cpu, one_process)

    parser, (looking, measuring) = program.commands(look, measure)
    looking.add_argument("--venv", default="")
    measuring.add_argument("--seconds", type=float, required=True, help="of a run")
    measuring.add_argument("--runs", type=int, required=True)
    measuring.add_argument("--deadline", type=float, required=True)
    measuring.add_argument("--need", type=int, default=0, help="GPUs that are known to be there")
    measuring.add_argument("--gpu", type=int, help="in a member of the crew")
    arguments(measuring)
    return program.run(parser, argv, MemoryError, ImportError)


def look(options: argparse.Namespace) -> None:
    """Say which GPUs are there, torch in the launcher's environment, and which machine this is."""
    gpus = hardware.gpu_count()
    say(
        event="ready",
        gpus=gpus,
        recorded=_DRESSED.exists(),
        torch=libraries.installed(Path(options.venv), "torch") or None if options.venv else None,
        machine=machine.boot_id(),
        topology=machine.smi("topo", "-m") if gpus else None,
    )


def _measure(work: Work, options: argparse.Namespace, on_cpu: bool, one_process: bool) -> None:
    import torch

    if options.gpu is not None:
        torch.cuda.set_device(options.gpu)
        work(Device(torch, options.gpu, options, say, wait_for_others))
        return
    gpus = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    if not gpus and (options.need or not on_cpu):
        of_needed = " of the %d that are there" % options.need if options.need else ""
        raise RuntimeError("torch %s sees no GPU%s" % (torch.__version__, of_needed))
    say(event="devices", gpus=[describe(torch, gpu) for gpu in gpus], host=host(torch))
    several = len(gpus) > 1 and not one_process
    watch = Watch() if gpus else None

    def relay(**event: Any) -> None:
        if watch is not None and "began" in event and event.get("gpu") is not None:
            event["seen"] = watch.between(event["gpu"], event["began"], event["ended"])
        say(**event)

    try:
        # before the watch: what forks should have no threads
        crew = Crew(lambda gpu: [sys.executable, *sys.argv, "--gpu", str(gpu)], gpus) if several else None
        if watch is not None:
            watch.start()
        if crew is None:
            work(Device(torch, gpus[0] if gpus else None, options, relay, lambda: None))
        elif not crew.play(relay, options.deadline):
            sys.exit(1)
    finally:
        if watch is not None:
            watch.stop()


def describe(torch: Any, gpu: int) -> Dict[str, Any]:
    """Return what is to stand beside the figures of this GPU."""
    properties, card = torch.cuda.get_device_properties(gpu), card_of(gpu)
    return {
        "device": properties.name,
        "processors": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "capability": "%d.%d" % torch.cuda.get_device_capability(gpu),
        **(card._asdict() if card else dict.fromkeys(hardware.Card._fields)),
        "gpu": gpu,
        "numa": hardware.numa_of(card.bus) if card else None,
    }


_CARDS: List[hardware.Card] = []


def card_of(gpu: int) -> Optional[hardware.Card]:
    """nvidia-smi is asked for all of them, once."""
    if not _CARDS:
        _CARDS.extend(hardware.cards())
    return next((card for card in _CARDS if card.gpu == gpu), None)


def host(torch: Any) -> Dict[str, Any]:
    """Return the processor and the libraries, which decide which bits come out."""
    # which set of instructions torch has chosen; older torch does not tell
    kernels = getattr(getattr(torch.backends, "cpu", None), "get_cpu_capability", None)
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cpu": hardware.cpu_model(),
        "cpu_kernels": str(kernels()) if kernels else None,
        "threads": len(os.sched_getaffinity(0)),
    }
