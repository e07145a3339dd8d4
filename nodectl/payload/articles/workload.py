"""One host's ranks of a workload's program, as torchrun would start them; says the summary that rank 0 ends with.

On standard input: the workload's modules as JSON (name: source), run from memory, so that nothing is written on the
host. It ends when one of its ranks fails.
"""

import argparse
import io
import json
import os
import sys
from typing import Dict, Optional, Sequence

from ..common.frames import say
from . import gang


class Summaries(io.TextIOBase):
    """Takes what a program prints on standard output, and says its JSON lines as events."""

    def __init__(self) -> None:
        self._rest = ""

    def write(self, text: str) -> int:
        """Whole lines at once; what is no JSON object is dropped."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            summary = parsed(line)
            if summary is not None:
                say(event="summary", summary=summary)
        return len(text)


def parsed(line: str) -> Optional[Dict[str, object]]:
    """Return the object that a line is; None if it is none."""
    try:
        document = json.loads(line) if line.startswith("{") else None
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def set_ranks(options: argparse.Namespace) -> None:
    """Set the variables that torchrun tells a rank; none where it is the only one."""
    places = {
        "RANK": options.rank_base + options.local_rank,
        "WORLD_SIZE": options.world_size,
        "LOCAL_RANK": options.local_rank,
        "LOCAL_WORLD_SIZE": options.nproc,
        "MASTER_ADDR": options.master_addr,
        "MASTER_PORT": options.master_port,
    }
    for name, value in places.items():
        os.environ.pop(name, None)
        if options.world_size > 1:
            os.environ[name] = str(value)


def run_rank(options: argparse.Namespace, texts: Dict[str, str]) -> None:
    """One rank's program; it ends the process by itself where it goes well."""
    gang.set_environment(options)
    set_ranks(options)
    sys.meta_path.insert(0, gang.Sources(texts))
    sys.argv = [options.program + ".py", *options.arguments]
    sys.stdout = Summaries()  # what it prints goes no further
    # as a program: its last line starts it
    exec(compile(texts[options.program], options.program + ".py", "exec"), {"__name__": "__main__"})  # noqa: S102


def parse(argv: Optional[Sequence[str]]) -> argparse.Namespace:
    """Return the options of a command line."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    gang.add_arguments(parser)
    parser.add_argument("--program", required=True)
    parser.add_argument("--arguments", type=json.loads, required=True, help="a list of texts, as JSON")
    return parser.parse_args(argv)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the program, and end at once."""
    return gang.main(parse(argv), run_rank)
