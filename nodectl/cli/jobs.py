"""`nodectl jobs`: List, follow, explain and stop jobs."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from nodectl.cli.app import App
from nodectl.cli.options import (
    FILE,
    WRITE_HELP,
    Seconds,
    argument,
    option,
    option_group,
    output_option,
    takes,
    text_option,
)
from nodectl.cli.terminal import as_json, note, put, result, safe, terminal_width
from nodectl.common.nodeset import fold
from nodectl.common.spelling import meant
from nodectl.common.units import MIB
from nodectl.errors import UsageError
from nodectl.jobs.black_box import explained, of_its_end, recall, telling
from nodectl.jobs.follow import Back, Dropped, Event, Line, Noise, Start, follow
from nodectl.jobs.hang import look_at
from nodectl.jobs.listing import Listing, read_jobs, started_jobs
from nodectl.jobs.nodes import clean as clean_hosts
from nodectl.jobs.nodes import stop as stop_hosts
from nodectl.jobs.pulse import Watch, check_pattern, stalls
from nodectl.model.host import Host
from nodectl.model.job import Job, JobState, Pulse
from nodectl.payload.common.secret_words import without_secrets
from nodectl.report.jobs import (
    conclusion,
    job_document,
    job_text,
    jobs_table,
    look_document,
    look_text,
    taking_document,
    takings_text,
    watch_document,
    watch_text,
    why_text,
)
from nodectl.report.metrics import jobs_metrics

_WAITS_S = 20.0
_LOOK_EVERY_S = 30.0  # at a job that stands still
_HOME = "\x1b[H\x1b[J"
_SETTLING_S = 15.0
_TAIL_LINES = 40
_ATTACH_LINES = 20
_QUIET_HELP = "Report a stall after this time without output."
_TORCHRUN_MARK = re.compile(r"^\[default(\d+)\]:")


@click.group()
def jobs() -> None:
    """List, follow, explain and stop jobs; JOB is an id, its beginning (8 characters or more), or `last`.

    What only looks takes the last job if none is named.
    """


@jobs.command("list")
@output_option("table", "json", "prometheus")
@click.option("--write", type=FILE, help=WRITE_HELP)
@click.pass_obj
def list_(app: App, write: Path | None) -> None:
    """List the jobs on the hosts, newest last."""
    listing = read_listing(app)
    match app.output:
        case "prometheus":
            text = jobs_metrics(listing.jobs, time_s=time.time())
        case "json":
            text = as_json("jobs", {"jobs": [job_document(job) for job in listing.jobs]})
        case _:
            text = jobs_table(listing.jobs)
    put(text.rstrip("\n"), write)
    raise click.exceptions.Exit(3 if listing.unreachable or listing.problems else 0)


@jobs.command()
@click.argument("job", default="last")
@click.pass_obj
def show(app: App, job: str) -> None:
    """Show one job: its hosts, its state, and what failed first."""
    listing, selected = _find(app, job)
    _show(app, [selected], job_text(selected))
    raise click.exceptions.Exit(_status(listing, selected))


@jobs.command()
@click.argument("job", default="last")
@click.pass_obj
def why(app: App, job: str) -> None:
    """Say why a job ended, or what a running one waits for.

    What ended it stands first, with its class, evidence and remedy; what followed from that is folded. Of a running job
    it is said who waits for whom, with the ranks' stacks, grouped; that takes some seconds.
    """
    listing, selected = _find(app, job)
    if selected.state is JobState.RUNNING:
        look = look_at(app.transport, _members(app, selected), selected.id, app.forks)
        document = {**job_document(selected), "look": look_document(look)}
        app.show("jobs", {"jobs": [document]}, f"{look_text(look)}\n\n{conclusion(selected)}")
        raise click.exceptions.Exit(_status(listing, selected))
    selected = _show_why(app, selected)
    # where a traceback tells, the end of the log is what came after it
    if (cause := selected.first_failure) is not None and not cause.traceback and not app.json:
        _show_output(app, selected, cause.host)
    raise click.exceptions.Exit(_status(listing, selected))


def _show_why(app: App, job: Job) -> Job:
    takings = recall(app.transport, _members(app, job), job.id, app.forks)
    job = of_its_end(app.transport, app.hosts, explained(job, takings))
    document = {**job_document(job), "black_box": [taking_document(taking) for taking in takings]}
    texts = (why_text(job), takings_text(telling(job, takings)))
    app.show("jobs", {"jobs": [document]}, "\n\n".join(filter(None, texts)))
    return job


def _show_output(app: App, job: Job, name: str) -> None:
    hosts = [host for host in app.hosts if host.name == name and name not in job.unreachable]
    if not hosts:
        return
    result(f"\nthe last output of {name}:")
    events = follow(app.transport, hosts, job.id, start=Start(_TAIL_LINES), once=True)
    masked = (replace(one, text=without_secrets(one.text)) if isinstance(one, Line) else one for one in events)
    _print_events(app, masked, len(name))


@option_group
class _Logs:
    following: bool = option("-f --follow", "Print what comes, until the job ends.")
    tail: int | None = option(
        "--tail", "Print the last N lines of each host, and what follows.", type=click.IntRange(0), metavar="N"
    )
    since: float | None = option("--since", "Print what came in the last 90s, 15m or 2h.", type=Seconds(0))
    names: tuple[str, ...] = option("--host", "Print the output of this host only; may be repeated.", metavar="NAME")
    rank: int | None = option("--rank", "Print the output of this rank only.", type=click.IntRange(0), metavar="R")
    job: str = argument(default="last")


@jobs.command()
@takes(_Logs)
@text_option
@click.pass_obj
def logs(app: App, asked: _Logs) -> None:
    """Show the output of all ranks, each line with its host."""
    if asked.tail is not None and asked.since is not None:
        raise UsageError("--tail and --since exclude each other: each says where the output begins", "give one of them")
    listing, selected = _find(app, asked.job)
    chosen, local_rank = _chosen(selected, asked.names, asked.rank)
    hosts = [host for host in _members(app, selected) if host.name in chosen]
    start = Start(asked.tail, local_rank, asked.since)
    silent = follow_output(app, hosts, selected.id, start=start, once=not asked.following)
    if silent:
        note(f"the output is incomplete: {fold(silent)} stopped answering before the end")
    raise click.exceptions.Exit(3 if silent else _status(listing, selected))


def _chosen(job: Job, names: Sequence[str], rank: int | None) -> tuple[Sequence[str], int | None]:
    hosts = [part.host for part in job.parts]
    for name in names:
        if name not in hosts:
            hint = f"{meant(name, hosts)}its hosts: {fold(hosts)}"
            raise UsageError(f"--host {name}: not a host of {job.id}", hint)
    if rank is None:
        return names or hosts, None
    places = job.nodes or tuple(hosts)
    if rank >= len(places) * job.nproc_per_node:
        raise UsageError(f"--rank {rank}: {job.id} has ranks 0 to {len(places) * job.nproc_per_node - 1}")
    place, local_rank = divmod(rank, job.nproc_per_node)
    if names and places[place] not in names:
        raise UsageError(f"--rank {rank} is on {places[place]}, not on {', '.join(names)}")
    return [places[place]], local_rank


@jobs.command()
@click.option(
    "--tail",
    type=click.IntRange(0),
    default=_ATTACH_LINES,
    show_default=True,
    metavar="N",
    help="Lines of each host that are shown first.",
)
@click.argument("job", default="last")
@click.pass_obj
def attach(app: App, tail: int, job: str) -> None:
    """Follow a running job as its launch did, to its end and with its exit status; Ctrl-C leaves it running."""
    _, selected = _find(app, job)
    if selected.state.ended:
        why = f"it has ended ({selected.state.value})"
        raise UsageError(f"job {selected.id} cannot be attached to: {why}", f"nodectl jobs logs {selected.id}")
    note(
        f"job {selected.id} of {selected.operator}, {selected.state.value} on {fold(selected.nodes or selected.hosts)}"
    )
    try:
        gone = follow_output(app, _members(app, selected), selected.id, start=Start(tail=tail))
    except KeyboardInterrupt:
        note(f"the job goes on; see nodectl jobs attach {selected.id}, nodectl jobs stop {selected.id}")
        raise click.exceptions.Exit(130) from None
    raise click.exceptions.Exit(conclude(app, selected.id, gone))


@option_group
class _Watch:
    interval: float = option("--interval", "Time between two looks.", type=Seconds(0.5), default=5.0, metavar="TIME")
    once: bool = option("--once", "Look twice, one interval apart, and end: 1 where the job stands still.")
    pattern: str = option(
        "--pattern",
        "Regular expression of a step's line: (?P<step>..), (?P<total>..).",
        default="",
        metavar="REGEX",
    )
    quiet_s: float = option("--quiet", _QUIET_HELP, type=Seconds(1), default=300.0, metavar="TIME")
    job: str = argument(default="last")


@jobs.command()
@takes(_Watch)
@click.pass_obj
def watch(app: App, asked: _Watch) -> None:
    """Watch a job: steps, age of the output, GPU use and power, network, for each host; say where it stands still."""
    if asked.pattern:
        check_pattern(asked.pattern)
    _, selected = _find(app, asked.job)
    if selected.state.ended:
        raise UsageError(f"{selected.id} does not run under nodectl now", f"nodectl jobs show {selected.id}")
    hosts = _members(app, selected)
    watch = Watch(app.transport, hosts, selected.id, app.forks, asked.pattern)
    waits_s, looked_s, verdict = asked.interval if asked.once else _WAITS_S, -_LOOK_EVERY_S, ""
    try:
        if asked.once:  # rates are from one look to the next
            watch.look()
            time.sleep(asked.interval)
        while True:
            pulses = watch.look()
            stalled = stalls(pulses, quiet_s=asked.quiet_s, waits_s=waits_s)
            if stalled and time.monotonic() - looked_s > _LOOK_EVERY_S:
                verdict, looked_s = look_at(app.transport, hosts, selected.id, app.forks).verdict, time.monotonic()
            _show_pulses(app, selected.id, pulses, [*stalled, *([verdict] if stalled else [])])
            if not any(pulse.alive or pulse.problem for pulse in pulses):
                break
            if asked.once:
                raise click.exceptions.Exit(1 if stalled else 0)
            time.sleep(asked.interval)
    except KeyboardInterrupt:
        raise click.exceptions.Exit(130) from None
    raise click.exceptions.Exit(conclude(app, selected.id, {}))


def _show_pulses(app: App, job_id: str, pulses: Sequence[Pulse], stalled: Sequence[str]) -> None:
    live = sys.stdout.isatty() and not app.json
    if live:
        click.echo(_HOME, nl=False)
    width = terminal_width() if live else None
    app.show("watch", watch_document(job_id, pulses, stalled), watch_text(job_id, pulses, stalled, width))
    if not live and not app.json:
        result("")


@jobs.command()
@click.argument("job")
@click.pass_obj
def stop(app: App, job: str) -> None:
    """End a job on all its hosts, and leave nothing of it running.

    Every host of the inventory is asked to end it, whatever others say of where it runs.
    """
    listing, selected = _find(app, job)
    its = {part.host for part in selected.parts}
    problems = stop_job(app, app.hosts, selected.id, of=its, reported=listing.unreachable)
    left = read_listing(app, selected.id)
    after = left.find(selected.id) if left.jobs or left.unreachable else selected  # of an upload nothing may be left
    _show(app, [after], conclusion(after))
    raise click.exceptions.Exit(3 if problems or after.unreachable else 0)


@jobs.command()
@click.argument("jobs", metavar="[JOB]...", nargs=-1)
@click.pass_obj
def clean(app: App, jobs: tuple[str, ...]) -> None:
    """Remove what ended jobs left on the hosts (all that have ended, if none is named)."""
    listing = read_listing(app)
    chosen = [listing.find(name) for name in jobs] or [listed for listed in listing.jobs if listed.state.ended]
    for ended in chosen:
        if not ended.state.ended:
            raise click.UsageError(f"{ended.id} is {ended.state.value}; stop it first: nodectl jobs stop {ended.id}")
    ids = [ended.id for ended in chosen]
    kept: dict[str, str] = {}
    kept_ids: set[str] = set()
    if ids:
        answers = clean_hosts(app.transport, app.hosts, ids, app.forks)
        kept_ids, kept = _kept(answers.lines)
        kept_ids |= {
            job.id for job in chosen for part in job.parts if part.host in answers.refused and part.state != "absent"
        }
        kept |= answers.refused
        _note_problems({**answers.unreachable, **kept})
    removed = [job_id for job_id in ids if job_id not in kept_ids]
    app.show("jobs", {"removed": removed}, f"removed {', '.join(removed)}" if removed else "nothing to remove")
    raise click.exceptions.Exit(3 if listing.unreachable or kept else 0)


def _kept(rows_by_host: Mapping[str, Sequence[Mapping[str, Any]]]) -> tuple[set[str], dict[str, str]]:
    kept = {host: [row for row in rows if not row["removed"]] for host, rows in rows_by_host.items()}
    texts = {
        host: "; ".join(f"{row['id']} is kept: {row['problem'] or 'something of it runs'}" for row in rows)
        for host, rows in kept.items()
        if rows
    }
    return {row["id"] for rows in kept.values() for row in rows}, texts


def follow_output(
    app: App,
    hosts: Sequence[Host],
    job_id: str,
    *,
    start: Start | None = None,
    once: bool = False,
) -> dict[str, str]:
    """Print every line with its host, to stderr where stdout is to hold a JSON document; who was silent at the end."""
    width = max((len(host.name) for host in hosts), default=0)
    events = follow(app.transport, hosts, job_id, start=start, once=once)
    return _print_events(app, events, width)


def _print_events(app: App, events: Iterable[Event], width: int) -> dict[str, str]:
    noise = Noise()
    silent: dict[str, str] = {}
    for event in events:
        if isinstance(event, Line):
            text, mark = event.text, f"[{event.local_rank}] "
            if event.local_rank is None:
                text, mark = _TORCHRUN_MARK.sub(r"[\1] ", text), ""
            if not noise.holds(f"{event.host} {event.local_rank}", event.text):
                click.echo(safe(f"{event.host.ljust(width)} | {mark}{text}"), err=app.json)
        elif isinstance(event, Back):
            silent.pop(event.host, None)
        elif isinstance(event, Dropped):
            whose = f"{event.host} [{event.local_rank}]" if event.local_rank is not None else event.host
            note(f"{whose}: {event.size_bytes / MIB:.1f} MiB of older output were deleted to stay within 1024 MiB")
        else:
            silent[event.host] = event.why
            note(f"{event.host}: {event.why}")
    return silent


def stop_job(
    app: App, hosts: Sequence[Host], job_id: str, *, of: Collection[str] = (), reported: Collection[str] = ()
) -> Mapping[str, str]:
    """Stop the job; return the hosts that did not, with reasons, but for other hosts' problems `reported` before."""
    answers = stop_hosts(app.transport, hosts, job_id, app.forks)
    problems = {host: why for host, why in answers.problems.items() if host in of or host not in reported}
    _note_problems(problems)
    return problems


def conclude(app: App, job_id: str, gone: Mapping[str, str]) -> int:
    """Print what became of the job, and return the exit status of a launch; hosts that are `gone` are not asked."""

    def read() -> Job:
        return read_listing(app, job_id, gone=gone).find(job_id)

    until = time.monotonic() + _SETTLING_S
    ended = read()
    while not ended.state.ended and ended.state is not JobState.UNKNOWN and time.monotonic() < until:
        time.sleep(0.5)
        ended = read()
    _show(app, [ended], conclusion(ended))
    if ended.state is JobState.FINISHED:
        return 0
    return 3 if ended.state is JobState.UNKNOWN else 1


def read_listing(app: App, *job_ids: str, gone: Mapping[str, str] | None = None) -> Listing:
    """Read the jobs on the hosts, and name on stderr what could not be asked."""
    listing = read_jobs(app.transport, app.hosts, app.forks, job_ids, gone)
    if not job_ids:
        _note_problems({**listing.problems, **listing.unreachable})
    return replace(listing, started=frozenset(started_jobs(app.fleet)))


def _find(app: App, name: str) -> tuple[Listing, Job]:
    listing = read_listing(app)
    return listing, listing.find(name)


def _members(app: App, job: Job) -> list[Host]:
    """Return the job's hosts that this inventory knows and that answered, in rank order."""
    hosts = {host.name: host for host in app.hosts}
    return [
        hosts[part.host] for part in job.parts if part.host in hosts and part.state not in ("absent", "unreachable")
    ]


def _status(listing: Listing, job: Job) -> int:
    return 3 if listing.unreachable and job.unreachable else 0


def _note_problems(problems: Mapping[str, str]) -> None:
    for reason in dict.fromkeys(problems.values()):
        note(f"{fold(host for host, problem in problems.items() if problem == reason)}: {reason}")


def _show(app: App, selected: Sequence[Job], text: str) -> None:
    app.show("jobs", {"jobs": [job_document(job) for job in selected]}, text)
