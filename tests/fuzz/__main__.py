"""`python -m tests.fuzz FAMILY --seconds N`: the last line is JSON; ends with 1 where a parser broke its promise."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from tests.fuzz.engines import Feeder, by_atheris, by_mutation, has_atheris
from tests.fuzz.families import FAMILIES


def main() -> int:
    """Runs one family with the best engine at hand."""
    arguments = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    arguments.add_argument("family", choices=sorted(FAMILIES))
    arguments.add_argument("--seconds", type=float, default=600)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument(
        "--engine", choices=("atheris", "mutation"), default="atheris" if has_atheris() else "mutation"
    )
    arguments.add_argument("--keep", type=Path, default=Path(".state/fuzz"), help="where breaking inputs are kept")
    options = arguments.parse_args()
    feeder = Feeder(options.family, options.engine, options.seconds, options.keep)

    def told() -> int:
        sys.stdout.write(json.dumps(asdict(feeder.tally)) + "\n")
        sys.stdout.flush()
        return 1 if feeder.tally.crashes else 0

    if options.engine == "atheris":
        by_atheris(feeder, options.seed, lambda: os._exit(told()))
    else:
        by_mutation(feeder, options.seed)
    return told()


if __name__ == "__main__":
    sys.exit(main())
