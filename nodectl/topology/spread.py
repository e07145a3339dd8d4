"""Which NIC each GPU uses: its closest, and those that are as close shared out evenly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nodectl.model.links import NEAR, between, closeness, meaning
from nodectl.model.topology import GpuNic


def assign(
    gpus: Sequence[str], devices: Mapping[str, str], links: Mapping[str, Mapping[str, str]]
) -> dict[str, GpuNic]:
    """GPU → NIC; `devices` are the usable NICs (name in the matrix → device).

    No NIC gets a second GPU while one that is as close to it has none, and none a third while one has one.
    """
    closest = {gpu: _closest(gpu, devices, links) for gpu in gpus}
    chosen = _matched(gpus, closest, links)
    chosen = {gpu: chosen[gpu] for gpu in gpus if gpu in chosen}
    return {gpu: _told(gpu, chosen, closest[gpu], devices, links) for gpu in gpus}


def _closest(gpu: str, devices: Mapping[str, str], links: Mapping[str, Mapping[str, str]]) -> list[str]:
    ranks = {nic: closeness(between(links, gpu, nic)) for nic in devices if between(links, gpu, nic)}
    best = min(ranks.values(), default=0)
    return [nic for nic, rank in ranks.items() if rank == best]


def _matched(
    gpus: Sequence[str], closest: Mapping[str, Sequence[str]], links: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    """A matching that grows: one GPU a NIC as long as that goes, then two, and so on; near GPUs choose first."""
    chosen: dict[str, str] = {}
    order = [gpu for gpu in gpus if closest[gpu]]
    order.sort(key=lambda gpu: closeness(between(links, gpu, closest[gpu][0])))
    for share in range(1, len(order) + 1):
        for gpu in order:
            if gpu not in chosen:
                _place(gpu, closest, chosen, share, set())
    return chosen


def _place(gpu: str, closest: Mapping[str, Sequence[str]], chosen: dict[str, str], share: int, tried: set[str]) -> bool:
    """Give `gpu` the least used of its NICs below `share` GPUs, if need be by moving another GPU on."""
    users = {nic: [other for other, taken in chosen.items() if taken == nic] for nic in closest[gpu]}
    free = [nic for nic in closest[gpu] if len(users[nic]) < share]
    if free:
        chosen[gpu] = min(free, key=lambda nic: len(users[nic]))
        return True
    for nic in closest[gpu]:
        if nic not in tried:
            tried.add(nic)
            if any(_place(user, closest, chosen, share, tried) for user in users[nic]):
                chosen[gpu] = nic
                return True
    return False


def _told(
    gpu: str,
    chosen: Mapping[str, str],
    closest: Sequence[str],
    devices: Mapping[str, str],
    links: Mapping[str, Mapping[str, str]],
) -> GpuNic:
    nic = chosen.get(gpu)
    if nic is None:
        return GpuNic(None, None, None, "no NIC that RDMA could use")
    link = between(links, gpu, nic)
    others = [other for other, taken in chosen.items() if taken == nic and other != gpu]
    why = f"{link}: {meaning(link)}"
    if len(closest) == 1:
        why += ", the closest" if len(devices) > 1 else ", the only one"
    else:
        why += f", as close as {', '.join(each for each in closest if each != nic)}; shared out evenly"
    if link not in NEAR:
        why += "; none is nearer"
    if others:
        why += f"; also used by {', '.join(others)}"
    return GpuNic(nic, devices[nic], link, why)
