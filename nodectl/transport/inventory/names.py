"""The names of an inventory's hosts and groups, kept while its files are as they were: for who asks at every key."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from nodectl.common.files import replace_file
from nodectl.common.paths import cache_dir
from nodectl.transport.inventory import read_inventory, read_settings

# a program or a plug-in may say something else by now, though its file is the same
_KEPT_S = 300.0
# of a folder with more files than that nothing is kept
_MOST_FILES = 500
# what decides which inventory is read, where none is named
_ENVIRONMENT = ("ANSIBLE_INVENTORY", "ANSIBLE_CONFIG", "HOME")


@dataclass(frozen=True, slots=True)
class Names:
    """`sources` are the inventories as Ansible was given them."""

    sources: tuple[str, ...]
    hosts: tuple[str, ...]
    groups: tuple[str, ...]


def names_of(sources: Sequence[str]) -> Names:
    """Return those of `sources`, by default of what ansible.cfg or ANSIBLE_INVENTORY say; as `read_inventory` has them.

    Without Ansible where they were read in the last minutes, and no file has changed.
    """
    place = _place(sources)
    with suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads(place.read_bytes())
        if abs(time.time() - kept["time"]) < _KEPT_S and kept["stamps"] == _stamps(kept["stamps"]):
            return Names(**{key: tuple(values) for key, values in kept["names"].items()})
    inventory = read_inventory(sources)
    names = Names(inventory.sources, inventory.names(), inventory.groups())
    files = [*_files(inventory.sources), *filter(None, [read_settings().file])]
    if len(files) <= _MOST_FILES:
        document = {"time": time.time(), "stamps": _stamps(files), "names": asdict(names)}
        with suppress(OSError):
            place.parent.mkdir(mode=0o700, exist_ok=True)
            replace_file(place, json.dumps(document))
    return names


def _place(sources: Sequence[str]) -> Path:
    """Return where the names of these sources are kept, as they are seen from this folder."""
    seen = [*sources, str(Path.cwd()), *(os.environ.get(name, "") for name in _ENVIRONMENT)]
    return cache_dir() / "names" / f"{hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:32]}.json"


def _files(sources: Iterable[str]) -> Iterator[str]:
    for path in map(Path, sources):
        yield str(path)
        if path.is_dir():
            yield from map(str, path.rglob("*"))


def _stamps(files: Iterable[str]) -> dict[str, list[int]]:
    """Return what changes with a file: none for what is not there, as a list of hosts."""
    stamps = {}
    for name in files:
        with suppress(OSError):
            about = Path(name).stat()
            stamps[name] = [about.st_mtime_ns, about.st_size, about.st_ino]
    return stamps
