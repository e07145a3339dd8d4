"""`nodectl report`: Write what is known of the fleet as an HTML file, or as Markdown to paste."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from nodectl import __version__
from nodectl.cli.app import App
from nodectl.cli.jobs import read_listing
from nodectl.cli.measuring import health_of
from nodectl.cli.options import EXISTING_FILE, FILE, option, option_group, takes
from nodectl.cli.terminal import note, writing
from nodectl.common.documents import values_of
from nodectl.common.files import read_json, replace_file
from nodectl.errors import InventoryError, ParseError, UsageError
from nodectl.facts.base import AbsentError, UnknownError
from nodectl.facts.catalogue import commands_for, read_facts, words_of
from nodectl.facts.gpus import GPUS_FACT, Gpu, Gpus
from nodectl.facts.processors import CPU_FACT
from nodectl.ledger.accept.store import latest
from nodectl.ledger.history.database import iso
from nodectl.ledger.history.store import History
from nodectl.model.acceptance import Acceptance
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement
from nodectl.model.recording import Recording
from nodectl.model.topology import Fabric
from nodectl.model.verdict import Verdict
from nodectl.probes.registry import kind_of
from nodectl.recordings.folder import open_recording
from nodectl.recordings.save import save
from nodectl.recordings.source import Source, replay_source
from nodectl.report.jobs import job_document
from nodectl.report.markdown import SUBJECTS, markdown
from nodectl.report.page.content import (
    Content,
    Found,
    Launched,
    Measured,
    Nature,
    Origin,
    Tuned,
    Wired,
)
from nodectl.report.page.page import report_html
from nodectl.report.series import fleet_series
from nodectl.topology.fabric.judge import judge_fabric
from nodectl.topology.fabric.sources import variables_graph
from nodectl.topology.look import look
from nodectl.trials import store


def nature_of(hosts: Iterable[Host], recorded: str | None) -> Nature:
    """Return whether these are hosts, hosts of a lab, or a recording."""
    if recorded is not None:
        return Nature.RECORDED
    return Nature.LAB if any(host.is_true("nodectl_lab") for host in hosts) else Nature.MEASURED


def origin_of(source: Source, answered: Mapping[str, str]) -> Origin:
    """Return where the hosts' answers are from; `answered` are hosts whose hardware a recording stands for."""
    nature = nature_of(source.hosts, source.recorded)
    if source.recorded is not None:
        return Origin(nature, source.recorded)
    return Origin(nature, ", ".join(f"hardware recorded: {name}" for name in dict.fromkeys(answered.values())))


def wiring(source: Source, profile_dirs: Sequence[Path]) -> Wired:
    """Return the inside of the hosts that have GPUs, and the fabric as the inventory or LLDP tells it."""
    graph = variables_graph(source.hosts)
    looked = look(source, profile_dirs, fabric=graph is None)
    graph = graph or looked.graph
    fabric: Fabric | None = None
    if graph is not None:
        fabric = judge_fabric(graph, [host.name for host in source.hosts])
    answered = {name: node.recorded for name, node in looked.nodes.items() if node.recorded}
    return Wired(looked.nodes, fabric, origin_of(source, answered))


# the latest runs that together measured all that is measured of late
_RUNS = 12
_MOST_TRIALS = 6


def latest_runs(history: History, nature: Nature) -> tuple[Measured, ...]:
    """Return the latest run of each probe; its number and time stand in its origin."""
    measured, seen = [], set[str]()
    for run, when, probes, _ in history.runs()[:_RUNS]:
        new = set(filter(None, probes.split(","))) - seen
        if not new:
            continue
        seen |= new
        kept = tuple(past.measurement for past in history.past(sorted(new), run=run))
        measured.append(Measured(kept, None, Origin(nature, f"history, run {run} of {iso(when)}")))
    return tuple(measured)


def trials(inventory: Sequence[str], nature: Nature) -> tuple[Tuned, ...]:
    """Return the inventory's latest trials that came to their end, each profile once."""
    latest: dict[tuple[str, str], Tuned] = {}
    for kept in store.trials():
        if isinstance(kept, str) or not kept.complete or kept.inventory != tuple(inventory):
            continue
        verdicts = store.find(kept.id).verdicts
        for profile in kept.candidates:
            own = tuple(verdict for verdict in verdicts if verdict.profile == profile)
            tuned = Tuned(f"{profile} against {kept.baseline}", kept.baseline, own, Origin(nature, f"trial {kept.id}"))
            latest.setdefault((profile, kept.baseline), tuned)
        if len(latest) >= _MOST_TRIALS:
            break
    return tuple(latest.values())


_KINDS = ("accept", "health", "jobs", "probe", "provision", "tune-trial")


def with_files(content: Content, paths: Sequence[Path]) -> Content:
    """Add what these files hold to the content; UsageError if one cannot be read or is of no kind that is shown."""
    remedy = f"give files of `nodectl --output json` with: {', '.join(f'`{kind}`' for kind in _KINDS)}"
    kinds = {f"nodectl.{kind}/1": kind for kind in _KINDS}
    for path in paths:
        document = read_json(path, remedy)
        schema = document.get("schema") if isinstance(document, dict) else None
        kind = kinds.get(str(schema))
        if kind is None:
            raise UsageError(f"{path}: no result that a report shows (its schema is {schema!r})", remedy)
        try:
            content = _with_document(content, kind, document, _origin(document, path.name))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"{path}: malformed {schema}: {error}", remedy) from error
    return content


def _origin(document: Mapping[str, Any], name: str) -> Origin:
    recorded = document.get("recorded")
    if recorded:
        return Origin(Nature.RECORDED, f"{recorded}, saved in {name}")
    return Origin(Nature.LAB if document.get("scaled") else Nature.UNTOLD, f"saved in {name}")


def _with_document(content: Content, kind: str, document: Mapping[str, Any], origin: Origin) -> Content:
    if kind == "accept":
        fields = {key: value for key, value in document.items() if key != "schema"}
        return replace(content, acceptances=(*content.acceptances, *values_of(Acceptance, [fields], extra="ignore")))
    if kind == "jobs":
        for job in document["jobs"]:
            if not isinstance(job, dict):
                raise ValueError(f"{job!r:.60} is no job")
        return replace(content, launched=(*content.launched, Launched(tuple(document["jobs"]), origin)))
    if kind == "tune-trial":
        verdicts = values_of(Verdict, document["trials"], extra="ignore")
        label, complete = str(document["baseline"]), bool(document["complete"])
        return replace(
            content, tuned=(*content.tuned, Tuned(f"trial {document['id']}", label, verdicts, origin, complete))
        )
    findings = values_of(Finding, document["findings"], extra="ignore")
    if kind == "probe":
        measurements = values_of(Measurement, document["measurements"], extra="ignore")
        return replace(content, measured=(*content.measured, Measured(measurements, findings, origin)))
    return replace(content, found=(*content.found, Found(findings, origin)))


@option_group
class _Options:
    out: Path | None = option(
        "-o --out",
        "File into which the report is written. HTML: nodectl-report.html if not given; Markdown: standard output.",
        type=FILE,
        metavar="FILE",
    )
    form: str = option(
        "--format",
        "html, or markdown: a short summary without names, addresses and serial numbers, for a forum or an issue.",
        type=click.Choice(["html", "markdown"]),
        default="html",
    )
    saved: tuple[Path, ...] = option(
        "--from",
        "Saved output of `nodectl --output json` (health, probe, tune trial, jobs …); repeatable.",
        multiple=True,
        type=EXISTING_FILE,
        metavar="FILE",
    )
    hosts: bool = option(
        "--hosts/--no-hosts", "Whether hosts are asked for their health, wiring and jobs.", default=True
    )


@click.command()
@takes(_Options)
@click.pass_obj
def report(app: App, asked: _Options) -> None:
    """Write what is known of the fleet as one HTML file, which opens without a network, or as Markdown to paste.

    It holds the hosts' health and wiring, jobs, the latest acceptance, measurements and trials, and the saved results
    that are given.  With --replay FOLDER a recording stands for the hosts.
    """
    if asked.form == "markdown":
        if asked.saved or not asked.hosts:
            raise click.UsageError("--format markdown masks what the hosts answer: leave out --from and --no-hosts")
        _paste(app, asked.out)
        return
    # files first: a typo asks no host
    content = with_files(Content("", time.strftime("%Y-%m-%d %H:%M:%S %z"), __version__, kind_of), asked.saved)
    content = _with_hosts(app, content) if asked.hosts else content
    content = _with_history(app, content, needed=not asked.saved)
    content = replace(content, title=_heading(app))
    _write(app, asked.out or Path("nodectl-report.html"), report_html(content))


def _write(app: App, file: Path, text: str) -> None:
    with writing(file, "--out"):
        replace_file(file, text, mode=0o644)
    size = file.stat().st_size
    app.show("report", {"file": str(file), "bytes": size}, f"{file} ({size / 1e6:.1f} MB)")


def _paste(app: App, file: Path | None) -> None:
    """Write or print the summary of masked recordings: what is judged and shown never held a name."""
    with tempfile.TemporaryDirectory() as scratch:
        saved = save(app.source, Path(scratch), app.profile_dirs, mask=True)
        for host, reason in saved.failed.items():
            note(f"{host}: {reason}")
        if not saved.folders:
            raise InventoryError("no host was reached", "look with `nodectl doctor`")
        source = replay_source(open_recording(scratch), None)
        findings = health_of(app, source, {}).findings
        facts = {
            host.name: _words(answer)
            for host, answer in source.recordings(commands_for)
            if isinstance(answer, Recording)
        }
    recorded = f" from the recording {app.source.recorded}" if app.source.recorded else ""
    made = f"Made {time.strftime('%Y-%m-%d')} by nodectl {__version__}{recorded}"
    measurements: list[Measurement] = []
    if app.replay is None:
        with app.history() as history:
            runs = latest_runs(history, Nature.MEASURED)
        measurements = [measurement for run in runs for measurement in run.measurements]
    text = markdown(made, facts, findings, fleet_series(measurements, kind_of))
    if file is None:
        app.show("report", {"markdown": text}, text)
    else:
        _write(app, file, f"{text}\n")
    note("Masking is a help, not a guarantee: read the text before you publish it.")


def _words(recording: Recording) -> dict[str, str]:
    facts = read_facts(recording)
    words = {subject: words_of(subject, facts[subject]) for subject in SUBJECTS if subject in facts}
    with suppress(AbsentError, UnknownError, ParseError):
        words["gpus"] = _gpu_words(GPUS_FACT.read(recording))
    with suppress(AbsentError, UnknownError, ParseError):
        hypervisor = CPU_FACT.read(recording).hypervisor
        words["cpu"] += f"; virtual machine ({hypervisor})" if hypervisor else "; no virtual machine"
    return words


def _gpu_words(gpus: Gpus) -> str:
    kinds = Counter(map(_gpu, gpus.devices))
    shown = [f"{number} x {kind}" for kind, number in kinds.items()] or ["none"]
    lost = [f"{len(gpus.lost)} lost"] * bool(gpus.lost)
    return "; ".join([*shown, *lost, f"driver {gpus.driver_version}", f"CUDA up to {gpus.cuda_version}"])


def _gpu(gpu: Gpu) -> str:
    width, widest = gpu.pcie_width_current, gpu.pcie_width_max
    link = f"PCIe gen {gpu.pcie_gen_max} x{width}" if width else ""
    if width and widest and width < widest:
        link += f" of x{widest}"
    modes = (("ECC", gpu.ecc_mode_current), ("MIG", gpu.mig_mode), ("persistence", gpu.persistence_mode))
    parts = [
        str(gpu.name),
        f"{gpu.memory_total_mib / 1024:.0f} GiB" if gpu.memory_total_mib else "",
        link,
        f"{gpu.power_limit_w:.0f} W" if gpu.power_limit_w else "",
        *(f"{name} {'on' if mode else 'off'}" for name, mode in modes if mode is not None),
    ]
    return ", ".join(filter(None, parts))


def _heading(app: App) -> str:
    if app.replay is not None and not app.inventory_sources:
        return f"Fleet report: {app.source.recorded}"
    try:
        sources = (Path(source).resolve() for source in app.inventory.sources)
        return f"Fleet report: {', '.join(f'{source.parent.name}/{source.name}' for source in sources)}"
    except InventoryError:
        return "Fleet report"


def _with_hosts(app: App, content: Content) -> Content:
    seen = health_of(app, app.source, {})
    looks = (Found(seen.findings, origin_of(app.source, seen.recorded)), *content.found)
    wired = (wiring(app.source, app.profile_dirs), *content.wired)
    content = replace(content, found=looks, wired=wired)
    if app.replay is not None:
        return content
    jobs = Launched(tuple(map(job_document, read_listing(app).jobs)), origin_of(app.source, {}))
    return replace(content, launched=(jobs, *content.launched))


def _with_history(app: App, content: Content, *, needed: bool) -> Content:
    """Add what was kept of the inventory's fleet; a recording alone has no history, and saved files need none."""
    if app.replay is not None and not app.inventory_sources:
        return content
    try:
        members = app.inventory.hosts(app.limit)
        history = app.history()
    except InventoryError:
        if needed:
            raise
        return content
    with history:
        nature = nature_of(members, None)
        accepted = [one] if (one := latest(app.fleet)) else []
        return replace(
            content,
            acceptances=(*content.acceptances, *accepted),
            measured=(*content.measured, *latest_runs(history, nature)),
            tuned=(*content.tuned, *trials(app.inventory.sources, nature)),
        )
