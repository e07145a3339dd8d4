"""`python -m tests.pages PAGE… [--write] [--keep] [--show]`: pages followed by hand, one after the other."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from pathlib import Path

from nodectl.lab.down import down
from nodectl.lab.state import LabFolder
from tests.pages.page import ROOT, PageError, read_page
from tests.pages.run import Result, follow, renew

_PLACE = ROOT / ".state" / "pages"


def main() -> None:
    """Exit status 1 where a page does not show what is."""
    parser = argparse.ArgumentParser(prog="python -m tests.pages", description=__doc__)
    parser.add_argument("pages", nargs="+", type=Path, metavar="PAGE")
    parser.add_argument("--write", action="store_true", help="put the figures of this run into the page")
    parser.add_argument("--keep", action="store_true", help="leave the lab and the page's folder as they are")
    parser.add_argument("--show", action="store_true", help="print what each command printed")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    _clear_ended()
    failed = [path for path in options.pages if not _follow(path, options)]
    sys.exit(1 if failed else 0)


def _follow(path: Path, options: argparse.Namespace) -> bool:
    folder = _PLACE / str(os.getpid()) / path.stem
    results: list[Result] = []

    def done(result: Result) -> None:
        results.append(result)
        sys.stdout.write(f"{result.wall_s:6.1f} s  $ {result.command.text}\n")
        if options.show:
            sys.stdout.write(result.output)
        sys.stdout.flush()

    try:
        page = read_page(path)
        follow(page, folder, keep=options.keep, done=done)
        if options.write and renew(page, results):
            sys.stdout.write(f"{page.name}: written anew\n")
    except PageError as error:
        sys.stdout.write(f"{error}\n")
        return False
    else:
        sys.stdout.write(f"{page.name}: as shown, {sum(result.wall_s for result in results):.0f} s\n")
        return True
    finally:
        if options.keep:
            sys.stdout.write(f"kept: {folder}, with its lab if one was up: the next run removes both\n")
        else:
            shutil.rmtree(folder.parent, ignore_errors=True)


def _clear_ended() -> None:
    """What runs that have ended have left, kept labs among it."""
    for place in _PLACE.glob("*"):
        if Path("/proc", place.name).exists():
            continue
        for lab in place.glob("*/home/.local/state/nodectl/lab/*"):
            down(LabFolder(lab.resolve()))
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
