"""What to do about each class of a job's end, in words that can be typed where there is something to type."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from nodectl.checks.gpu.xid import meaning
from nodectl.common.private import NO_PROJECT
from nodectl.model.job import Failure

_XID = re.compile(r"\bXid \([^)]*\): (\d+)")

# by class, in the order of the documentation: what it means, what to do ({host} is the one of the failure)
CLASSES: dict[str, tuple[str, str]] = {
    "gpu_out_of_memory": (
        "a GPU's memory is full",
        "take a smaller batch or sequence, or shard more; `nodectl facts -l {host}` names other programs on its GPUs",
    ),
    "host_out_of_memory": (
        "the host's memory, or the limit of its control group, is full",
        "take fewer data loader workers or a smaller cache; `nodectl exec -l {host} -- free -g` shows what is left",
    ),
    "shared_memory_full": (
        "/dev/shm is full",  # noqa: S108
        "take fewer data loader workers, or make /dev/shm larger (containers: --ipc=host or --shm-size)",
    ),
    "disk_full": (
        "a file system, or a quota, is full",
        "make room on {host}: `nodectl exec -l {host} -- df -h`; `nodectl jobs clean` removes what ended jobs left",
    ),
    "xid": ("the driver reported an error of the GPU (Xid)", "run `nodectl health -l {host}`"),
    "gpu_error": (
        "CUDA failed, without a report of the driver",
        "set CUDA_LAUNCH_BLOCKING=1 and launch again; if it stays on {host}: `nodectl health -l {host}`",
    ),
    "gpu_missing": (
        "there is no usable GPU for the rank",
        "run `nodectl health -l {host}`; compare --nproc-per-node with its GPUs",
    ),
    "collective_timeout": (
        "ranks waited in a collective that did not end",
        "look at what the named rank did; where it does that for long on purpose, raise the process group's timeout",
    ),
    "stopped": ("a rank was stopped by a signal", "find who sent it SIGSTOP; `kill -CONT` lets it go on"),
    "collective_mismatch": (
        "ranks called different collectives, or with different sizes",
        "look at branches that depend on the rank; TORCH_DISTRIBUTED_DEBUG=DETAIL names the collective",
    ),
    "left_early": (
        "a rank ended with status 0 while others still worked",
        "let all ranks take the same number of steps (drop_last, or DDP's join), and end together",
    ),
    "communication": (
        "connections between ranks broke, and nothing says why",
        "run `nodectl probe tcp`; look at the other hosts' logs",
    ),
    "rendezvous": (
        "ranks did not find each other in time",
        "look whether all hosts started; `nodectl launch` tries the ports before the start",
    ),
    "network_interface": ("a library found no network interface to use", "name it with --interface"),
    "name_resolution": ("a name could not be resolved", "correct /etc/hosts or DNS on {host}"),
    "port_in_use": (
        "a port that the program wants is taken",
        "launch again; ports that the script chooses itself must differ by job",
    ),
    "host_lost": (
        "a host, or the way to it, is gone",
        "see whether it runs; `nodectl health -l {host}` when it is back",
    ),
    "link": ("two hosts lost each other", "look at the network between them: `nodectl probe tcp`"),
    "killed_from_outside": (
        "somebody, or a program, sent the rank a signal",
        "ask who kills processes on {host}: a login, a cron job, earlyoom, systemd-oomd; `dmesg` tells of the kernel",
    ),
    "launcher_killed": (
        "torchrun itself was killed",
        "ask who kills processes on {host}: a login, a cron job, a service such as earlyoom or systemd-oomd",
    ),
    "crash": (
        "the program crashed in native code",
        "look at the place and the last words in the evidence; where it is always {host}: `nodectl health -l {host}`",
    ),
    "abort_at_exit": (
        "the script had ended, and libraries aborted the process as Python wound down",
        "end the process group before the script ends: dist.destroy_process_group(); it may come and go",
    ),
    "helper_killed": (
        "a process that the rank had started was killed",
        "take fewer or smaller data loader workers, none (num_workers=0) to see a crash; look at {host}'s kernel log",
    ),
    "version_mismatch": (
        "libraries, driver or Python do not fit together",
        "compare `nodectl facts -l {host}` with the other hosts",
    ),
    "import_error": (
        "a Python module, or a library, is not there",
        "install it in the environment that --venv names on {host}",
    ),
    "bad_argument": ("the script's arguments, or its configuration, are wrong", "correct what stands behind `--`"),
    "data_missing": ("a file or a data set is not there", "see whether its path exists on {host}, and is mounted"),
    "data_damaged": (
        "a file is damaged, or not what it should be",
        "compare its checksum on {host} with a good copy's",
    ),
    "download_failed": (
        "something could not be fetched from the network",
        "fetch it before the launch, and let the script use the copy",
    ),
    "checkpoint_mismatch": (
        "the checkpoint is of another model",
        "use the checkpoint of this model, or an empty --checkpoint folder",
    ),
    "permission": ("the login may not do that", "see owner and mode on {host}"),
    "limits": (
        "a limit of the login or the kernel was reached",
        "see `ulimit -a` on {host}; nodectl's role for limits raises them",
    ),
    "hardware_io": ("a file system or a device failed", "run `nodectl health -l {host}`; see its kernel log"),
    "not_a_number": ("the training diverged", "go back to an earlier checkpoint, with a lower learning rate"),
    "interrupted": (
        "the program was interrupted by a signal",
        "ask who sent it; SIGPIPE and signals of timers are the script's own: handle them there",
    ),
    "script_error": ("the script raised an exception", "correct the script; the traceback names the line"),
    "exit": (
        "the script ended itself with this status",
        "look at what it wrote before that: `nodectl jobs logs --host {host} last`",
    ),
    "checkpoint": ("checkpoints could not be copied or fetched", ""),
    "launcher": ("the launcher could not do its work", "look at its output: `nodectl jobs logs --host {host} last`"),
    "time_limit": ("the job's time limit was over", "launch again with a longer --time-limit, from its checkpoint"),
    "rebooted": ("the node was rebooted while the job ran there", "see why: `nodectl health -l {host}`"),
    "supervisor": ("nodectl's own process on the host ended", "ask who kills processes on {host}"),
}


# by exit status, where it was a signal of the kernel for a limit: SIGKILL, SIGXCPU and SIGXFSZ
_LIMITS = {
    **dict.fromkeys(
        (137, 152),
        "raise the limit of CPU time: `ulimit -t` on {host} shows the login's (limits.conf: cpu); a unit's LimitCPU="
        " or the script itself may set another",
    ),
    153: "raise the limit of a file's size: `ulimit -f` on {host} shows the login's (limits.conf: fsize)",
}


# torch's words where a library's compiled part is not for it, and where a backend that needs GPUs has none
_OPERATOR = re.compile(r"operator (\w+)::\w+ does not exist")
_NCCL_ALONE = re.compile(r"doesn't have NCCL built in|only supported with GPUs, no GPUs found")
_GLOO = 'without GPUs the backend is gloo: init_process_group("nccl" if torch.cuda.is_available() else "gloo")'

# as payload/jobs/kernel.py says it
_GROUP = re.compile(r"the control group (\S+) has (?:memory\.max|memory\.limit_in_bytes) (\d+ MiB)")
_PIDS = re.compile(r"the control group (\S+) has pids\.max (\d+)")
_NO_NUMBERS = (
    "call init_process_group without rank and world_size: it takes RANK and WORLD_SIZE, which the launcher sets"
)
_NO_INPUT = (
    "a rank has no terminal, and its standard input is empty: hand over by arguments or files what the script asks"
)

# as payload/jobs/stayed.py says it
_STAYED = re.compile(r"(.+) did not travel with the code: (.+)")


def _of_stayed(place: str, rule: str) -> str:
    if NO_PROJECT in rule:
        return "put the script and what it needs into a folder of their own, or name that folder: --code DIR"
    back = f"take it back with `!{place}` in .nodectlignore"
    if PurePosixPath(place).name.startswith(".env"):
        return f"hand its variables over with --env-file, or {back}"
    return f"{back}, or have it on the hosts and name its absolute path (--need sees to it before a start)"


def _of_operator(package: str) -> str:
    without = f"nodectl_overrides: {{stack: {{packages: {{{package}: null}}}}}}"
    return (
        f"this {package} is built for another torch (PyPI's is for CUDA): take the one for this torch; a script "
        f"that does without needs none ({without}, and provision)"
    )


def _of_group(path: str, limit: str) -> str:
    return (
        f"take fewer data loader workers or a smaller cache, or raise the limit of {limit} of the control group {path}:"
        " Slurm's --mem, a container's --memory, a unit's MemoryMax="
    )


def remedy_of(failure: Failure) -> str:
    """Return what to do; empty where there is nothing to say."""
    if failure.category == "xid":
        numbers = [int(number) for line in (*failure.evidence, failure.message) for number in _XID.findall(line)]
        if numbers:
            known = meaning(numbers[0])
            return f"Xid {numbers[0]}, {known.title}: {known.remedy}"
    places = [match for line in failure.evidence if (match := _STAYED.match(line))]
    if places:
        return _of_stayed(places[0][1], places[0][2])
    words = "\n".join((failure.message, *failure.evidence))
    if failure.category in ("host_out_of_memory", "helper_killed") and (group := _GROUP.search(words)):
        return _of_group(group[1], group[2])
    if failure.category == "limits" and (group := _PIDS.search(words)):
        return (
            f"start fewer threads and processes, or raise the limit of {group[2]} of the control group {group[1]}:"
            " a container's --pids-limit, a unit's TasksMax="
        )
    if "called init_process_group with" in failure.message:
        return _NO_NUMBERS
    if failure.rank is None and failure.category == "collective_timeout":
        return "compare what the ranks hand over to that call (src, dst, group); try the network: `nodectl probe tcp`"
    if "did not come to the store" in failure.message:
        return "compare MASTER_ADDR and MASTER_PORT of the ranks: the script, or what it loads, may set its own"
    if "EOF when reading a line" in failure.message:
        return _NO_INPUT
    if failure.category == "version_mismatch" and (operator := _OPERATOR.search(words)):
        return _of_operator(operator[1])
    if failure.category == "gpu_missing" and _NCCL_ALONE.search(words):
        return _GLOO
    remedy = CLASSES.get(failure.category, ("", ""))[1]
    if any("RLIMIT_CPU); how much" in line for line in failure.evidence):
        remedy = f"{_LIMITS[137]}; or {remedy}"
    if failure.category == "limits" and failure.kind in ("signal", "exit"):
        remedy = _LIMITS.get(failure.exit_status or 0, remedy)
    return remedy.replace("{host}", failure.host)
