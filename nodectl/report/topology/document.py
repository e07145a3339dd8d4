"""Topology, fabric and proposed environments as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from nodectl.model.topology import Fabric, NcclEnvironment, NodeTopology
from nodectl.report.findings import whole_finding


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
    """Return the switches with their load, the greatest distance with its witness, rails, cables, and rank order."""
    return {
        "source": fabric.source,
        "switches": [{"name": switch.switch, **_without(asdict(switch), "switch")} for switch in fabric.switches],
        "max_hops": fabric.max_hops,
        "witness": list(fabric.witness),
        "rank_order": list(fabric.rank_order),
        "rails": [asdict(rail) for rail in fabric.rails],
        "shared_switches": {host: dict(switches) for host, switches in fabric.shared_switches.items()},
        "parts": [list(part) for part in fabric.parts],
        "cables": [{"a": a, "b": b, "count": count} for a, b, count in fabric.cables],
        "homes": {host: list(switches) for host, switches in fabric.homes.items()},
    }


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


def _without(document: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != name}
