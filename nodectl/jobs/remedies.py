"""What to do about each class of a job's end, in words that can be typed where there is something to type."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nodectl.checks.gpu.xid import meaning
from nodectl.common.private import NO_PROJECT
from nodectl.model.finding import Finding, traces_first
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
    "straggler": (
        "a rank of the host was slower than the others, and a spare took its place",
        "run `nodectl health -l {host}` and `nodectl probe gemm`; compare its GPUs' clocks and limits with the others'",
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
        "look at what it wrote before that: `nodectl jobs logs --host {host} {job}`",
    ),
    "checkpoint": ("checkpoints could not be copied or fetched", ""),
    "launcher": ("the launcher could not do its work", "look at its output: `nodectl jobs logs --host {host} {job}`"),
    "time_limit": ("the job's time limit was over", "launch again with a longer --time-limit, from its checkpoint"),
    "rebooted": ("the node was rebooted while the job ran there", "see why: `nodectl health -l {host}`"),
    "supervisor": ("nodectl's own process on the host ended", "ask who kills processes on {host}"),
}


@dataclass(frozen=True, slots=True)
class Advice:
    """Say what to do about a message or evidence that matches `sign`; its groups are `{1}` and `{2}` of the remedy.

    `classes`: only failures of these; empty for all. `example`: a line that it is for. `of_nobody`: no rank is blamed.
    """

    example: str
    sign: str
    remedy: str
    classes: tuple[str, ...] = ()
    of_nobody: bool = False

    def find(self, failure: Failure, text: str) -> re.Match[str] | None:
        """Return the place in `text` that matches; None where this is advice about something else."""
        if (self.classes and failure.category not in self.classes) or (self.of_nobody and failure.rank is not None):
            return None
        return re.search(self.sign, text, re.MULTILINE)


_OF_MEMORY = ("host_out_of_memory", "helper_killed")
_TAKE_BACK = "take it back with `!{1}` in .nodectlignore"
_CPU_LIMIT = (
    "raise the limit of CPU time: `ulimit -t` on {host} shows the login's (limits.conf: cpu); a unit's LimitCPU="
    " or the script itself may set another"
)
# before the class's own remedy, the first that fits; the texts are those of payload/jobs (stayed, kernel, classify)
ADVICE = (
    Advice(
        f"data.py did not travel with the code: /home/me, the login's home {NO_PROJECT} leaves out data.py",
        rf"^(.+) did not travel with the code: .*{re.escape(NO_PROJECT)}",
        "put the script and what it needs into a folder of their own, or name that folder: --code DIR",
    ),
    Advice(
        "conf/.env did not travel with the code: .gitignore leaves out .env",
        r"^((?:.*/)?\.env[^/]*) did not travel with the code: ",
        f"hand its variables over with --env-file, or {_TAKE_BACK}",
    ),
    Advice(
        "data/a.bin did not travel with the code: .gitignore leaves out data/",
        r"^(.+) did not travel with the code: ",
        f"{_TAKE_BACK}, or have it on the hosts and name its absolute path (--need sees to it before a start)",
    ),
    Advice(
        "the control group /sys/fs/cgroup/job has memory.max 512 MiB, and memory.peak 512 MiB",
        r"the control group (\S+) has (?:memory\.max|memory\.limit_in_bytes) (\d+ MiB)",
        "take fewer data loader workers or a smaller cache, or raise the limit of {2} of the control group {1}:"
        " Slurm's --mem, a container's --memory, a unit's MemoryMax=",
        _OF_MEMORY,
    ),
    Advice(
        "the control group /sys/fs/cgroup/job has pids.max 40",
        r"the control group (\S+) has pids\.max (\d+)",
        "start fewer threads and processes, or raise the limit of {2} of the control group {1}:"
        " a container's --pids-limit, a unit's TasksMax=",
        ("limits",),
    ),
    Advice(
        "it called init_process_group with rank=0 and world_size=1, and was started as rank 1 of 3",
        "called init_process_group with",
        "call init_process_group without rank and world_size: it takes RANK and WORLD_SIZE, which the launcher sets",
    ),
    Advice(
        "rank 0, 2 did not go on from gloo:broadcast number 6",
        "",
        "compare what the ranks hand over to that call (src, dst, group); try the network: `nodectl probe tcp`",
        ("collective_timeout",),
        of_nobody=True,
    ),
    Advice(
        "it did not come to the store at which 2 other ranks waited",
        "did not come to the store",
        "compare MASTER_ADDR and MASTER_PORT of the ranks: the script, or what it loads, may set its own",
    ),
    Advice(
        "EOFError: EOF when reading a line",
        "EOF when reading a line",
        "a rank has no terminal, and its standard input is empty: hand over by arguments or files what the script asks",
        ("script_error",),
    ),
    # torch's words where a library's compiled part is not for it, and where a backend that needs GPUs has none
    Advice(
        "raised from RuntimeError: operator torchvision::nms does not exist",
        r"operator (\w+)::\w+ does not exist",
        "this {1} is built for another torch (PyPI's is for CUDA): take the one for this torch; a script that does"
        " without needs none (nodectl_overrides: {{stack: {{packages: {{{1}: null}}}}}}, and provision)",
        ("version_mismatch",),
    ),
    Advice(
        "ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
        r"doesn't have NCCL built in|only supported with GPUs, no GPUs found",
        'without GPUs the backend is gloo: init_process_group("nccl" if torch.cuda.is_available() else "gloo")',
        ("gpu_missing",),
    ),
    Advice(
        "killed by signal 24 (SIGXCPU): it used up the CPU time that its limit gives it",
        "the CPU time that its limit gives it",
        _CPU_LIMIT,
        ("limits",),
    ),
    Advice(
        "killed by signal 25 (SIGXFSZ): a file grew beyond the limit of its size",
        "beyond the limit of its size",
        "raise the limit of a file's size: `ulimit -f` on {host} shows the login's (limits.conf: fsize)",
        ("limits",),
    ),
    Advice(
        "the kernel kills it beyond 60 s of CPU time (RLIMIT_CPU); how much it had used is not known",
        r"RLIMIT_CPU\); how much",
        f"{_CPU_LIMIT}; or {{of_class}}",
    ),
)


def remedy_of(failure: Failure, job_id: str = "last") -> str:
    """Return what to do about a failure of this job; empty where there is nothing to say."""
    text = "\n".join((failure.message, *failure.evidence))
    of_class = CLASSES.get(failure.category, ("", ""))[1].format(host=failure.host, job=job_id)
    if failure.category == "xid" and (xid := _XID.search(text)):
        xid_meaning = meaning(int(xid[1]))
        host, status, action = failure.host, xid_meaning.severity, xid_meaning.action
        told = traces_first(Finding(host, "xid", status, action=action, remedy=xid_meaning.remedy))
        return f"Xid {xid[1]}, {xid_meaning.title}: {told.remedy}"
    for advice in ADVICE:
        if match := advice.find(failure, text):
            return advice.remedy.format("", *match.groups(), host=failure.host, of_class=of_class)
    return of_class
