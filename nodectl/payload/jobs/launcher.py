"""How the plan's program is started on this node: the launch script's arguments, its environment, and where it runs."""

from __future__ import annotations

import os
import signal
from typing import Any, Dict, List, Mapping, NamedTuple, NoReturn, Tuple

from . import container, notes, syscalls
from .checkpoints import resolve
from .contain import MARKER
from .folder import JobFolder, login_home, payload_folder, venv_of
from .process import read_text

_DROPPED_ENV = ("SSH_", "XDG_SESSION_", "NODECTL_")
_TORCHRUN = "torchrun"
_HERE = os.path.dirname(os.path.abspath(__file__))
NOT_STARTED = 127


class Command(NamedTuple):
    """The command to run; `output` is the file to which stdout and stderr are appended."""

    argv: List[str]
    env: Dict[str, str]
    cwd: str
    output: str


def spawn(command: Command) -> Tuple[int, int]:
    """Start a command in a session of its own; it dies with the calling process.

    Return its pid, and a pipe that brings the reason if it ends with NOT_STARTED. A folder or a program on a disk that
    hangs stops only the child, which uses no stream or lock of the calling process.
    """
    reader, writer = os.pipe()
    parent, pid = os.getpid(), os.fork()
    if pid == 0:
        try:
            _execute(command, parent)
        except BaseException as error:
            os.write(writer, f"{type(error).__name__}: {error}".encode(errors="backslashreplace")[:2000])
        finally:
            os._exit(NOT_STARTED)
    os.close(writer)
    os.set_blocking(reader, False)
    return pid, reader


def _execute(command: Command, parent: int) -> NoReturn:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    syscalls.die_with_parent()
    if os.getppid() != parent:  # it died before the line above
        os._exit(NOT_STARTED)
    os.setsid()
    redirect(command.output)
    os.umask(0o022)  # nodectl's own stricter mask is not for the job's files
    os.chdir(command.cwd)
    os.execvpe(command.argv[0], command.argv, command.env)  # noqa: S606 - an argv, and no shell is the point


def redirect(output: str) -> None:
    """Connect standard input to /dev/null, and append standard output and error to this file."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    log = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(log)
    os.close(nothing)


def command(plan: Dict[str, Any], job: JobFolder) -> Command:
    """Return the launch script for this host, in the node's environment plus what the operator gave."""
    start = plan.get("start") or {}
    env = {name: value for name, value in os.environ.items() if not name.startswith(_DROPPED_ENV)}
    env.update(job.environment)
    if not plan.get("restarts"):
        job.environment = {}  # only the ranks may know them
    env.update({MARKER: job.id, "NODECTL_JOB_DIR": job.path, "PYTHONUNBUFFERED": "1"})
    env["NODECTL_ATTEMPT"] = str(plan.get("attempt", 1))
    env["NODECTL_ONE_COPY"] = "1"  # the launch script's: `jobs logs` reads the ranks' own files
    if start.get("trace") == "torch":
        env["NODECTL_TRACE"] = "1"
    elif start.get("trace") == "nsys":
        env["PYTHON_EXEC"] = os.path.join(_HERE, "with_nsys.sh")
    if os.access(os.path.join(_HERE, "with_launcher.sh"), os.X_OK):
        env["NODECTL_WITH_LAUNCHER"] = os.path.join(_HERE, "with_launcher.sh")
    env.update(nic_variables(plan["hosts"][plan["rank"]], env))
    if plan.get("checkpoint"):
        env["NODECTL_CHECKPOINT_DIR"] = resolve(plan["checkpoint"]["dir"])
    root = start.get("chdir") or job.at("code")
    workdir = str(plan.get("workdir", ""))
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (notes.hook_folder(), env.get("PYTHONPATH", ""))))
    if _needs_import_paths(plan, start, root, workdir):
        folders = [root, os.path.join(root, "src"), *env["PYTHONPATH"].split(os.pathsep)]
        env["PYTHONPATH"] = os.pathsep.join(filter(None, folders))
    cwd, arguments = os.path.join(root, workdir), argv(plan, job)
    if start.get("container"):
        arguments = _in_container(plan, job, env, cwd, arguments)
    return Command(arguments, env, cwd, job.at("output.log"))


def _in_container(
    plan: Dict[str, Any], job: JobFolder, env: Dict[str, str], cwd: str, arguments: List[str]
) -> List[str]:
    start = plan["start"]
    programs = [payload_folder(), plan["launcher"], *(path for path in ("/etc/nccl.conf",) if os.path.isfile(path))]
    folders = [start.get("chdir", ""), env.get("NODECTL_CHECKPOINT_DIR", ""), *start["container"]["paths"]]
    has_rdma = os.path.isdir("/dev/infiniband")
    place = container.Place(job.path, cwd, folders, programs, has_rdma, os.getuid(), os.getgid())
    names = container.handed_over(env, plan["env_names"])
    return container.argv(start["container"], container_name(job), place, names, arguments)


def container_name(job: JobFolder) -> str:
    """Return the name of this host's container; another host of the same machine has another one."""
    return container.name(job.id, job.rank() or 0)


def container_end(plan: Dict[str, Any], job: JobFolder) -> List[str]:
    """Return what ends this host's container; empty if the job has none, or it is a child of the job."""
    asked = (plan.get("start") or {}).get("container")
    if not asked or asked["engine"] == container.APPTAINER:
        return []
    return [asked["engine"], "rm", "--force", container_name(job)]


def rank_logs(job: JobFolder, plan: Dict[str, Any]) -> str:
    """Return where each rank's own output lies: of the attempts after the first in folders of their own."""
    number = plan.get("attempt", 1)
    return job.at("ranks") if number == 1 else job.at("ranks", f"restart-{number - 1}")


def _needs_import_paths(plan: Dict[str, Any], start: Dict[str, Any], root: str, workdir: str) -> bool:
    """Not for a script at the project's top, where Python looks anyway, unless packages lie in `src/`."""
    if start.get("module") or start.get("engine", _TORCHRUN) != _TORCHRUN or _has_src_layout(root):
        return True
    return os.path.normpath(os.path.join(workdir, os.path.dirname(plan["script"]))) != "."


def _has_src_layout(root: str) -> bool:
    """Modules right in `src/` make it a package itself: one called `queue.py` would hide Python's own."""
    try:
        with os.scandir(os.path.join(root, "src")) as entries:
            return not any(entry.name.endswith(".py") for entry in entries)
    except OSError:
        return False


def argv(plan: Dict[str, Any], job: JobFolder) -> List[str]:
    """Return what the plan says for this host, as the deployed launch script's arguments."""
    host, master, start = plan["hosts"][plan["rank"]], plan["hosts"][0], plan.get("start") or {}
    arguments = [plan["launcher"], "--nnodes", str(len(plan["hosts"])), "--node-rank", str(plan["rank"])]
    arguments += ["--nproc-per-node", str(plan["nproc_per_node"])]
    arguments += ["--master-addr", master["address"], "--master-port", str(plan["master_port"])]
    arguments += ["--local-addr", host["address"]]
    arguments += ["--interface", host["interface"]] if host.get("interface") else []
    arguments += ["--log-dir", rank_logs(job, plan), "--job-id", job.id]
    # not the host's default, which a container does not have
    venv = plan["venv"] if start.get("container") else venv_of(plan, host)
    arguments += ["--venv", venv] if venv or start.get("container") else []
    if start.get("engine", _TORCHRUN) != _TORCHRUN:
        return [*arguments, "--engine", start["engine"], "--", *start["argv"]]
    arguments += ["--module", "yes"] if start.get("module") else []
    return [*arguments, "--", plan["script"], *plan["args"]]


_HCA = "NCCL_IB_HCA"


def nic_variables(host: Mapping[str, Any], env: Mapping[str, str]) -> Dict[str, str]:
    """Return the variable that names the NICs, unless the operator or NCCL's own files do."""
    if _HCA in env or not host.get("ib_hca"):
        return {}
    user_file = env.get("NCCL_CONF_FILE")
    if user_file is None:
        user_file = os.path.join(env.get("HOME") or login_home(), ".nccl.conf")
    names_nics = any(_names_it(path) for path in (user_file, "/etc/nccl.conf"))
    return {} if names_nics else {_HCA: host["ib_hca"]}


def _names_it(path: str) -> bool:
    return any(line.startswith(f"{_HCA}=") for line in read_text(path).split("\n"))
