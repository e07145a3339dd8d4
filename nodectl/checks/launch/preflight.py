"""Whether a job can start: every host's answer to preflight, judged by itself and against the others."""

from __future__ import annotations

from collections.abc import Sequence

from nodectl.checks.launch.fleet import fleet_findings
from nodectl.checks.launch.host import host_findings
from nodectl.model.finding import Finding
from nodectl.model.preflight import NodeInfo, PreflightRequest


def judge(nodes: Sequence[NodeInfo], request: PreflightRequest) -> tuple[Finding, ...]:
    """Findings of all checks on all hosts that answered, those that are fine among them."""
    alone = [finding for node in nodes for finding in host_findings(node, request, len(nodes))]
    return (*alone, *fleet_findings(nodes, request))


def common_ports(nodes: Sequence[NodeInfo], request: PreflightRequest) -> tuple[int, ...]:
    """Candidates that are free on every host; those that some host may give to outgoing connections come last."""
    free = [port for port in request.candidate_ports if all(port in node.free_ports for node in nodes)]
    ranges = [node.ephemeral_ports for node in nodes if node.ephemeral_ports]
    return tuple(sorted(free, key=lambda port: any(first <= port <= last for first, last in ranges)))
