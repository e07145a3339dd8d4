"""`nodectl launch`: Start a training job over the hosts and follow it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from nodectl.checks.launch.candidate import JobNeeds, PathKind
from nodectl.checks.launch.container import container_engine
from nodectl.cli.app import App
from nodectl.cli.cordoned import include_cordoned_option
from nodectl.cli.jobs import conclude, follow_output, stop_job
from nodectl.cli.options import EXISTING_FOLDER, EXISTING_PATH, OneOf, Seconds, argument, option, option_group, takes
from nodectl.cli.terminal import note
from nodectl.common import node_paths
from nodectl.common.counting import counted
from nodectl.common.files import replace_file
from nodectl.common.nodeset import fold
from nodectl.common.process import interruptible
from nodectl.facts.job import RdmaDevices
from nodectl.jobs.code import Code, left_behind
from nodectl.jobs.engines import COMMAND, NAMES, TORCHRUN
from nodectl.jobs.export import render
from nodectl.jobs.listing import note_started
from nodectl.jobs.nodes import plan_checkpoints, start
from nodectl.jobs.package import collect_variables, pack
from nodectl.jobs.plan import (
    CODE_LIMIT_MIB,
    HOST,
    LEASE_S,
    NIC_BINDINGS,
    TRACERS,
    LaunchRequest,
    Plan,
    PlanHost,
    Surroundings,
    candidate_ports,
    check_interface,
    check_lease,
    count_nodes,
    make_plan,
    new_job_id,
    venv_of,
)
from nodectl.jobs.preflight import parted, passing, run_preflight, skipped_checks, skipped_lines
from nodectl.jobs.ways import Asked, Way, container_line, find_way, needed
from nodectl.model.host import Host
from nodectl.model.status import Status, exit_status
from nodectl.report.findings import findings_text
from nodectl.report.jobs import plan_text
from nodectl.topology.fabric.judge import in_rank_order
from nodectl.transport.inventory.here import kept

_CHANCE_S = 2.0
_UNDO_S = 30.0
# places that stay here, which the hosts name where the program misses them
_MOST_STAYED = 300


def _typed_alone(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Return the value; UsageError if a nodectl.toml gives it, which may be part of the project."""
    if value and ctx.get_parameter_source(str(param.name)) is not ParameterSource.COMMANDLINE:
        raise click.UsageError(f"{param.opts[0]} is taken from the command line alone", ctx)
    return value


@option_group
class _Limits:
    nproc_per_node: int | None = option(
        "--nproc-per-node", "Ranks on each host.  Default: one a GPU, else one.", type=click.IntRange(1, 1024)
    )
    lease: float = option("--lease", "End the job when a host is silent for this time.", default=LEASE_S, metavar="S")
    time_limit: float | None = option(
        "--time-limit", "End the job after this time: 4h, 90m.", type=Seconds(1), metavar="TIME"
    )


@option_group
class _Program:
    """The program that runs: a script, a module or another engine's words; copied, or on the hosts."""

    code_folder: Path | None = option(
        "--code",
        "Folder that is copied.  Default: SCRIPT's git repository, else SCRIPT alone.",
        type=EXISTING_FOLDER,
        metavar="DIR",
    )
    include: tuple[Path, ...] = option(
        "--include",
        "Copy this file or folder of the project although it is ignored or hidden; never a secret.",
        type=EXISTING_PATH,
        multiple=True,
        callback=_typed_alone,
        metavar="PATH",
    )
    code_limit: int = option(
        "--code-limit",
        "Largest total size of what is copied.",
        default=CODE_LIMIT_MIB,
        type=click.IntRange(1),
        metavar="MIB",
    )
    chdir: str | None = option("--chdir", "Run the code in this folder of the hosts; nothing is copied.", metavar="DIR")
    module: str | None = option("-m --module", "Start a Python module, as `python -m` does.", metavar="MODULE")
    engine: str = option(
        "--engine",
        "Program that starts the ranks; all but torchrun take `-- ARGV`; `command` runs ARGV once a rank.",
        default=TORCHRUN,
        type=OneOf(NAMES),
    )
    checkpoint: str | None = option(
        "--checkpoint", "Folder on the nodes, or `auto`; NODECTL_CHECKPOINT_DIR there.", metavar="DIR"
    )
    script: str | None = argument(required=False)
    args: tuple[str, ...] = argument(nargs=-1, type=click.UNPROCESSED)


@option_group
class _Environment:
    names: tuple[str, ...] = option("--env", "Pass a variable of your environment to the job.", metavar="NAME")
    env_file: Path | None = option(
        "--env-file",
        "File of NAME=VALUE lines for the job, mode 0600.",
        type=click.Path(path_type=Path),
        metavar="FILE",
    )
    venv: str | None = option(
        "--venv",
        "Environment that holds torchrun, a venv or a conda prefix.  Default: the inventory's pytorch_venv.",
        metavar="DIR",
    )
    container: str | None = option(
        "--container", "Run in a container of this image, with the hosts' network, GPUs and RDMA.", metavar="IMAGE"
    )
    nic_binding: str = option(
        "--nic-binding",
        "host: NCCL uses each host's NICs for training.",
        default=NIC_BINDINGS[0],
        type=OneOf(NIC_BINDINGS),
    )


@option_group
class _Hosts:
    """The hosts that run ranks, their order, and what they must be or have."""

    nodes: str | None = option(
        "--nodes",
        "Number of hosts that run ranks; the others are spares.",
        metavar="N|MIN:MAX",
    )
    restarts: int | None = option(
        "--restarts",
        "Number of new attempts after a failure.  Default: 0.",
        type=click.IntRange(0, 1000),
        metavar="N",
    )
    spares: int | None = option(
        "--spares", "Number of hosts that wait to take a failed host's place.", type=click.IntRange(0), metavar="K"
    )
    interface: str | None = option(
        "--interface", "Interface of the job: eth1, or the one in 10.1.0.0/16 on each host.", metavar="NAME|NETWORK"
    )
    needs: tuple[str, ...] = option("--need", "Path that every host must have before the start.", metavar="PATH")
    skips: tuple[str, ...] = option(
        "--skip",
        "Start even if this check of preflight fails.",
        metavar="CHECK",
    )


@option_group
class _Options:
    limits: _Limits
    code: _Program
    around: _Environment
    hosts: _Hosts
    trace: str | None = option(
        "--trace",
        "Profile some steps of each rank; a table shows compute, communication, overlap and idle.",
        type=OneOf(TRACERS),
    )
    detach: bool = option("--detach", "Print the job's id and return.")
    dry_run: bool = option("--dry-run", "Print the plan and start nothing.")


class _Command(click.Command):
    """Says where `--` belongs, for options that were meant for the script."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does; name `--` for an option that nodectl does not have."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            hint = "the program's own options stand behind `--`: nodectl launch SCRIPT -- OPTIONS"
            raise click.UsageError(f"{error.format_message()}\n  try: {hint}", ctx) from error


@dataclass(frozen=True, slots=True)
class _Work:
    """The work as this machine resolves it: program and code, what hosts must have, variables of the ranks."""

    way: Way
    paths: tuple[tuple[str, PathKind], ...]
    env: Mapping[str, str]
    skipping: tuple[str, ...]
    interface: str | None
    on_event: tuple[str, ...]


@click.command(cls=_Command)
@takes(_Options)
@include_cordoned_option
@click.pass_obj
def launch(app: App, asked: _Options) -> None:
    """Start SCRIPT (or -m MODULE, or --engine NAME -- ARGV) on all hosts and follow it.

    SCRIPT's git repository is copied to the hosts, without secrets and what .gitignore and .nodectlignore exclude.
    Outside a repository the script travels alone; --code DIR copies a folder.
    `workload:NAME` is a program that nodectl ships. Ctrl-C stops the job; closing the terminal does not.
    """
    app.inventory  # noqa: B018 - says first which machine is meant
    work = _resolve(app, asked)
    raise click.exceptions.Exit(_launch(app, asked, work))


def _resolve(app: App, asked: _Options) -> _Work:
    code, around, needs = asked.code, asked.around, needed(asked.hosts.needs)
    program = Asked(
        *(code.script, code.args, code.module, code.engine, code.chdir, code.code_folder, code.code_limit),
        include=code.include,
        container=around.container,
        trace=asked.trace or "",
    )
    way = find_way(program, [path for path, _ in needs])
    skipping = skipped_checks(asked.hosts.skips)
    if way.code is not None and around.env_file is not None:
        way = replace(way, code=way.code.without([around.env_file]))
    _show_code(way, code.args, dry_run=asked.dry_run)
    env = collect_variables(around.names, around.env_file, os.environ)
    check_lease(asked.limits.lease)
    return _Work(way, (*way.paths, *needs), env, skipping, check_interface(asked.hosts.interface), app.on_event())


def _launch(app: App, asked: _Options, work: _Work) -> int:
    hosts: Sequence[Host] = in_rank_order(app.hosts)
    request = _request(asked, work, hosts)
    if app.inventory.is_here and request.launcher == node_paths.LAUNCHER:
        launcher = kept("nodectl-launch")
        replace_file(launcher, render("launch.sh.j2", profiles="none", venv=""), mode=0o700)
        request = replace(request, launcher=str(launcher))
    hosts, surroundings = _ready_hosts(app, asked, request, work, hosts)
    if request.nodes is not None:
        request = replace(request, nodes=replace(request.nodes, most=min(request.nodes.most, len(hosts))))
    job_id = new_job_id()
    with interruptible(deaf_s=_UNDO_S):
        saved = plan_checkpoints(app.transport, hosts, job_id, request.checkpoint_folder(), app.forks)
        plan = make_plan(job_id, request, surroundings, saved)
        if asked.dry_run:
            document = plan.document()
            app.show("plan", {"plan": document}, plan_text(document, container_line(document)))
            return 0
        _start(app, hosts, plan, work)
    note_started(app.fleet, plan.id)
    if asked.detach:
        names = [host.name for host in plan.hosts]
        job = {"id": plan.id, "state": "starting", "hosts": names, "exit_status": None, "first_failure": None}
        app.show("jobs", {"jobs": [job]}, plan.id)
        return 0
    note(f"job {plan.id} runs on {counted(len(hosts), 'host')}. Ctrl-C stops it")
    note(f"if this terminal closes, the job goes on: nodectl jobs attach {plan.id} follows it again")
    return _follow(app, hosts, plan.id)


def _request(asked: _Options, work: _Work, hosts: Sequence[Host]) -> LaunchRequest:
    limits, around, way = asked.limits, asked.around, work.way
    in_container = around.container is not None
    launcher = str(hosts[0].variables.get("launcher_path") or node_paths.LAUNCHER)
    return LaunchRequest(
        script=way.script,
        args=way.args,
        # a command may start ranks itself
        nproc_per_node=limits.nproc_per_node or (1 if way.start.engine == COMMAND else None),
        lease_s=limits.lease,
        launcher=launcher,
        # in a container it is what PATH has, unless one is named
        venv=around.venv or "" if in_container else venv_of(hosts[0].variables, launcher, around.venv),
        env_names=tuple(sorted(work.env)),
        name=way.name,
        workdir=way.workdir,
        checkpoint=asked.code.checkpoint,
        nodes=count_nodes(len(hosts), asked.hosts.nodes, asked.hosts.spares),
        restarts=asked.hosts.restarts,
        start=way.start,
        stayed=() if way.code is None else way.code.stayed[:_MOST_STAYED],
        time_limit_s=limits.time_limit or 0.0,
        on_event=work.on_event,
    )


def _ready_hosts(
    app: App, asked: _Options, request: LaunchRequest, work: _Work, hosts: Sequence[Host]
) -> tuple[Sequence[Host], Surroundings]:
    """Return the hosts that passed preflight and their surroundings, with the NICs for NCCL."""
    needs = _job_needs(hosts, request, work, asked.around.venv)
    hosts, surroundings = _preflight(app, hosts, request, needs, work.skipping)
    if asked.around.nic_binding == HOST and surroundings.rdma_hosts:  # else there is nothing to import for
        from nodectl.jobs.nics import bind_nics

        surroundings, lines = bind_nics(app.transport, hosts, surroundings, app.forks)
        for line in lines:
            note(line)
    return hosts, surroundings


def _start(app: App, hosts: Sequence[Host], plan: Plan, work: _Work) -> None:
    """Send the code and start a supervisor on each host; if that fails it is undone everywhere, and said."""
    where = counted(len(hosts), "host")
    package = pack(plan, work.way.code)
    note(f"job {plan.id}: starting on {where}")
    try:
        start(app.transport, hosts, plan, package, work.env, app.forks)
    except BaseException as error:
        for line in getattr(error, "__notes__", None) or [f"job {plan.id}: the start was undone on {where}"]:
            note(line)
        raise


def _show_code(way: Way, args: Sequence[str], *, dry_run: bool) -> None:
    code: Code | None = way.code
    if code is None:
        note(f"code: nothing is copied, it runs in {way.start.chdir} of each host")
        return
    note(code.describe())
    for name in left_behind(code, args):
        note(f"{name} stays here; --code DIR names a folder that holds it and the script")
    for line in (*code.shown, *(code.left_out() if dry_run else ())):
        note(line)


def _job_needs(hosts: Sequence[Host], request: LaunchRequest, work: _Work, venv: str | None) -> JobNeeds:
    way, folder = work.way, request.checkpoint_folder()
    # each host's own; none for a launcher of the operator's own
    own = [(host.name, venv_of(host.variables, request.launcher, None)) for host in hosts]
    return JobNeeds(
        candidate_ports=candidate_ports(),
        interface=work.interface,
        checkpoint_dir=folder if folder is not None and folder.startswith("/") else None,
        launcher=request.launcher,
        venv=None if way.start.container else request.venv or None,
        venvs=() if venv or way.start.container else tuple((name, venv) for name, venv in own if venv),
        image=way.start.container.image if way.start.container else "",
        code_bytes=0 if way.code is None else 2 * way.code.size_bytes,
        paths=work.paths,
        engine=way.start.engine,
    )


def _preflight(
    app: App, hosts: Sequence[Host], request: LaunchRequest, needs: JobNeeds, skipping: tuple[str, ...]
) -> tuple[Sequence[Host], Surroundings]:
    """Show preflight's findings and return the hosts that pass, if they are enough; else end the launch."""
    report = run_preflight(app.transport, hosts, needs, app.forks)
    kept, passed = parted(report.findings, skipping)
    skipped = skipped_lines(skipping, passed)
    for line in skipped:
        note(f"skipped: {line}")
    shown = [finding for finding in kept if finding.status not in (Status.OK, Status.SKIPPED)]
    if shown:
        note(findings_text(shown))
    status = exit_status(finding.status for finding in kept)
    least = request.nodes.least if request.nodes else len(hosts)
    if status and least <= len(left := passing(hosts, kept)) < len(hosts):
        note(f"left out, a spare takes the place: {fold(host.name for host in hosts if host not in left)}")
        return _preflight(app, left, request, needs, skipping)
    if status:
        note("the job was not launched: preflight found what stands above")
        app.show("jobs", {"jobs": [], "findings": [asdict(finding) for finding in shown]}, "")
        raise click.exceptions.Exit(status)
    candidates = [report.candidates[host.name] for host in hosts]
    return hosts, Surroundings(
        hosts=tuple(
            PlanHost(
                row.host,
                row.address.address,
                row.address.interface,
                venv=row.needs.venv if row.needs.venv and row.needs.venv != request.venv else "",
            )
            for row in candidates
        ),
        gpu_counts=tuple(row.gpu_count or 0 for row in candidates),
        free_ports=tuple(report.ports),
        skipped=skipped,
        container_engine=container_engine(candidates),
        rdma_hosts=[
            row.host for row in candidates if row.gpu_count != 0 and row.known("rdma_devices", RdmaDevices).names
        ],
    )


def _follow(app: App, hosts: Sequence[Host], job_id: str) -> int:
    gone: dict[str, str] = {}
    try:
        gone = follow_output(app, hosts, job_id)
    except BrokenPipeError:
        note(f"nobody reads the output any more; the job goes on: nodectl jobs attach {job_id}")
        raise
    except KeyboardInterrupt:
        note(f"stopping {job_id} on all hosts in {_CHANCE_S:g} s; Ctrl-C again leaves it running")
        try:
            time.sleep(_CHANCE_S)
        except KeyboardInterrupt:
            note(f"the job goes on; see nodectl jobs logs -f {job_id}, nodectl jobs stop {job_id}")
            return 130
        gone = dict(stop_job(app, hosts, job_id))
    gone |= {host.name: "it is not in the job" for host in app.hosts if host not in hosts}
    return conclude(app, job_id, gone)
