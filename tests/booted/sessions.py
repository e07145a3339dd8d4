"""Sessions: fleets that come up for the tests of one process, and go with it or at the next session's start."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.booted.containers import BOOT_S as CONTAINER_BOOT_S
from tests.booted.containers import Container, Shown
from tests.booted.fleet import Fleet, Identity, mount_root, mounted_disk
from tests.booted.image import root_image
from tests.booted.journal import Journal, birth
from tests.booted.machines import BOOT_S as MACHINE_BOOT_S
from tests.booted.machines import Machine, machine_image
from tests.booted.wire import make_switch


def clear_dead(place: Path) -> None:
    """Undo what sessions left whose process is gone."""
    for home in sorted(place.glob("*-*")):
        pid, _, born = home.name.partition("-")
        if birth(int(pid)) != int(born.partition("-")[0]):
            Journal(home).undo()


@contextmanager
def session(place: Path, kind: str) -> Iterator[Journal]:
    """A folder below `place` and its journal; everything in it is undone at the end."""
    place.mkdir(parents=True, exist_ok=True)
    clear_dead(place)
    home = place / f"{os.getpid()}-{birth(os.getpid())}-{kind}"
    home.mkdir(mode=0o711)
    journal = Journal(home)
    try:
        yield journal
    finally:
        journal.undo()


@contextmanager
def containers(
    place: Path, names: tuple[str, ...], shown: Shown, release: str = "", driver: bool = False
) -> Iterator[Fleet]:
    """Containers that are up, of this machine's release or of another; `driver`: with Debian's own at hand."""
    image = root_image(release, driver)
    with session(place, "containers") as journal:
        identity, switch = Identity(journal.home), make_switch(journal, f"nb{os.getpid()}c")
        systems: list[Container] = []
        for index, name in enumerate(names):
            home = journal.home / name
            identity.give(mount_root(journal, image, home), name, switch.address(index))
            systems.append(Container(name, index, switch, journal, home, identity.ssh_config, shown))
        with running(systems, CONTAINER_BOOT_S):
            yield Fleet(journal.home, systems, identity.password)


@contextmanager
def machines(place: Path, names: tuple[str, ...]) -> Iterator[Fleet]:
    """Emulated machines that are up; they see no folder of this machine, and torch would take them minutes."""
    image = machine_image()
    with session(place, "machines") as journal:
        identity, switch = Identity(journal.home), make_switch(journal, f"nb{os.getpid()}m")
        systems: list[Machine] = []
        for index, name in enumerate(names):
            home = journal.home / name
            home.mkdir()
            subprocess.run(["cp", "--sparse=always", str(image.disk), str(home / "disk.ext4")], check=True)
            with mounted_disk(journal, home) as root:
                identity.give(root, name, switch.address(index))
            systems.append(Machine(name, index, switch, journal, home, identity.ssh_config, image))
        with running(systems, MACHINE_BOOT_S):
            yield Fleet(journal.home, systems, identity.password)


@contextmanager
def running(systems: Sequence[Container] | Sequence[Machine], deadline_s: float) -> Iterator[None]:
    """All started at once, each up within the deadline, and all off at the end."""
    try:
        for system in systems:
            system.start()
        for system in systems:
            system.wait_up(deadline_s)
        yield
    finally:
        for system in systems:
            system.stop()
