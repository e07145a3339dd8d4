"""`python -m tests.fuzz FAMILY --seconds N`: the last line is JSON; ends with 1 if a parser broke its promise."""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
import time
from pathlib import Path

from tests.fuzz.families import FAMILIES, check, seeds
from tests.fuzz.mutate import mutated


def main() -> int:
    """Gives changed outputs to a family's parsers until the time is over or one of them breaks its promise."""
    arguments = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    arguments.add_argument("family", choices=sorted(FAMILIES))
    arguments.add_argument("--seconds", type=float, default=600)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--keep", type=Path, default=Path(".state/fuzz"), help="where breaking inputs are kept")
    options = arguments.parse_args()
    rng, until = random.Random(options.seed), time.monotonic() + options.seconds
    inputs, slowest_s = 0, 0.0
    crashes: list[str] = []
    while not crashes and time.monotonic() < until:
        tool = rng.choice(FAMILIES[options.family])
        text = mutated(rng, seeds(tool))
        inputs += 1
        try:
            slowest_s = max(slowest_s, check(tool, text))
        except Exception as error:
            kept = _keep(options.keep, tool, text)
            crashes.append(f"{tool}: {type(error).__name__}: {str(error)[:300]} ({kept})")
    tally = {"family": options.family, "inputs": inputs, "slowest_s": slowest_s, "crashes": crashes}
    sys.stdout.write(json.dumps(tally) + "\n")
    return 1 if crashes else 0


def _keep(folder: Path, tool: str, text: str) -> Path:
    """Return the file that `nodectl parse` can be given."""
    folder.mkdir(parents=True, exist_ok=True)
    data = text.encode("utf-8", errors="replace")
    path = folder / f"{tool}-{hashlib.sha256(data).hexdigest()[:12]}.txt"
    path.write_bytes(data)
    return path


if __name__ == "__main__":
    sys.exit(main())
