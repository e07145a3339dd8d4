"""Two ways to train, side by side: the article's four rows of one's own runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from nodectl.cli.app import App
from nodectl.cli.bench.shared import csv_option, show
from nodectl.cli.terminal import note, terminal_width
from nodectl.errors import NodectlError, UsageError

if TYPE_CHECKING:
    from nodectl.articles.runs import Run


@click.command()
@csv_option
@click.argument("before")
@click.argument("after")
@click.pass_obj
def compare(app: App, before: str, after: str) -> None:
    """Compare two ways to train by step time, total time, GPU utilisation and network.

    BEFORE and AFTER are each a file, a folder of files, several of them with commas between, or a job's id: logs with
    the JSON line that ends a workload's output, or JSON documents of `nodectl bench`. Every result in them is a
    repetition; the first of one side is paired with the first of the other, so take them in turns. Five make a verdict.
    """
    from nodectl.articles.compare import compare as compared
    from nodectl.articles.compare import compare_document, compare_lines, compare_text
    from nodectl.trials.families import judge_all

    sections = compared(_runs(app, before), _runs(app, after), judge_all)
    text = compare_text(sections, terminal_width())
    show(app, "bench-compare", compare_document(sections), text, compare_lines(sections))


def _runs(app: App, given: str) -> list[Run]:
    from nodectl.articles.runs import read_paths

    parts = [given] if given and Path(given).exists() else [part for part in given.split(",") if part]
    lost = [part for part in parts if not Path(part).exists()]
    if len({Path(part).resolve() for part in parts}) < len(parts):
        raise UsageError(f"{given} names one file twice, which is one run", "give the file of each run once")
    if parts and not lost:
        return read_paths([Path(part) for part in parts])
    if len(parts) == 1 and "/" not in given:
        return _runs_of_job(app, given)
    raise UsageError(f"{', '.join(lost) or repr(given)}: no such file", "name a file, a folder or a job's id")


def _runs_of_job(app: App, job_id: str) -> list[Run]:
    """From the output that the job's hosts keep."""
    from nodectl.articles.runs import read_text
    from nodectl.jobs.follow import Line, follow
    from nodectl.jobs.listing import read_jobs

    try:
        job = read_jobs(app.transport, app.hosts, app.forks).find(job_id)
    except NodectlError as error:
        raise UsageError(f"{job_id}: no such file here, and no job: {error.message}", error.remedy) from error
    hosts = [host for host in app.hosts if host.name in job.hosts]
    texts: dict[tuple[str, int | None], str] = {}
    for event in follow(app.transport, hosts, job.id, once=True):
        if isinstance(event, Line):
            source = (event.host, event.local_rank)
            texts[source] = texts.get(source, "") + event.text + ("" if event.goes_on else "\n")
    runs = [run for text in texts.values() for run in read_text(text)]
    if not runs:
        raise UsageError(f"{job.id}: no result of a training in its output", "give a job that ended by itself")
    note(f"{job.id}: {len(runs)} of its results")
    return runs
