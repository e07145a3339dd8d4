"""Results that `--output json` wrote, read back for a report; what kind a file is of, its schema says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from nodectl.common.documents import values_of
from nodectl.common.files import read_json
from nodectl.errors import UsageError
from nodectl.model.acceptance import Acceptance
from nodectl.model.finding import Finding
from nodectl.model.measurement import Measurement
from nodectl.model.topology import Fabric, GpuNic, NodeGpu, NodeNic, NodeTopology
from nodectl.model.verdict import Verdict
from nodectl.report.page.blocks import Nature, Origin
from nodectl.report.page.content import Benched, Content, Found, Launched, Measured, Tuned, Wired

_PREFIX, _VERSION = "nodectl.", "/1"
_BENCH = "bench-"


def with_files(content: Content, paths: Sequence[Path]) -> Content:
    """Add what these files hold to the content; UsageError where one cannot be read or is of no kind that is shown."""
    for path in paths:
        content = _with_file(content, path)
    return content


def _with_file(content: Content, path: Path) -> Content:
    kinds = ", ".join(f"`{name}`" for name in _READERS)
    remedy = f"give files of `nodectl --output json` with: {kinds}, or a table of `bench`"
    document = read_json(path, remedy)
    schema = document.get("schema") if isinstance(document, dict) else None
    name = str(schema).removeprefix(_PREFIX).removesuffix(_VERSION)
    reader = _READERS.get(name) or (_bench if name.startswith(_BENCH) else None)
    if reader is None or schema != f"{_PREFIX}{name}{_VERSION}":
        raise UsageError(f"{path}: no result that a report shows (its schema is {schema!r})", remedy)
    try:
        return reader(content, document, path.name)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: malformed {schema}: {error}", remedy) from error


def _origin(document: Mapping[str, Any], name: str) -> Origin:
    """Return where a document's figures are from, if it says `recorded` or `scaled`; others leave it open."""
    recorded = document.get("recorded")
    if recorded:
        return Origin(Nature.RECORDED, f"{recorded}, saved in {name}")
    return Origin(Nature.LAB if document.get("scaled") else Nature.UNTOLD, f"saved in {name}")


def _accept(content: Content, document: Mapping[str, Any], _: str) -> Content:
    fields = {key: value for key, value in document.items() if key != "schema"}
    return replace(content, acceptances=(*content.acceptances, *values_of(Acceptance, [fields], extra="ignore")))


def _findings(content: Content, document: Mapping[str, Any], name: str) -> Content:
    findings = values_of(Finding, document["findings"], extra="ignore")
    return replace(content, found=(*content.found, Found(findings, _origin(document, name))))


def _probe(content: Content, document: Mapping[str, Any], name: str) -> Content:
    measurements = values_of(Measurement, document["measurements"], extra="ignore")
    findings = values_of(Finding, document["findings"], extra="ignore")
    measured = Measured(measurements, findings, _origin(document, name))
    return replace(content, measured=(*content.measured, measured))


def _trial(content: Content, document: Mapping[str, Any], name: str) -> Content:
    verdicts = values_of(Verdict, document["trials"], extra="ignore")
    label, complete = str(document["baseline"]["label"]), bool(document["complete"])
    tuned = Tuned(f"trial {document['id']}", label, verdicts, _origin(document, name), complete)
    return replace(content, tuned=(*content.tuned, tuned))


def _jobs(content: Content, document: Mapping[str, Any], name: str) -> Content:
    jobs = tuple(document["jobs"])
    for job in jobs:
        if not isinstance(job, dict):
            raise ValueError(f"{job!r:.60} is no job")
    return replace(content, launched=(*content.launched, Launched(jobs, _origin(document, name))))


def _bench(content: Content, document: Mapping[str, Any], name: str) -> Content:
    table = str(document["schema"]).removeprefix(_PREFIX).removesuffix(_VERSION)
    return replace(content, benched=(*content.benched, Benched(table, document, _origin(document, name))))


def _topology(content: Content, document: Mapping[str, Any], name: str) -> Content:
    nodes = {str(host): _node(one) for host, one in document["hosts"].items()}
    fabric = _fabric(document["fabric"]) if document.get("fabric") else None
    return replace(content, wired=(*content.wired, Wired(nodes, fabric, _origin(document, name))))


def _node(document: Mapping[str, Any]) -> NodeTopology:
    uses, links = document["gpu_nic"], document["links"]
    gpus = values_of(NodeGpu, list(document["gpu_details"].values()))
    if unknown := set(uses) - {gpu.name for gpu in gpus}:
        raise ValueError(f"gpu_nic names GPUs that gpu_details has not: {', '.join(sorted(unknown))}")
    return NodeTopology(
        gpus=gpus,
        nics=values_of(NodeNic, list(document["nic_details"].values())),
        links={row: {str(column): str(link) for column, link in columns.items()} for row, columns in links.items()},
        gpu_nic=dict(zip(uses, values_of(GpuNic, list(uses.values())), strict=True)),
        recorded=str(document.get("recorded") or ""),
    )


def _fabric(document: Mapping[str, Any]) -> Fabric:
    """Return what its document has under other names goes back to the type's own."""
    switches = [{**one, "switch": one["name"]} for one in document["switches"]]
    cables = [[cable["a"], cable["b"], cable["count"]] for cable in document["cables"]]
    return values_of(Fabric, [{**document, "switches": switches, "cables": cables}], extra="ignore")[0]


_Reader = Callable[[Content, Mapping[str, Any], str], Content]
_READERS: Mapping[str, _Reader] = {
    "accept": _accept,
    "health": _findings,
    "jobs": _jobs,
    "probe": _probe,
    "provision": _findings,
    "topology": _topology,
    "tune-trial": _trial,
}
