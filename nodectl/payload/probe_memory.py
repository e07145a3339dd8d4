"""Memory bandwidth of this host: `look` says by what means it could be measured, `measure` does it.

JSON lines; Python 3.8, standard library (torch only where the launcher's environment runs this).
"""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional, Sequence

if TYPE_CHECKING:
    from nodectl.payload.membench import compiled, libc, machine, rates, tensors
else:  # on a node this folder is sys.path[0], and there is no nodectl
    from membench import compiled, libc, machine, rates, tensors

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
METHODS = {"torch": tensors, "cc": compiled, "libc": libc}


def say(**event: Any) -> None:
    print(json.dumps(event), flush=True)


def look(options: argparse.Namespace) -> None:
    """What there is to measure with; `machine` is the same for all containers of one machine."""
    methods = ["libc"]
    if compiled.can():
        methods.insert(0, "cc")
    if options.venv and any(Path(options.venv).glob("lib/python3*/site-packages/torch/__init__.py")):
        methods.insert(0, "torch")
    say(event="ready", methods=methods, machine=machine.text(BOOT_ID))


def measure(options: argparse.Namespace) -> None:
    """Every scope: what each run came to, by its best passes and by its best repetition."""
    method = METHODS[options.method]
    for scope in machine.scopes():
        cache = machine.cache_bytes(scope.cpus)
        size = machine.array_bytes(cache, method.ARRAYS)
        best_of = options.repetitions
        found = method.measure(scope.cpus, size, options.seconds, best_of * options.runs)
        for kernel, told in found.items():
            runs = [told[start : start + best_of] for start in range(0, len(told), best_of)]
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


def main(argv: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command", required=True)
    looking = commands.add_parser("look")
    looking.set_defaults(run=look)
    looking.add_argument("--venv", default="")
    measuring = commands.add_parser("measure")
    measuring.set_defaults(run=measure)
    measuring.add_argument("--method", choices=sorted(METHODS), required=True)
    measuring.add_argument("--seconds", type=float, required=True, help="of one repetition of one kernel")
    measuring.add_argument("--repetitions", type=int, required=True, help="of which a run is made")
    measuring.add_argument("--runs", type=int, required=True)
    options = parser.parse_args(argv)
    try:
        options.run(options)
    except (RuntimeError, OSError, MemoryError, ImportError) as error:
        say(event="error", text=str(error) or type(error).__name__)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
