"""`python -m tests.pages PAGE… [--show]`: pages followed by hand, one after the other."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.pages.page import Command, PageError, read_page
from tests.pages.run import follow


def main() -> None:
    """Exit status 1 where a page does not show what is."""
    parser = argparse.ArgumentParser(prog="python -m tests.pages", description=__doc__)
    parser.add_argument("pages", nargs="+", type=Path, metavar="PAGE")
    parser.add_argument("--show", action="store_true", help="print what each command printed")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    def done(command: Command, output: str) -> None:
        sys.stdout.write(f"{time.strftime('%X')}  $ {command.text}\n{output if options.show else ''}")
        sys.stdout.flush()

    failed = 0
    for path in options.pages:
        with tempfile.TemporaryDirectory(prefix="nodectl-page-") as folder:
            try:
                follow(read_page(path), Path(folder) / path.stem, done=done)
                sys.stdout.write(f"{path}: as shown\n")
            except PageError as error:
                sys.stdout.write(f"{error}\n")
                failed = 1
    sys.exit(failed)


if __name__ == "__main__":
    main()
