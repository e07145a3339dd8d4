"""Topology for the terminal, for JSON, and as an inventory of NCCL's variables; hosts that are alike share it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from nodectl.common.counting import counted
from nodectl.common.nodeset import fold
from nodectl.model.topology import Fabric, NcclEnvironment, NodeGpu, NodeNic, NodeTopology, SwitchLoad, between
from nodectl.report.findings import whole_finding
from nodectl.report.table import aligned


def node_document(node: NodeTopology) -> dict[str, Any]:
    """Return the host for JSON: names as in the matrix, which others rely on, and details beside them."""
    return {
        "gpus": [gpu.name for gpu in node.gpus],
        "nics": [nic.name for nic in node.nics],
        "links": {row: dict(columns) for row, columns in node.links.items()},
        "gpu_nic": {gpu: asdict(use) for gpu, use in node.gpu_nic.items()},
        "bottlenecks": [whole_finding(bottleneck) for bottleneck in node.bottlenecks],
        "nic_devices": {nic.name: nic.device for nic in node.nics},
        "gpu_details": {gpu.name: asdict(gpu) for gpu in node.gpus},
        "nic_details": {nic.name: asdict(nic) for nic in node.nics},
        "unknown": list(node.unknown),
        "recorded": node.recorded or None,
    }


def fabric_document(fabric: Fabric) -> dict[str, Any]:
    """Return the switches with their ports, the greatest distance with its witness, rails, and rank order."""
    document = asdict(replace(fabric, findings=()))
    del document["findings"]
    document["switches"] = [{"name": switch.pop("switch"), **switch} for switch in document["switches"]]
    return document


def environment_document(proposed: Mapping[str, NcclEnvironment]) -> dict[str, Any]:
    """Return by host the variables, why each is set, and why others are not."""
    return {
        host: {
            "nodectl_nccl_env": dict(environment.values),
            "why": dict(environment.why),
            "unset": dict(environment.unset),
        }
        for host, environment in proposed.items()
    }


MARK = "# Proposed by `nodectl topology --propose-env`"
_HEAD = f"""\
{MARK} from what is on each host. Review it, then use it as one more inventory
# (-i), or move each host's part into its host_vars.
"""


def environment_yaml(proposed: Mapping[str, NcclEnvironment]) -> str:
    """Return an Ansible inventory that holds nothing but nodectl_nccl_env of each host."""
    lines = ["all:", "  hosts:"]
    for host, environment in proposed.items():
        lines.append(f"    {_quoted(host)}:")
        lines += [f"      {line}" for line in variables_yaml(environment)]
    return _HEAD + "\n".join(lines)


def variables_yaml(proposed: NcclEnvironment) -> list[str]:
    """Return the lines of one host's variables."""
    lines = ["nodectl_nccl_env:" if proposed.values else "nodectl_nccl_env: {}"]
    for name, value in proposed.values.items():
        lines += [f"  # {_comment(proposed.why.get(name, ''))}", f"  {name}: {_quoted(value)}"]
    lines += [f"  # {name} is not set: {_comment(why)}" for name, why in proposed.unset.items()]
    return lines


def _quoted(text: str) -> str:
    # a JSON string is a YAML one
    return json.dumps(text)


def _comment(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


# the farther, the thinner
_LINES = {"PIX": "═", "PXB": "═", "PHB": "─", "NODE": "╌", "SYS": "┄"}
_RANKS_SHOWN = 16


def alike(nodes: Mapping[str, NodeTopology]) -> list[tuple[list[str], NodeTopology]]:
    """Hosts with the same picture together, the largest group first."""
    groups: dict[str, list[str]] = defaultdict(list)
    for host, node in nodes.items():
        bottlenecks = [(item.check, item.subject, item.actual) for item in node.bottlenecks]
        groups[repr(replace(node, bottlenecks=())) + repr(bottlenecks)].append(host)
    return [(hosts, nodes[hosts[0]]) for hosts in sorted(groups.values(), key=len, reverse=True)]


def nodes_text(nodes: Mapping[str, NodeTopology]) -> str:
    """Every group of hosts: its parts by NUMA node, then the matrix."""
    return "\n\n".join("\n".join(_node(fold(hosts), node)) for hosts, node in alike(nodes))


def _node(hosts: str, node: NodeTopology) -> Iterator[str]:
    models = Counter(gpu.model or "GPU" for gpu in node.gpus)
    parts = [f"{count} x {model}" for model, count in models.items()] or ["no GPU"]
    parts.append(f"{len(node.nics)} RDMA NICs" if node.nics else "no RDMA NIC")
    yield f"{hosts}: {', '.join(parts)}{f' (recorded: {node.recorded})' if node.recorded else ''}"
    nics = {nic.name: nic for nic in node.nics}
    by_numa: dict[tuple[str | None, str | None], list[NodeGpu]] = defaultdict(list)
    for gpu in node.gpus:
        by_numa[gpu.numa, gpu.cpus].append(gpu)
    for (numa, cpus), gpus in by_numa.items():
        yield f"  NUMA {numa or '?'}{f', CPUs {cpus}' if cpus else ''}"
        for gpu in gpus:
            yield f"  {'└' if gpu is gpus[-1] else '├'}─ {_gpu(gpu, node, nics)}"
    reasons: dict[str, list[str]] = defaultdict(list)
    for nic in node.nics:
        if nic.use != "training":
            reasons[nic.use].append(_nic_name(nic))
    yield from (f"  not for training: {', '.join(names)} ({reason})" for reason, names in reasons.items())
    yield ""
    yield from (f"  {line}" for line in matrix(node).splitlines())


def _gpu(gpu: NodeGpu, node: NodeTopology, nics: Mapping[str, NodeNic]) -> str:
    slot = f" (x{gpu.pcie_width}{f' gen{gpu.pcie_gen}' if gpu.pcie_gen else ''})" if gpu.pcie_width else ""
    use = node.gpu_nic.get(gpu.name)
    if use is None or use.nic is None:
        return f"{gpu.name}{slot}"
    bar = _LINES.get(use.link or "", "?") * 2
    nic = nics[use.nic]
    times = f"{len(use.devices)} x " if use.devices[1:] else ""
    rate = f", {times}{nic.rate_gbit_s:g} Gbit/s {nic.link_layer or ''}".rstrip() if nic.rate_gbit_s else ""
    return f"{gpu.name}{slot} {bar}{use.link}{bar} {' + '.join((_nic_name(nic), *use.devices[1:]))}{rate}"


def matrix(node: NodeTopology) -> str:
    """Rows of GPUs; columns of GPUs and NICs."""
    gpus = [gpu.name for gpu in node.gpus]
    columns = gpus + [nic.name for nic in node.nics]
    rows = [[gpu, *(between(node.links, gpu, other) or "?" for other in columns)] for gpu in gpus]
    for place, row in enumerate(rows, 1):
        row[place] = "X"
    return aligned([["", *columns], *rows]) if rows else ""


def fabric_text(fabric: Fabric) -> str:
    """Hops with their witness, tiers, rails, and the order of ranks."""
    hops = "unknown" if fabric.max_hops is None else str(fabric.max_hops)
    size = f"{counted(len(fabric.switches), 'switch')}, {counted(len(fabric.rank_order), 'host')}"
    lines = [
        f"fabric ({fabric.source}): {size}",
        f"  switches between any two hosts, at most: {hops}",
    ]
    if fabric.witness:
        lines.append(f"    {' - '.join(fabric.witness)}")
    rows = [("  TIER", "SWITCHES", "PORTS DOWN", "PORTS UP")]
    tiers: dict[int, list[SwitchLoad]] = defaultdict(list)
    for load in fabric.switches:
        tiers[load.tier].append(load)
    for tier, loads in sorted(tiers.items(), reverse=True):
        title = f"  {tier}" if tier else "  no host"
        down, up = _span(load.ports_down for load in loads), _span(load.ports_up for load in loads)
        rows.append((title, str(len(loads)), down, up))
    lines += aligned(rows).splitlines()
    for rail in fabric.rails:
        lines.append(f"  rail {rail.name}: {', '.join(rail.switches) or 'no switch of its own'}")
    lines.append(f"  rank order: {_order(fabric.rank_order)}")
    return "\n".join(lines)


def _nic_name(nic: NodeNic) -> str:
    return nic.name if nic.name == nic.device else f"{nic.name} {nic.device}"


def _span(values: Iterable[int]) -> str:
    numbers = sorted(set(values))
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"


def _order(hosts: Sequence[str]) -> str:
    folded = fold(hosts)
    if len(hosts) <= _RANKS_SHOWN:
        return ", ".join(hosts)
    # a fold that counts through says the same in less
    if "," not in folded and list(hosts) == sorted(hosts, key=lambda name: (len(name), name)):
        return folded
    return f"{', '.join(hosts[:_RANKS_SHOWN])} and {len(hosts) - _RANKS_SHOWN} more (all with --output json)"
