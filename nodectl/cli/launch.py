"""`nodectl launch`: Start a training job over the hosts and follow it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from nodectl.cli import completing
from nodectl.cli.app import App
from nodectl.cli.cordoned import include_cordoned_option, recognise
from nodectl.cli.measuring import hold, look_at
from nodectl.cli.options import OneOf, Read, Seconds
from nodectl.cli.question import DeclinedError
from nodectl.cli.terminal import TO_LEAVE, note, terminal_width
from nodectl.cli.tracing import at_the_end, trace_options, tracing
from nodectl.common import node_paths
from nodectl.common.counting import counted
from nodectl.common.interrupts import interruptible
from nodectl.common.nodeset import fold
from nodectl.errors import UsageError
from nodectl.jobs.engines import COMMAND, NAMES, TORCHRUN
from nodectl.jobs.plan import (
    CODE_LIMIT_MIB,
    GPU,
    LEASE_S,
    LOG_LIMIT_MIB,
    NIC_BINDINGS,
    NUMA_BINDINGS,
    Warn,
    read_warning,
)
from nodectl.model.status import Status, exit_status
from nodectl.payload.jobs.container import ENGINES

if TYPE_CHECKING:
    from nodectl.checks.launch.candidate import JobNeeds, PathKind
    from nodectl.jobs.code import Code
    from nodectl.jobs.plan import LaunchRequest, Surroundings
    from nodectl.jobs.ways import Way
    from nodectl.model.host import Host

PREFLIGHT, QUICK = "preflight", "quick"
_CHANCE_S = 2.0
_UNDO_S = 30.0


def read_gate(text: str) -> str:
    """`--gate` with nothing behind it, `quick`, and what nodectl.toml or the environment say of a switch."""
    if text.lower() in ("true", "1", "yes", "on", PREFLIGHT):
        return PREFLIGHT
    if text.lower() in ("false", "0", "no", "off", ""):
        return ""
    if text != QUICK:
        raise ValueError(f"{text!r} is no gate; write --gate or --gate quick")
    return QUICK


class _Launch(click.Command):
    """Says where `--` belongs, for options that were meant for the script."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # SCRIPT may follow a --gate that has no word of its own
        own = args.index("--") if "--" in args else len(args)
        for place in range(own):
            if args[place] == "--gate" and args[place + 1 : place + 2] not in ([PREFLIGHT], [QUICK]):
                args[place] = f"--gate={PREFLIGHT}"
        script, early = self._between_script_and_dashes(ctx, args)
        try:
            left = super().parse_args(ctx, list(args))
        except click.NoSuchOption as error:
            if not any(word.partition("=")[0] == error.option_name for word in early):
                if "-m" in args and "--" not in args[: args.index("-m")]:
                    note("the module's own options stand behind `--`: nodectl launch -m MODULE -- OPTIONS")
                raise
            hint = f"the script's own options stand behind `--`: nodectl launch {script} -- {' '.join(early)}"
            raise click.UsageError(f"{error.message}\n  try: {hint}", ctx) from error
        if taken := [word for word in early if word.startswith("-")]:
            note(f"{' '.join(taken)}: taken as nodectl's own; the script's options stand behind `--`")
        return left

    def _between_script_and_dashes(self, ctx: click.Context, args: list[str]) -> tuple[str, list[str]]:
        """The script, and the words that follow it before any `--`."""
        parser = self.make_parser(ctx)
        parser.allow_interspersed_args = False
        try:
            words = parser.parse_args(list(args))[0]
        except click.UsageError:  # its own parse says it
            return "", []
        script, rest = words.get("script"), words.get("args")
        if not isinstance(script, str) or "--" in args[: args.index(script)]:  # click has a mark for what is not given
            return "", []
        behind = list(rest) if isinstance(rest, (list, tuple)) else []
        return script, behind[: behind.index("--")] if "--" in behind else behind


@click.command(cls=_Launch, context_settings={"ignore_unknown_options": False})
@click.option(
    "--nproc-per-node", type=click.IntRange(1, 1024), help="Ranks on each host.  Default: one a GPU, else one."
)
@click.option(
    "--lease",
    type=float,
    default=LEASE_S,
    show_default=True,
    metavar="S",
    help="End the job when a host is silent for this time.",
)
@click.option("--env", "names", multiple=True, metavar="NAME", help="Pass a variable of your environment to the job.")
@click.option(
    "--env-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File of NAME=VALUE lines for the job, mode 0600.",
)
@click.option(
    "--code",
    "code_folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Folder that is copied.  Default: SCRIPT's project, else its folder.",
)
@click.option(
    "--code-limit",
    type=click.IntRange(1),
    default=CODE_LIMIT_MIB,
    show_default=True,
    metavar="MIB",
    help="Largest total size of what is copied.",
)
@click.option(
    "--log-limit",
    type=click.IntRange(1),
    default=LOG_LIMIT_MIB,
    show_default=True,
    metavar="MIB",
    help="Output that is kept on each host; the oldest is deleted.",
)
@click.option("--checkpoint", metavar="DIR", help="Folder on the nodes, or `auto`; NODECTL_CHECKPOINT_DIR there.")
@click.option(
    "--interface", metavar="NAME|NETWORK", help="Interface of the job: eth1, or the one in 10.1.0.0/16 on each host."
)
@click.option(
    "--launcher",
    default=node_paths.LAUNCHER,
    show_default=True,
    metavar="PATH",
    help="Path of the launch script on the nodes.",
)
@click.option("--venv", metavar="DIR", help="Environment that holds torchrun.  Default: the inventory's pytorch_venv.")
@click.option("--conda", metavar="DIR", help="Conda environment that holds torchrun, by its prefix; it is activated.")
@click.option(
    "--container", metavar="IMAGE", help="Run in a container of this image, with the hosts' network, GPUs and RDMA."
)
@click.option("--container-engine", type=OneOf(ENGINES), help="Default: docker or podman, whichever all hosts have.")
@click.option("-m", "--module", metavar="MODULE", help="Start a Python module, as `python -m` does.")
@click.option(
    "--engine",
    type=OneOf(NAMES),
    default=TORCHRUN,
    show_default=True,
    help="Program that starts the ranks; all but torchrun take `-- ARGV`; `command` runs ARGV once a rank.",
)
@click.option("--chdir", metavar="DIR", help="Run the code in this folder of the hosts; nothing is copied.")
@click.option("--need", "needs", multiple=True, metavar="PATH", help="Path that every host must have before the start.")
@click.option(
    "--numa-binding", type=OneOf(NUMA_BINDINGS), help="Bind ranks to the CPUs near their GPUs (an option of torchrun)."
)
@click.option(
    "--nic-binding",
    type=OneOf(NIC_BINDINGS),
    default=NIC_BINDINGS[0],
    show_default=True,
    help="host: NCCL uses each host's NICs for training; gpu: each rank uses the NIC at its GPU alone.",
)
@trace_options
@click.option(
    "--skip",
    "skips",
    multiple=True,
    metavar="CHECK",
    shell_complete=completing.one_of(completing.launch_check_names),
    help="Start even if this check of preflight fails.",
)
@click.option(
    "--fabric-from",
    type=click.Path(exists=True, path_type=Path),
    metavar="FILE",
    help="Ranks of one switch together, by ibnetdiscover's text or lldpctl's JSON.  Default: by nodectl_switch.",
)
@click.option(
    "--via", type=OneOf(["ssh", "slurm"]), default="ssh", show_default=True, help="What starts the ranks on the hosts."
)
@click.option(
    "--nodes",
    metavar="N|MIN:MAX",
    help="Number of hosts that run ranks; the others are spares.  With slurm: Slurm chooses them.",
)
@click.option(
    "--restarts", type=click.IntRange(0, 1000), metavar="N", help="Number of new attempts after a failure.  Default: 0."
)
@click.option(
    "--spares", type=click.IntRange(0), metavar="K", help="Number of hosts that wait to take a failed host's place."
)
@click.option(
    "--gate",
    type=Read(read_gate, "gate"),
    is_flag=False,
    flag_value=PREFLIGHT,
    metavar="[quick]",
    help="Start without the hosts that fail preflight, as far as spares go; quick: nor those that some 20 s of health, "
    "a matrix product, pairs and a collective reject.",
)
@click.option("--time-limit", type=Seconds(1), metavar="TIME", help="End the job after this time: 4h, 90m.")
@click.option(
    "--signal",
    "warning",
    type=Read(read_warning, "signal"),
    metavar="USR1@60",
    help="Signal that the ranks get this many seconds before --time ends.",
)
@click.option(
    "--sbatch",
    "sbatch_options",
    multiple=True,
    metavar="OPTION",
    help="With slurm: an option of sbatch, as --sbatch=--partition=gpu.",
)
@include_cordoned_option
@click.option("--detach", is_flag=True, help="Print the job's id and return.")
@click.option("--dry-run", is_flag=True, help="Print the plan and start nothing.")
@click.argument("script", required=False)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.pass_obj
def launch(
    app: App,
    nproc_per_node: int | None,
    lease: float,
    names: tuple[str, ...],
    env_file: Path | None,
    code_folder: Path | None,
    code_limit: int,
    log_limit: int,
    checkpoint: str | None,
    interface: str | None,
    launcher: str,
    venv: str | None,
    conda: str | None,
    container: str | None,
    container_engine: str | None,
    module: str | None,
    engine: str,
    chdir: str | None,
    needs: tuple[str, ...],
    numa_binding: str | None,
    nic_binding: str,
    tracer: str | None,
    trace_skip: int | None,
    trace_steps: int | None,
    skips: tuple[str, ...],
    fabric_from: Path | None,
    via: str,
    nodes: str | None,
    restarts: int | None,
    spares: int | None,
    gate: str | None,
    time_limit: float | None,
    warning: Warn | None,
    sbatch_options: tuple[str, ...],
    detach: bool,
    dry_run: bool,
    script: str | None,
    args: tuple[str, ...],
) -> None:
    """Start SCRIPT (or -m MODULE, or --engine NAME -- ARGV) on all hosts and follow it.

    SCRIPT's project is copied to the hosts (the folder above it with .git or pyproject.toml, else its own folder),
    without secrets and what .gitignore and .nodectlignore name; a script right in your home travels alone.
    `workload:NAME` is a program that nodectl ships. Ctrl-C stops the job; closing the terminal does not.
    """
    from nodectl.jobs.code import left_behind
    from nodectl.jobs.nodes import clear_survey, plan_checkpoints, start
    from nodectl.jobs.package import collect_variables, describe_parcels, pack
    from nodectl.jobs.plan import (
        LaunchRequest,
        check_interface,
        check_lease,
        count_nodes,
        fewer,
        make_plan,
        new_job_id,
        slurm_nodes,
    )
    from nodectl.jobs.preflight import skipped_checks
    from nodectl.jobs.seen import note_jobs
    from nodectl.jobs.ways import Asked, container_line, find_way, needed, trace_line
    from nodectl.topology.fabric.judge import in_rank_order
    from nodectl.transport.router import connect_ahead

    if conda is not None and venv is not None:
        raise UsageError("--venv and --conda exclude each other: each names the environment", "say one of them")
    if nic_binding == GPU and (engine == COMMAND or "NCCL_IB_HCA" in names):
        what = "a command may be no Python" if engine == COMMAND else "--env NCCL_IB_HCA says it already"
        raise UsageError(f"--nic-binding gpu is set in each rank's Python: {what}", "leave it out")
    asked = Asked(
        *(script, args, module, engine, chdir, code_folder, code_limit),
        conda=conda,
        numa_binding=numa_binding,
        container=container,
        container_engine=container_engine,
        trace=tracing(tracer, trace_skip, trace_steps),
    )
    way = find_way(asked, [path for path, _ in needed(needs)])
    paths = (*way.paths, *needed(needs))
    skipping = skipped_checks(skips)
    note(
        f"code: nothing is copied, it runs in {way.start.chdir} of each host"
        if way.code is None
        else way.code.describe()
    )
    if way.code is not None:
        for name in left_behind(way.code, args):
            note(f"{name} stays here: it is not below {way.code.folder}; --code DIR names a folder that holds both")
        _show_code(way.code, dry_run=dry_run)
    env = collect_variables(names, env_file, os.environ)
    check_lease(lease)
    interface = check_interface(interface)
    if via == "slurm":
        from nodectl.cli import slurm

        count = slurm_nodes(nodes)
        if restarts or spares:
            raise click.UsageError("--restarts and --spares need hosts over SSH; Slurm requeues jobs by itself")
        if needs or skipping:
            raise click.UsageError(
                "--need and --skip need hosts over SSH: they belong to preflight, which Slurm's jobs do not have"
            )
        if warning is not None:
            raise click.UsageError("--signal needs hosts over SSH: Slurm's signal would reach the ranks' launcher, too")
        if nic_binding == GPU:
            raise click.UsageError("--nic-binding gpu needs hosts over SSH")
        if tracer is not None:
            raise click.UsageError("--trace needs hosts over SSH")
        batch = slurm.Asked(
            way, nproc_per_node, count, sbatch_options, checkpoint, interface or "", launcher, venv, time_limit or 0.0
        )
        raise click.exceptions.Exit(slurm.launch_via_slurm(app, batch, env, detach=detach, dry_run=dry_run))
    if sbatch_options:
        raise click.UsageError("--sbatch needs --via slurm")
    hosts: Sequence[Host] = in_rank_order(app.hosts, fabric_from)
    connect_ahead(app.transport, hosts, app.forks)
    request = LaunchRequest(
        script=way.script,
        args=way.args,
        nproc_per_node=nproc_per_node,
        lease_s=lease,
        launcher=launcher,
        venv=way.start.conda or _venv(hosts[0], launcher, venv, in_container=container is not None),
        env_names=tuple(sorted(env)),
        name=way.name,
        workdir=way.workdir,
        checkpoint=checkpoint,
        nodes=count_nodes(len(hosts), nodes, spares),
        restarts=restarts,
        start=way.start,
        stayed=() if way.code is None else way.code.stayed,
        time_limit_s=time_limit or 0.0,
        warning=warning,
        log_limit_mib=log_limit,
    )
    folder = request.checkpoint_folder()
    job_needs = _job_needs(hosts, request, way, venv, paths, interface)
    hosts, surroundings = _preflight(app, hosts, request, job_needs, skipping, gate=bool(gate))
    if gate == QUICK and not dry_run and len(good := _tried(app, hosts, request)) < len(hosts):
        hosts, surroundings = _preflight(app, good, request, job_needs, skipping, gate=True)
    if nic_binding == GPU or surroundings.rdma_hosts:  # else there is nothing to import for
        from nodectl.jobs.nics import bind_nics

        surroundings, lines = bind_nics(app.transport, hosts, surroundings, nic_binding, nproc_per_node, app.forks)
        for line in lines:
            note(line)
    left_out = tuple(host.name for host in app.hosts if host not in hosts)
    request = replace(request, nodes=fewer(request.nodes, len(hosts)), left_out=left_out)
    job_id = new_job_id()
    where = counted(len(hosts), "host")
    with interruptible(deaf_s=_UNDO_S):
        saved = plan_checkpoints(app.transport, hosts, job_id, folder, app.forks)
        plan = make_plan(job_id, request, surroundings, saved)
        if dry_run:
            if folder is not None:
                clear_survey(app.transport, hosts, job_id, folder, app.forks)
            from nodectl.report.jobs import plan_text

            document = plan.document()
            app.show("plan", {"plan": document}, plan_text(document, container_line(document), trace_line(document)))
            return
        if plan.no_restart:
            note(f"after a failure the job is {plan.no_restart}")
        packages, sent = pack(plan, way.code, surroundings.kept_code)
        if any(surroundings.kept_code.values()):
            note(describe_parcels(sent))
        note(f"job {plan.id}: starting on {where}")
        try:
            start(app.transport, hosts, plan, packages, env, app.forks)
        except BaseException as error:
            for line in getattr(error, "__notes__", None) or [f"job {plan.id}: the start was undone on {where}"]:
                note(line)
            raise
    note_jobs(app.fleet, [plan.id], started=True)
    if detach:
        job = {
            "id": plan.id,
            "state": "starting",
            "hosts": [host.name for host in plan.hosts],
            "exit_status": None,
            "first_failure": None,
        }
        app.show("jobs", {"jobs": [job]}, plan.id)
        return
    note(f"job {plan.id} runs on {where}; {TO_LEAVE}: nodectl jobs attach {plan.id}")
    raise click.exceptions.Exit(_follow(app, hosts, plan.id, traced=plan.start.trace is not None))


def _show_code(code: Code, *, dry_run: bool) -> None:
    """What is to be seen before it goes, and asked about at a terminal where nobody said that it is a project."""
    for line in (*code.shown, *(code.left_out() if dry_run else ())):
        note(line)
    asks = code.doubtful and not dry_run and sys.stdin is not None and sys.stdin.isatty()
    if asks and not click.confirm(f"copy all of {code.folder} to the hosts?", err=True):
        raise DeclinedError("nothing was copied", "say --code DIR, or name in .nodectlignore what is to stay here")


def _venv(host: Host, launcher: str, asked: str | None, *, in_container: bool) -> str:
    """The environment: of the hosts, or in the container, where it is what PATH has unless one is named."""
    from nodectl.jobs.plan import venv_of

    return asked or "" if in_container else venv_of(host.variables, launcher, asked)


def _own(venv: str | None, of_all: str) -> str:
    return venv if venv and venv != of_all else ""


def _venvs(hosts: Sequence[Host], launcher: str) -> tuple[tuple[str, str], ...]:
    """Each host's own, by its name; none for a launcher of the operator's own."""
    from nodectl.jobs.plan import venv_of

    return tuple((host.name, own) for host in hosts if (own := venv_of(host.variables, launcher, None)))


def _job_needs(
    hosts: Sequence[Host],
    request: LaunchRequest,
    way: Way,
    venv: str | None,
    paths: tuple[tuple[str, PathKind], ...],
    interface: str | None,
) -> JobNeeds:
    from nodectl.checks.launch.candidate import JobNeeds
    from nodectl.jobs.plan import NSYS, candidate_ports

    folder = request.checkpoint_folder()
    return JobNeeds(
        candidate_ports=candidate_ports(),
        interface=interface,
        checkpoint_dir=folder if folder is not None and folder.startswith("/") else None,
        launcher=request.launcher,
        venv=None if way.start.container else request.venv or None,
        venvs=() if venv or way.start.container or way.start.conda else _venvs(hosts, request.launcher),
        image=way.start.container.image if way.start.container else "",
        container_engine=way.start.container.engine if way.start.container else "",
        code_bytes=0 if way.code is None else 2 * way.code.size_bytes,
        project="" if way.code is None else way.code.project,
        paths=paths,
        engine=way.start.engine,
        numa_binding=way.start.numa_binding,
        nsys=way.start.trace is not None and way.start.trace.tool == NSYS,
    )


def _preflight(
    app: App, hosts: Sequence[Host], request: LaunchRequest, needs: JobNeeds, skipping: tuple[str, ...], *, gate: bool
) -> tuple[Sequence[Host], Surroundings]:
    """Show what preflight found; the launch ends here where something failed or could not be told.

    With `gate`, hosts where it did are left out instead, as long as enough are left. The hosts of the job.
    """
    from nodectl.checks.launch.container import container_engine
    from nodectl.facts.job import KeptCode, RdmaDevices
    from nodectl.jobs.plan import PlanHost, Surroundings
    from nodectl.jobs.preflight import parted, passing, run_preflight, skipped_lines

    report = run_preflight(app.transport, hosts, needs, app.forks)
    kept, passed = parted(report.findings, skipping)
    skipped = skipped_lines(skipping, passed)
    for line in skipped:
        note(f"skipped: {line}")
    shown = [finding for finding in kept if finding.status not in (Status.OK, Status.SKIPPED)]
    if shown:
        from nodectl.report.jobs import findings_lines

        for line in findings_lines(shown):
            note(line)
    status = exit_status(finding.status for finding in kept)
    least = request.nodes.least if request.nodes else len(hosts)
    if status and gate and least <= len(left := passing(hosts, kept)) < len(hosts):
        note(f"left out by --gate: {fold(host.name for host in hosts if host not in left)}")
        return _preflight(app, left, request, needs, skipping, gate=gate)
    if status:
        note("the job was not launched: preflight found what stands above")
        app.show("jobs", {"jobs": [], "findings": [asdict(finding) for finding in shown]}, "")
        raise click.exceptions.Exit(status)
    candidates = [report.candidates[host.name] for host in hosts]
    return hosts, Surroundings(
        hosts=tuple(
            PlanHost(row.host, row.address.address, row.address.interface, venv=_own(row.needs.venv, request.venv))
            for row in candidates
        ),
        gpu_counts=tuple(row.gpu_count or 0 for row in candidates),
        free_ports=tuple(report.ports),
        skipped=skipped,
        container_engine=container_engine(candidates),
        rdma_hosts=[
            row.host for row in candidates if row.gpu_count != 0 and row.known("rdma_devices", RdmaDevices).names
        ],
        kept_code={row.host: row.known("kept_code", KeptCode).digests for row in candidates},
    )


def _tried(app: App, hosts: Sequence[Host], request: LaunchRequest) -> Sequence[Host]:
    """The hosts that a short acceptance accepts; the launch ends here where they are too few."""
    from nodectl.accept.gate import tried
    from nodectl.probes.lost import Watched
    from nodectl.report.acceptance import acceptance_text
    from nodectl.report.findings import findings_list

    with hold(app, "launch --gate quick", force=False, hosts=hosts) as holds:
        if holds.refused:
            note(findings_list(holds.findings))
            raise click.exceptions.Exit(exit_status(finding.status for finding in holds.findings))
        watched = Watched(app.transport, holds.heard, holds.unreached())
        done = tried(watched, hosts, look_at(app, watched), note, app.forks)
    bad = {host.host: host.verdict.status for host in done.hosts if not host.verdict.accepts}
    bad |= dict.fromkeys(recognise(app, {host.host: host.parts for host in done.hosts}), Status.FAILED)
    good = [host for host in hosts if host.name not in bad]
    if bad:
        note(acceptance_text(done, terminal_width()))
    if len(good) < (request.nodes.least if request.nodes else len(hosts)):
        note("the job was not launched: --gate quick rejected the hosts above")
        raise click.exceptions.Exit(exit_status(bad.values()))
    if bad:
        note(f"left out by --gate quick: {fold(bad)}")
    return good


def _follow(app: App, hosts: Sequence[Host], job_id: str, *, traced: bool) -> int:
    from nodectl.cli.jobs import conclude, follow_output, stop_job  # while the ranks load what they need

    gone: dict[str, str] = {}
    try:
        gone = follow_output(app, hosts, job_id)
    except KeyboardInterrupt:
        note(f"stopping {job_id} on all hosts in {_CHANCE_S:g} s; Ctrl-C again leaves it running")
        try:
            time.sleep(_CHANCE_S)
        except KeyboardInterrupt:
            note(f"the job goes on; see nodectl jobs logs -f {job_id}, nodectl jobs stop {job_id}")
            return 130
        gone = dict(stop_job(app, hosts, job_id))
    heard = [host for host in hosts if host.name not in gone]
    gone |= {host.name: "it is not in the job" for host in app.hosts if host not in hosts}
    return conclude(app, job_id, gone, (lambda job: at_the_end(app, job, heard)) if traced else None)
