"""`nodectl jobs trace`, and what `launch --trace` does at its end: figures of the ranks' traces, and their files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from nodectl.cli.app import App
from nodectl.cli.options import OneOf
from nodectl.cli.terminal import note
from nodectl.common.counting import counted
from nodectl.common.units import MIB
from nodectl.errors import NodectlError, UsageError
from nodectl.jobs.plan import TRACE_SKIP, TRACE_STEPS, TRACERS, Tracing
from nodectl.model.host import Host
from nodectl.model.job import Job

if TYPE_CHECKING:
    from nodectl.model.trace import RankTrace, TraceReport

_Command = TypeVar("_Command", bound=Callable[..., Any])
LIMIT_MIB = 1024
_SKIP_HELP = f"Optimizer steps before the profile.  Default: {TRACE_SKIP}."
_STEPS_HELP = f"Optimizer steps of the profile.  Default: {TRACE_STEPS}."


def trace_options(command: _Command) -> _Command:
    """--trace, --trace-skip and --trace-steps, which `tracing` reads."""
    options = (
        click.option("--trace", "tracer", type=OneOf(TRACERS), help="Profile every rank for some steps, and compare."),
        click.option("--trace-skip", type=click.IntRange(1), metavar="N", help=_SKIP_HELP),
        click.option("--trace-steps", type=click.IntRange(1, 1000), metavar="N", help=_STEPS_HELP),
    )
    for option in reversed(options):
        command = option(command)
    return command


def tracing(tracer: str | None, skip: int | None, steps: int | None) -> Tracing | None:
    """Return what is asked for; UsageError for a window of no trace."""
    if tracer is None:
        if skip is not None or steps is not None:
            raise UsageError("--trace-skip and --trace-steps need --trace", "add --trace torch")
        return None
    return Tracing(tracer, skip or TRACE_SKIP, steps or TRACE_STEPS)


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
    from nodectl.jobs.traces import judge, read_traces

    traces, problems = read_traces(app.transport, hosts, job.id, app.forks)
    places = job.nodes or job.hosts
    expected = {rank: places[rank // job.nproc_per_node] for rank in range(len(places) * job.nproc_per_node)}
    return judge(traces, problems, expected), traces


def shown(report: TraceReport) -> tuple[dict[str, object], str]:
    """Return it as document and as text."""
    from nodectl.report.traces import trace_document, trace_text

    return trace_document(report), trace_text(report)


def gathered(
    app: App, hosts: Sequence[Host], job_id: str, traces: Sequence[RankTrace], folder: Path, limit_mib: int = LIMIT_MIB
) -> tuple[bool, dict[str, object]]:
    """Bring the files, and say so; whether all came, and what came where."""
    from nodectl.jobs.traces import gather

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
    from nodectl.common.files import local_path
    from nodectl.common.paths import state_dir

    report, traces = read_report(app, hosts, job)
    document, text = shown(report)
    try:
        if any(trace.file for trace in traces):
            document["files"] = gathered(app, hosts, job.id, traces, local_path(state_dir() / "traces", job.id))[1]
    except NodectlError as error:  # what became of the job is said all the same
        note(f"the traces stay on the hosts: {error.message}")
    return {"trace": document}, text
