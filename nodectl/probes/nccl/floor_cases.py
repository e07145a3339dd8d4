"""The sizes at which the hosts' hardware profiles have floors: they are measured, so that something is compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from nodectl.common.units import parse_size
from nodectl.errors import ProfileError
from nodectl.model.host import Host
from nodectl.predict.collectives import COLLECTIVES
from nodectl.probes.nccl.hosts import NAME, Ready
from nodectl.probes.nccl.routes import Route
from nodectl.profiles.host import hardware_of
from nodectl.profiles.schema import Floor

# over what other way than the usual one: nothing that is measured here
_OTHER_WAYS = ("over", "rail")


def floor_cases(
    ready: Sequence[Ready], routes: Mapping[str, Route], profile_dirs: Sequence[Path], nodes: int
) -> dict[str, tuple[int, ...]]:
    """Sizes in bytes by collective, of floors for so many nodes together."""
    sizes: dict[str, set[int]] = defaultdict(set)
    for host in ready:
        link = routes.get(host.name, Route()).link_class
        for floor in _floors(host.host, profile_dirs):
            size = parse_size(str(floor.conditions.get("size", "")))
            if size and _is_for(floor, host.endpoint.gpus, link, nodes):
                sizes[str(floor.conditions["collective"])].add(size)
    return {collective: tuple(sorted(own)) for collective, own in sizes.items()}


def _floors(host: Host, profile_dirs: Sequence[Path]) -> Sequence[Floor]:
    try:
        hardware = hardware_of(host, profile_dirs)
    except ProfileError:
        # said where measurements are held against it
        return ()
    return [floor for floor in hardware.floors if floor.probe == NAME] if hardware else ()


def _is_for(floor: Floor, gpus: int, link: str | None, nodes: int) -> bool:
    given = floor.conditions
    if given.get("collective") not in COLLECTIVES or any(name in given for name in _OTHER_WAYS):
        return False
    if nodes > 1:
        most = given.get("nodes")
        return isinstance(most, int) and most >= nodes and bool(given.get("ranks_per_host", gpus) == gpus)
    return "nodes" not in given and bool(given.get("gpus", gpus) == gpus) and floor.link_class in (None, link)
