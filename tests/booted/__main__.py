"""`python -m tests.booted [containers|machines|down]`: a fleet to try things on by hand, up until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys
from contextlib import AbstractContextManager
from pathlib import Path

from nodectl.common.node_paths import LAB_SHARE
from nodectl.common.paths import state_dir
from nodectl.provision.wheels import ensure_lab_share
from tests.booted.fleet import Fleet
from tests.booted.image import say
from tests.booted.needs import CONTAINER_PROGRAMS, MACHINE_PROGRAMS, missing_packages
from tests.booted.sessions import clear_dead, containers, machines

_TESTS = Path(__file__).resolve().parents[2] / ".state" / "tests" / "booted"


def main() -> None:
    """Bring it up, say where its inventory is, wait, and take it away."""
    parser = argparse.ArgumentParser(prog="python -m tests.booted", description=__doc__)
    parser.add_argument("kind", nargs="?", choices=("containers", "machines", "down"), default="containers")
    options = parser.parse_args()
    if options.kind == "down":  # what killed sessions left, of tests too
        for place in (state_dir() / "booted", _TESTS):
            clear_dead(place)
        return
    missing = missing_packages(CONTAINER_PROGRAMS | MACHINE_PROGRAMS)
    if missing:
        sys.exit(f"this machine lacks: {' '.join(missing)} (`make test-booted` installs them)")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    with bring_up(options.kind) as fleet:
        say(f"up; sudo's password for the login ops is {fleet.password}; Ctrl-C takes them away")
        sys.stdout.write(f"{fleet.inventory()}\n")
        sys.stdout.flush()
        try:
            signal.pause()
        except KeyboardInterrupt:
            return


def bring_up(kind: str) -> AbstractContextManager[Fleet]:
    """Two of the kind that was asked for."""
    place = state_dir() / "booted"
    if kind == "machines":
        return machines(place, ("vm01", "vm02"))
    return containers(place, ("box01", "box02"), {ensure_lab_share(say): LAB_SHARE})


if __name__ == "__main__":
    main()
