"""A job for another launcher, as text: Slurm's batch script, a hostfile; and the templates of these and of roles."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nodectl.common.resources import share_dir
from nodectl.errors import UsageError

_PORT = 29500
_ADDRESS = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:%-]*")
_OPTION = re.compile(r"--([a-z][a-z0-9-]*)(?:=(.*))?", re.DOTALL)
# what the script stands on
_OWN = frozenset(
    {
        *("array", "chdir", "error", "help", "input", "job-name", "nodes", "nodelist", "ntasks", "ntasks-per-node"),
        *("output", "parsable", "test-only", "usage", "version", "wait", "wrap"),
    }
)
_CPU_OPTIONS = ("exclusive", "cpus-per-task", "cpus-per-gpu", "oversubscribe", "overcommit")
_MEMORY_OPTIONS = ("mem", "mem-per-cpu", "mem-per-gpu")
_GPU_OPTIONS = ("gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "gres")
_LONGEST_NAME = 64
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def render(template: str, **variables: object) -> str:
    """Render the template of a role, or beside this module; a missing variable is jinja2.UndefinedError."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    folders = [Path(__file__).parent, *sorted((share_dir() / "roles").glob("*/templates"))]
    environment = Environment(  # noqa: S701  # scripts and plain files, no HTML
        loader=FileSystemLoader(folders),
        undefined=StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["quote"] = shlex.quote
    return environment.get_template(template).render(**variables)


@dataclass(frozen=True, slots=True)
class Node:
    """`slots` are the ranks that it takes: its GPUs."""

    address: str
    slots: int


def hostfile(nodes: Sequence[Node], form: str) -> str:
    """Return the file's text; raise UsageError for an address that the form cannot hold."""
    for node in nodes:
        if not _ADDRESS.fullmatch(node.address):
            raise UsageError(
                f"{node.address!r} is not an address for a hostfile", "set ansible_host to a plain address"
            )
    return FORMS[form](nodes)


def _hydra(nodes: Sequence[Node]) -> str:
    if bad := [node.address for node in nodes if ":" in node.address]:
        raise UsageError(f"{bad[0]} has a colon, which this form takes for its own", "use names or IPv4 addresses")
    lines = [f"{node.address}:{node.slots}" for node in nodes]
    return "\n".join(["# Written by nodectl for `mpirun -f` of MPICH or Intel MPI.", *lines, ""])


def _torchrun(nodes: Sequence[Node]) -> str:
    lines = ["# Written by nodectl. torchrun reads no hostfile: run each line on its node, with the script behind it."]
    for rank, node in enumerate(nodes):
        argv = ["torchrun", "--nnodes", str(len(nodes)), "--node-rank", str(rank), "--nproc-per-node", str(node.slots)]
        argv += ["--master-addr", nodes[0].address, "--master-port", str(_PORT)]
        lines.append(f"{shlex.join(argv)}  # on {node.address}")
    return "\n".join([*lines, ""])


FORMS: Mapping[str, Callable[[Sequence[Node]], str]] = {
    "deepspeed": lambda nodes: render("hostfile.j2", nodes=nodes),
    "openmpi": lambda nodes: "\n".join(
        [
            "# Written by nodectl for `mpirun --hostfile` of Open MPI.",
            *(f"{node.address} slots={node.slots}" for node in nodes),
            "",
        ]
    ),
    "mpich": _hydra,
    "torchrun": _torchrun,
}


@dataclass(frozen=True, slots=True)
class SbatchJob:
    """Hold what a batch script needs to know.

    `hosts` are nodes by name; without them Slurm chooses `nodes` of its own. `asked` are the operator's own options of
    sbatch. `program` is what the launch script starts, the script and its words. The job runs where it is submitted.
    """

    name: str
    nodes: int
    nproc_per_node: int
    program: Sequence[str]
    launcher: str
    hosts: Sequence[str] = ()
    gpus: int = 0
    asked: Sequence[str] = ()
    venv: str = ""
    network: str = ""
    env: Mapping[str, str] = field(default_factory=dict)

    def script_text(self) -> str:
        """Return the script; raise UsageError for a node's name, an option or a word that sbatch does not take."""
        text = render(
            "sbatch.sh.j2",
            options=[sbatch_line(name, value) for name, value in self._options()],
            network=self.network,
            launcher=self.launcher,
            venv=self.venv,
            nproc_per_node=self.nproc_per_node,
            program=list(self.program),
            env=dict(self.env),
        )
        if "\r\n" in text:
            raise UsageError(
                "a word of the job holds a line's end of DOS, and sbatch refuses such a script", "leave it out"
            )
        return text

    def _options(self) -> list[tuple[str, str | None]]:
        asked = [read_option(text) for text in self.asked]
        names = {name for name, _ in asked}
        options: list[tuple[str, str | None]] = [
            ("job-name", job_name(self.name)),
            ("nodes", str(self.nodes)),
            ("ntasks-per-node", "1"),
            ("output", "slurm-%j.out"),
        ]
        for name in self.hosts:
            if not _NODE.fullmatch(name):  # a slash would make a file of it, a bracket many nodes
                remedy = "name hosts as Slurm does, or say --nodes N"
                raise UsageError(f"host {name!r}: no name of a Slurm node", remedy)
        if self.hosts:
            options.append(("nodelist", ",".join(self.hosts)))
        if names.isdisjoint(_CPU_OPTIONS):
            options.append(("exclusive", None))  # whole nodes, as over SSH
        if names.isdisjoint(_MEMORY_OPTIONS):
            options.append(("mem", "0"))
        if self.gpus and names.isdisjoint(_GPU_OPTIONS):
            options.append(("gpus-per-node", str(self.gpus)))
        if names.isdisjoint(("requeue", "no-requeue")):
            options.append(("no-requeue", None))  # a second start would find the first one's files
        return [*options, *asked]


def read_option(text: str) -> tuple[str, str | None]:
    """`--partition=train` → its name and value; UsageError for what is none, or what the script sets itself."""
    match = _OPTION.fullmatch(text)
    if match is None:
        raise UsageError(f"--sbatch {text!r}: no long option of sbatch", "say --sbatch=--partition=train")
    name, value = match[1], match[2]
    if name in _OWN:
        raise UsageError(f"--sbatch {text}: nodectl sets --{name} itself", "leave it out; --nodes says how many")
    if not text.isprintable():
        raise UsageError(f"--sbatch {text!r}: more than one line, or a control character in it", "leave that out")
    return name, value


def sbatch_line(name: str, value: str | None) -> str:
    """Return an option as sbatch reads it in a script, where a backslash takes quotes and # their meaning."""
    if value is None:
        return f"--{name}"
    if re.search("packjob|hetjob", value, re.IGNORECASE):  # sbatch would blank them out wherever they stand
        raise UsageError(f"--{name}: {value!r} holds a word of sbatch's own (packjob, hetjob)", "choose another")
    plain = re.fullmatch(r"[A-Za-z0-9_.,:+@%/=\[\]-]+", value)
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f"--{name}={value}" if plain else f'--{name}="{escaped}"'


def job_name(text: str) -> str:
    """Return a name for Slurm's lists: letters, digits and ._+- of `text`."""
    name = re.sub(r"[^A-Za-z0-9._+-]+", "-", text).strip("-")
    return re.sub("packjob|hetjob", "job", name, flags=re.IGNORECASE)[:_LONGEST_NAME] or "job"
