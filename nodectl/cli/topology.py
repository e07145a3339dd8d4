"""`nodectl topology`: Show how GPUs, NICs and hosts are wired."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from nodectl.cli.app import App
from nodectl.cli.options import EXISTING_PATH, FOLDER, option, option_group, takes
from nodectl.cli.terminal import note, writing
from nodectl.common.files import replace_file
from nodectl.errors import UsageError
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.status import Status, exit_status
from nodectl.model.topology import Fabric, NcclEnvironment
from nodectl.report.findings import TWO_SCREENS, folded, whole_finding
from nodectl.report.topology import (
    MARK,
    environment_document,
    environment_yaml,
    fabric_document,
    fabric_text,
    node_document,
    nodes_text,
    variables_yaml,
)
from nodectl.topology.env import propose
from nodectl.topology.fabric.judge import MAX_HOPS, judge_fabric, unknown_fabric
from nodectl.topology.fabric.sources import graph_from, variables_graph
from nodectl.topology.look import Looked, look


@option_group
class _Options:
    with_fabric: bool = option("--fabric", "Show the switches between the hosts, the hops, and the order of ranks.")
    fabric_from: Path | None = option(
        "--fabric-from",
        "ibnetdiscover's text, or lldpctl's JSON (a folder: <host>.json).  Default: nodectl_switch, else LLDP.",
        type=EXISTING_PATH,
        metavar="FILE",
    )
    max_hops: int = option(
        "--max-hops", "Largest number of switches between two hosts.", type=click.IntRange(1, 64), default=MAX_HOPS
    )
    propose_env: bool = option("--propose-env", "Print each host's NCCL environment as an inventory, with the reasons.")
    write: Path | None = option("--write", "As DIR/<host>/nccl.yml.", type=FOLDER, metavar="DIR")


@click.command()
@takes(_Options)
@click.pass_obj
def topology(app: App, asked: _Options) -> None:
    """Show how GPUs, NICs and hosts are wired, and what that limits.

    `--fabric --fabric-from FILE` alone asks no host: the hosts are those in FILE.  Ends with 1 if anything failed, else
    3 if anything could not be told or reached, else 0.
    """
    with_fabric = asked.with_fabric or asked.fabric_from is not None
    wanted = _hosts_for(app, asked.fabric_from)
    looked = _look(app, wanted, asked.fabric_from, with_fabric=with_fabric, needed=asked.propose_env)
    judged = _judge(wanted, looked, asked.fabric_from, asked.max_hops) if with_fabric else None
    proposed = None
    if asked.propose_env:
        proposed = propose([(host, looked.facts[host.name]) for host in wanted if host.name in looked.facts])
    findings = [*looked.findings, *(judged.findings if judged else ())]
    for environment in (proposed or {}).values():
        findings += environment.findings
    if asked.write is not None and proposed is not None:
        _write(asked.write, proposed)
    _show(app, looked, judged, proposed, findings)
    raise SystemExit(exit_status(finding.status for finding in findings))


def _hosts_for(app: App, fabric_from: Path | None) -> tuple[Host, ...]:
    alone = fabric_from is not None and app.replay is None and not app.inventory_sources and app.limit is None
    if alone:
        return ()
    return app.source.hosts if app.replay is not None else app.inventory.hosts(app.limit)


def _look(app: App, hosts: tuple[Host, ...], fabric_from: Path | None, *, with_fabric: bool, needed: bool) -> Looked:
    is_described = fabric_from is not None or any(host.variables.get("nodectl_switch") for host in hosts)
    if not hosts or (is_described and with_fabric and not needed and app.replay is None):
        return Looked()
    return look(app.source, app.profile_dirs, fabric=with_fabric and not is_described)


def _judge(hosts: tuple[Host, ...], looked: Looked, fabric_from: Path | None, max_hops: int) -> Fabric:
    if fabric_from is not None:
        graph = graph_from(fabric_from, hosts, looked.guids)
    else:
        described = variables_graph(hosts) or looked.graph
        if described is None:
            return unknown_fabric([host.name for host in hosts])
        graph = described
    return judge_fabric(graph, [host.name for host in hosts], max_hops)


def _write(folder: Path, proposed: Mapping[str, NcclEnvironment]) -> None:
    """`DIR/<host>/nccl.yml`, as Ansible reads host_vars; a file of ours is written again, nobody else's."""
    for host, environment in proposed.items():
        if "/" in host or "\0" in host or host.startswith("."):
            raise UsageError(f"--write: a host named {host!r} has no folder", "take the YAML from standard output")
        file = folder / host / "nccl.yml"
        with writing(file, remedy="name a folder that you may write"):
            file.parent.mkdir(parents=True, exist_ok=True)
            if file.exists() and not file.read_text(encoding="utf-8").startswith(MARK):
                raise UsageError(f"{file} is not nodectl's", "move it away, or name another folder")
            replace_file(file, "\n".join([MARK, *variables_yaml(environment), ""]), mode=0o644)


def _show(
    app: App,
    looked: Looked,
    judged: Fabric | None,
    proposed: Mapping[str, NcclEnvironment] | None,
    findings: list[Finding],
) -> None:
    document: dict[str, object] = {
        "hosts": {host: node_document(node) for host, node in looked.nodes.items()},
        "fabric": fabric_document(judged) if judged else None,
        "findings": [whole_finding(finding) for finding in findings],
        "recorded": app.replay and app.source.recorded,
    }
    if proposed is not None:
        document["environment"] = environment_document(proposed)
        text = environment_yaml(proposed)
    else:
        parts = [nodes_text(looked.nodes), fabric_text(judged) if judged else ""]
        is_unseen = any(finding.status is Status.UNKNOWN for finding in findings)
        empty = "No host's topology could be read." if is_unseen else "No GPU and no RDMA adapter was found."
        text = "\n\n".join(filter(None, parts)) or empty
    app.show("topology", document, text)
    # what is fine and expects nothing is a note: it says how a host was built
    notes = [finding for finding in findings if finding.status is Status.OK and finding.actual and not finding.expected]
    wrong = [finding for finding in findings if finding.status not in (Status.OK, Status.SKIPPED)]
    said = [f"NOTE{line.removeprefix('OK')}" if line.startswith("OK ") else line for line in folded(notes, TWO_SCREENS)]
    if (lines := folded(wrong, TWO_SCREENS) + said) and not app.json:
        note("\n".join(lines))
