"""`nodectl jobs trace`, and what `launch --trace` does at its end: figures of the ranks' traces, and their files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nodectl.cli.app import App
from nodectl.cli.terminal import note
from nodectl.common.counting import counted
from nodectl.common.files import local_path
from nodectl.common.paths import state_dir
from nodectl.common.units import MIB
from nodectl.errors import NodectlError
from nodectl.jobs.traces import gather, judge, read_traces
from nodectl.model.host import Host
from nodectl.model.job import Job
from nodectl.model.trace import RankTrace, TraceReport
from nodectl.report.jobs import trace_document, trace_text

LIMIT_MIB = 1024


def show_trace(app: App, hosts: Sequence[Host], job: Job, folder: Path | None, limit_mib: int) -> int:
    """Print the figures, bring the files where a folder is named; 3 where something is missing, else 0."""
    report, traces = read_report(app, hosts, job)
    document, text = shown(report)
    status = 0 if report.ranks and not report.problems else 3
    if folder is not None:
        whole, files = gathered(app, hosts, job.id, traces, folder, limit_mib)
        document["files"], status = files, status if whole else 3
    app.show("trace", {"job": job.id, "trace": document}, text)
    return status


def read_report(app: App, hosts: Sequence[Host], job: Job) -> tuple[TraceReport, Sequence[RankTrace]]:
    """Return what the hosts' traces tell; a rank that is to have one and has none is named."""
    traces, problems = read_traces(app.transport, hosts, job.id, app.forks)
    places = job.nodes or job.hosts
    expected = {rank: places[rank // job.nproc_per_node] for rank in range(len(places) * job.nproc_per_node)}
    return judge(traces, problems, expected), traces


def shown(report: TraceReport) -> tuple[dict[str, object], str]:
    """Return it as document and as text."""
    return trace_document(report), trace_text(report)


def gathered(
    app: App, hosts: Sequence[Host], job_id: str, traces: Sequence[RankTrace], folder: Path, limit_mib: int = LIMIT_MIB
) -> tuple[bool, dict[str, object]]:
    """Bring the files, and say so; whether all came, and what came where."""
    done = gather(app.transport, hosts, job_id, traces, folder, forks=app.forks, limit_mib=limit_mib)
    size = f"{done.size_bytes / MIB:.1f} MiB"
    if done.too_large:
        note(f"the traces stay on the hosts: {size} is more than {limit_mib} MiB")
        note(f"  to bring them: nodectl jobs trace {job_id} --to DIR --size-limit MIB")
    elif done.files:
        note(f"traces: {counted(done.files, 'file')}, {size}, in {done.folder}")
    for host, problem in done.problems.items():
        note(f"{host}: its traces were not brought: {problem}")
    facts = {
        "folder": str(done.folder),
        "files": done.files,
        "size_bytes": done.size_bytes,
        "problems": dict(done.problems),
    }
    return not done.too_large and not done.problems, facts


def at_the_end(app: App, job: Job, hosts: Sequence[Host]) -> tuple[dict[str, object], str]:
    """Return what a launch says of its traces: the files go below the state folder."""
    report, traces = read_report(app, hosts, job)
    document, text = shown(report)
    try:
        if any(trace.file for trace in traces):
            document["files"] = gathered(app, hosts, job.id, traces, local_path(state_dir() / "traces", job.id))[1]
    except NodectlError as error:  # what became of the job is said all the same
        note(f"the traces stay on the hosts: {error.message}")
    return {"trace": document}, text
