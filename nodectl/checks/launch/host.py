"""What a host must have by itself before a job: a name, an address, programs, room, and nobody in the way.

In the order in which an operator would mend things.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.check import Check, Threshold, failed_unless, judges
from nodectl.checks.launch.candidate import Candidate, is_loopback
from nodectl.common.few import few
from nodectl.common.system_names import VIRTUAL
from nodectl.common.units import MIB
from nodectl.facts.gpus import Gpus
from nodectl.facts.job import (
    Folder,
    GpuUsers,
    JobVenv,
    Launcher,
    Names,
    NeededPaths,
    RdmaDevices,
    RunningJobs,
    SharedMemory,
)
from nodectl.facts.settings import SessionLimits
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.profiles.matrix import matrix
from nodectl.profiles.nccl import version_key

ORDER = 10


OWN_NAME = Check(
    "launch_own_name",
    fires="nothing, with several hosts; warning: nothing, with one; loopback, with several; unknown: no answer",
)


@judges(OWN_NAME, reads=("names", "job_address"))
def own_name(host: Candidate) -> Iterator[Finding]:
    """Judge what the host's own name means: programs that look it up die, and loopback misleads other hosts.

    A job of one host takes 127.0.0.1, for torchrun and gloo alike, where the name means nothing.
    """
    names, address = host.known("names", Names), host.address.address
    expected = f"{names.hostname} means an address of this host"
    actual = ", ".join(names.own or ())
    status, remedy = Status.OK, ""
    if names.own is None:
        status, actual = Status.UNKNOWN, "the name service did not answer in time"
        remedy = "mend /etc/resolv.conf, or name the host in /etc/hosts"
    elif not names.own:
        status, actual = Status.FAILED if host.hosts > 1 else Status.WARNING, "the name is unknown there"
        remedy = f"add a line '{address or 'ADDRESS'} {names.hostname}' to /etc/hosts of {host.host}"
    elif host.hosts > 1 and all(map(is_loopback, names.own)):
        status, actual = Status.WARNING, f"it means {actual}"
        remedy = (
            "the launch script passes the address, so this job can start; what looks the name up itself fails: "
            f"in /etc/hosts give {names.hostname} the address {address or 'that others reach'}"
        )
    yield host.finding(OWN_NAME, status, names.hostname, expected=expected, actual=actual, remedy=remedy)


INTERFACE = Check(
    "launch_interface",
    fires="down, of a container engine, virtual machine or VPN, or the named one has no address; unknown: not told",
    remedy="choose one that every host has with --interface",
)


@judges(INTERFACE, reads=("job_address",))
def interface(host: Candidate) -> Iterator[Finding]:
    """Judge the interface of the job: it needs one address of this host that the others reach."""
    address, asked = host.address, host.needs.interface
    expected = f"{asked} with an address, up" if asked else "an interface that the others reach, up"
    name = address.interface or asked or ""
    status, remedy = Status.OK, ""
    if not address.address:
        status = Status.FAILED if asked else Status.UNKNOWN
        lacking = (
            f"{name} has no address"
            if address.interface
            else f"no {'address in ' if '/' in name else ''}{name} there"
            if name
            else "cannot tell which"
        )
        actual = f"{lacking}; there are: {', '.join(address.interfaces) or 'no interface with an address'}"
    else:
        actual = f"{name or 'no interface'} {address.address}"
        if host.hosts > 1 and asked is None and name.startswith(VIRTUAL):
            status, actual = Status.FAILED, f"{actual}, which leads to no other host"
            remedy = "name the job's interface or network with --interface"
        elif host.hosts > 1 and not address.link_up:
            status, actual = Status.FAILED, f"{actual} is down"
            remedy = f"bring it up (cable, switch port, `ip link set {name} up`), or choose another with --interface"
    yield host.finding(INTERFACE, status, name, expected=expected, actual=actual, remedy=remedy)


LAUNCHER = Check("launch_script", fires="not there, or not executable")


@judges(LAUNCHER, reads=("launcher",))
def launcher(host: Candidate) -> Iterator[Finding]:
    """Judge the deployed launch script, through which the job starts."""
    script = host.known("launcher", Launcher)
    if not script.sha256:
        actual = "not there"
    else:
        actual = f"sha256 {script.sha256[:12]}" if script.executable else "not executable"
    yield host.finding(
        LAUNCHER,
        failed_unless(bool(script.sha256) and script.executable),
        expected=f"{host.needs.launcher}, executable",
        actual=actual,
        remedy=_provision(host),
    )


def _provision(host: Candidate) -> str:
    return f"run `nodectl provision --limit {host.host}`"


VENV = Check(
    "launch_venv",
    fires="no Python there, no torch, or beside GPUs one for CPUs",
)


@judges(VENV, reads=("job_venv", "gpu_count"))
def venv(host: Candidate) -> Iterator[Finding]:
    """Ranks run with the torch of the venv that provisioning made; a command brings what it needs."""
    if host.needs.venv is None or host.needs.engine == "command":
        return
    there = host.known("job_venv", JobVenv)
    actual = "no Python there"
    if there.python:
        actual = f"Python {there.python}, {f'torch {there.torch}' if there.torch else 'no torch'}"
    is_blind = bool(host.gpu_count) and (there.cuda == "none" or there.torch.endswith("+cpu"))
    status = failed_unless(bool(there.python and there.torch and not is_blind))
    expected = f"{host.needs.venv} with torch{' for CUDA' * is_blind}"
    remedy = f"{_provision(host)}, or name an environment that has it: --venv DIR"
    if host.variables.get("ansible_connection") == "local":
        remedy = f"activate an environment with torch, or name it: --venv DIR; or, as root, {_provision(host)}"
    yield host.finding(VENV, status, expected=expected, actual=actual, remedy=remedy)


CUDA = Check(
    "launch_cuda",
    fires="the driver is older than any that runs this major version of CUDA",
)


@judges(CUDA, reads=("job_venv", "gpus"))
def cuda(host: Candidate) -> Iterator[Finding]:
    """Within one major version of CUDA an older driver runs newer programs; never across."""
    there, gpus = host.known("job_venv", JobVenv), host.fact("gpus", Gpus)
    row = matrix().cuda_row(there.cuda if there.cuda[:1].isdigit() else None)
    if row is None or host.needs.engine == "command" or gpus is None or not (gpus.count and gpus.driver_version):
        return
    key = version_key(gpus.driver_version)
    older = [one.major for one in matrix().cuda if version_key(one.min_driver) <= key]
    other = f"a torch built for CUDA {max(older)}" if older else "a torch built for an older CUDA"
    expected = f"driver {row.min_driver} or later, for CUDA {row.major} of torch {there.torch} in {host.needs.venv}"
    remedy = f"{other} (--venv DIR), or a newer driver there; with NVIDIA's cuda-compat in use: --skip cuda"
    status = failed_unless(key >= version_key(row.min_driver))
    yield host.finding(CUDA, status, expected=expected, actual=f"driver {gpus.driver_version}", remedy=remedy)


ENGINE = Check("launch_engine", fires="it is not there")


@judges(ENGINE, reads=("job_venv",))
def engine(host: Candidate) -> Iterator[Finding]:
    """DeepSpeed and Accelerate start ranks by what lies beside torch."""
    name = host.needs.engine
    if host.needs.venv is not None and name in ("deepspeed", "accelerate"):
        version = host.known("job_venv", JobVenv).engine
        remedy = f"install {name} into that environment on {host.host}, or name another one with --venv"
        status, expected = failed_unless(bool(version)), f"{name} in {host.needs.venv}"
        yield host.finding(ENGINE, status, expected=expected, actual=version or "not there", remedy=remedy)


NEEDED_PATHS = Check("launch_paths", fires="not there, or not readable")


@judges(NEEDED_PATHS, reads=("needed_paths",))
def needed_paths(host: Candidate) -> Iterator[Finding]:
    """Judge the paths of --need: data that one of many hosts lacks ends the job when it is first read."""
    errors = host.known("needed_paths", NeededPaths).errors
    for path, _ in host.needs.paths:
        error = errors[path]
        remedy = f"mount or copy {path} there, or leave {host.host} out with --limit"
        status, actual = failed_unless(not error), f"{path}: {error or 'there'}"
        yield host.finding(NEEDED_PATHS, status, path, expected=f"{path}, readable", actual=actual, remedy=remedy)


STATE_FOLDER = Check(
    "launch_state_folder",
    fires="cannot be written, or less room than code and logs need",
)


@judges(STATE_FOLDER, reads=("state_folder",))
def state_folder(host: Candidate) -> Iterator[Finding]:
    """Judge the room where the job's code and logs go."""
    folder = host.known("state_folder", Folder)
    yield _folder(host, STATE_FOLDER, folder.path, folder, host.needs.min_free_mib + -(-host.needs.code_bytes // MIB))


CHECKPOINT_FOLDER = Check("launch_checkpoint_folder", fires="cannot be written, or nearly full")


@judges(CHECKPOINT_FOLDER, reads=("checkpoint_folder",))
def checkpoint_folder(host: Candidate) -> Iterator[Finding]:
    """Checkpoints go there."""
    if host.needs.checkpoint_dir is not None:
        folder = host.known("checkpoint_folder", Folder)
        yield _folder(host, CHECKPOINT_FOLDER, host.needs.checkpoint_dir, folder, host.needs.min_free_mib)


def _folder(host: Candidate, check: Check, path: str, folder: Folder, needed_mib: int) -> Finding:
    status, actual, remedy = Status.OK, f"{folder.free_mib} MiB free", ""
    if folder.error:
        status, actual = Status.FAILED, folder.error
        remedy = f"make room or give the login user the right to write {path} on {host.host}"
    elif folder.free_mib is None:
        status, actual, remedy = Status.UNKNOWN, "free space cannot be told", f"look at `df {path}` on {host.host}"
    elif folder.free_mib < needed_mib:
        status = Status.FAILED
        remedy = f"make room on {host.host}; `nodectl jobs clean` removes what ended jobs left"
    expected = f"can be written, {needed_mib} MiB free"
    return host.finding(check, status, path, expected=expected, actual=actual, remedy=remedy)


GPUS = Check(
    "launch_gpus",
    fires="unknown: the driver does not answer",
    expected="the driver lists its GPUs",
)


@judges(GPUS, reads=("gpu_count",))
def gpus(host: Candidate) -> Iterator[Finding]:
    """Judge whether the driver answers: silence must not read as a host without GPUs."""
    if host.gpu_count is None:
        actual = "nvidia-smi does not answer, or a GPU is lost"
        remedy = f"run `nvidia-smi -L` on {host.host}; a reboot may be needed"
        yield host.finding(GPUS, Status.UNKNOWN, actual=actual, remedy=remedy, action="reboot")
    else:
        yield host.finding(GPUS, Status.OK, actual=str(host.gpu_count))


GPU_USERS = Check(
    "launch_gpu_users",
    fires="warning: a program computes on a GPU, whoever's",
    expected="no program on the GPUs",
)


@judges(GPU_USERS, reads=("gpu_count", "gpu_users"))
def gpu_users(host: Candidate) -> Iterator[Finding]:
    """Judge who computes on the GPUs: he takes memory and time from the job, or dies of it."""
    processes = host.known("gpu_users", GpuUsers).processes
    if not host.gpu_count:
        return
    if not processes:
        yield host.finding(GPU_USERS, Status.OK, actual="none")
        return
    remedy = f"ask whose it is, end it, or leave {host.host} out with --limit"
    yield host.finding(GPU_USERS, Status.WARNING, actual=few(processes, 3), remedy=remedy)


SHM_LIMIT = Threshold("launch_shm_mib", 65, "container engines give 64, and NCCL then fails on its second rank")
SHARED_MEMORY = Check(
    "launch_shared_memory",
    fires="warning: smaller than NCCL needs; unknown: none there",
    expected=f"{SHM_LIMIT.value:g} MiB or more in /dev/shm",
    remedy="enlarge it: `mount -o remount,size=50% /dev/shm`, or --shm-size of the container",
    thresholds=(SHM_LIMIT,),
)


@judges(SHARED_MEMORY, reads=("shared_memory",))
def shared_memory(host: Candidate) -> Iterator[Finding]:
    """Ranks of one host talk through /dev/shm."""
    size_mib = host.known("shared_memory", SharedMemory).size_mib
    if size_mib is None:
        actual, remedy = "no /dev/shm can be looked at", "mount a tmpfs at /dev/shm"
        yield host.finding(SHARED_MEMORY, Status.UNKNOWN, actual=actual, remedy=remedy)
        return
    status = Status.OK if size_mib >= host.threshold(SHM_LIMIT) else Status.WARNING
    yield host.finding(SHARED_MEMORY, status, actual=f"{size_mib} MiB")


LOCKED_MEMORY = Check("launch_locked_memory", fires="warning: limited", expected="unlimited")


@judges(LOCKED_MEMORY, reads=("rdma_devices", "limits"))
def locked_memory(host: Candidate) -> Iterator[Finding]:
    """RDMA pins its buffers, in this very session."""
    devices, limits = host.known("rdma_devices", RdmaDevices).names, host.fact("limits", SessionLimits)
    if not devices:
        return
    if limits is None:
        yield from host.unread(LOCKED_MEMORY, host.facts.get("limits"))
    elif limits.memlock == "unlimited":
        yield host.finding(LOCKED_MEMORY, Status.OK, actual="unlimited")
    else:
        remedy = f"run `nodectl provision --tags limits --limit {host.host}`"
        names, actual = ", ".join(devices), f"{limits.memlock} KiB"
        yield host.finding(LOCKED_MEMORY, Status.WARNING, names, actual=actual, remedy=remedy)


OTHER_JOBS = Check("launch_other_jobs", fires="warning: another one runs", expected="no other job")


@judges(OTHER_JOBS, reads=("running_jobs",))
def other_jobs(host: Candidate) -> Iterator[Finding]:
    """Two jobs on one host share its cores, GPUs and links."""
    jobs = host.known("running_jobs", RunningJobs)
    if not jobs.ids:
        yield host.finding(OTHER_JOBS, Status.OK, actual="none")
        return
    remedy = f"both will be slower; `nodectl jobs stop {jobs.ids[0]}` of its login ends the first of them"
    yield host.finding(OTHER_JOBS, Status.WARNING, actual=", ".join(jobs.ids), remedy=remedy)
