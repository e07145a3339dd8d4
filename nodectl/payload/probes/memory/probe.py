"""Memory bandwidth of this host: `look` says by what means it could be measured, `measure` does it.

`spin` says how much of its processors the host gets.
"""

import argparse
import os
from pathlib import Path
from typing import Optional, Sequence

from ...common import libraries, machine, program
from ...common.events import say
from . import compiled, libc, rates, spinning, tensors

METHODS = {"torch": tensors, "cc": compiled, "libc": libc}


def look(options: argparse.Namespace) -> None:
    """What there is to measure with; `machine` is the same for all containers of one machine."""
    methods = ["libc"]
    if compiled.can():
        methods.insert(0, "cc")
    if options.venv and libraries.installed(Path(options.venv), "torch"):
        methods.insert(0, "torch")
    say(event="ready", methods=methods, machine=machine.boot_id())


def measure(options: argparse.Namespace) -> None:
    """Every scope: what each run came to, by its best passes and by its best repetition."""
    method = METHODS[options.method]
    for scope in machine.scopes():
        cache = machine.cache_bytes(scope.cpus)
        size = machine.array_bytes(cache, method.ARRAYS)
        best_of = options.repetitions
        kernels = method.measure(scope.cpus, size, options.seconds, best_of * options.runs)
        for kernel, repetitions in kernels.items():
            runs = [repetitions[start : start + best_of] for start in range(0, len(repetitions), best_of)]
            say(
                event="measured",
                kernel=kernel,
                numa=scope.numa,
                threads=len(scope.cpus),
                runs_gb_s=[round(rates.best_of_ten(run), 3) for run in runs],
                sustained_gb_s=[round(rates.sustained(run), 3) for run in runs],
                array_bytes=size,
                cache_bytes=cache,
            )


def spin(options: argparse.Namespace) -> None:
    """Compute on every processor for a while: beside a host that does the same, a quota shows and load does not."""
    cpus = sorted(os.sched_getaffinity(0))
    got_s, wall_s = spinning.spin(cpus, options.seconds)
    say(event="spun", got=round(got_s / (wall_s * len(cpus)), 4))


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run `look` or `measure`."""
    parser, (looking, measuring, turning) = program.commands(look, measure, spin)
    turning.add_argument("--seconds", type=float, required=True)
    looking.add_argument("--venv", default="")
    measuring.add_argument("--method", choices=sorted(METHODS), required=True)
    measuring.add_argument("--seconds", type=float, required=True, help="of one repetition of one kernel")
    measuring.add_argument("--repetitions", type=int, required=True, help="of which a run is made")
    measuring.add_argument("--runs", type=int, required=True)
    # the compiled program's folder goes with it
    program.end_by_signals()
    return program.run(parser, argv, MemoryError, ImportError)
