"""What a host must have by itself before a job: a name, an address, programs, room, and nobody in the way."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from nodectl.model.finding import Finding
from nodectl.model.preflight import NodeInfo, PreflightRequest
from nodectl.model.status import Status

_MIB = 1024 * 1024
_MIN_SHM_MIB = 65  # container engines give 64, and NCCL then fails on its second rank


def host_findings(node: NodeInfo, request: PreflightRequest, hosts: int) -> Iterator[Finding]:
    """One finding a check, in the order in which an operator would mend things."""
    yield own_name(node, hosts)
    yield interface(node, request, hosts)
    yield launcher(node, request)
    if request.venv is not None:
        yield venv(node, request.venv)
    yield state_folder(node, request)
    if request.checkpoint_dir is not None:
        yield checkpoint_folder(node, request)
    yield gpus(node)
    yield shared_memory(node)
    if node.rdma_devices:
        yield locked_memory(node)
    yield other_jobs(node)


def own_name(node: NodeInfo, hosts: int) -> Finding:
    """torchrun dies where the own name means nothing; where it means loopback, others are sent to themselves."""
    expected = f"{node.hostname} means an address of this host"
    if node.own_addresses is None:
        return Finding(
            node.host,
            "own_name",
            Status.UNKNOWN,
            node.hostname,
            expected=expected,
            actual="the name service did not answer in time",
            remedy="mend /etc/resolv.conf, or name the host in /etc/hosts",
        )
    addresses = ", ".join(node.own_addresses)
    if not addresses:
        return Finding(
            node.host,
            "own_name",
            Status.FAILED,
            node.hostname,
            expected=expected,
            actual="the name is unknown there",
            remedy=f"add a line '{node.address or 'ADDRESS'} {node.hostname}' to /etc/hosts of {node.host}",
        )
    if hosts > 1 and all(is_loopback(one) for one in node.own_addresses):
        return Finding(
            node.host,
            "own_name",
            Status.WARNING,
            node.hostname,
            expected=expected,
            actual=f"it means {addresses}",
            remedy="the launch script passes the address, so this job can start; what looks the name up itself fails: "
            f"in /etc/hosts give {node.hostname} the address {node.address or 'that others reach'}",
        )
    return Finding(node.host, "own_name", Status.OK, node.hostname, expected=expected, actual=addresses)


def is_loopback(address: str) -> bool:
    """`address` may carry a zone, as in fe80::1%eth0."""
    return ipaddress.ip_address(address.split("%")[0]).is_loopback


def interface(node: NodeInfo, request: PreflightRequest, hosts: int) -> Finding:
    """The job needs one address of this host that the others reach."""
    have = ", ".join(node.interfaces) or "no interface with an address"
    expected = (
        f"{request.interface} with an address, up" if request.interface else "an interface that the others reach, up"
    )
    subject = node.interface or request.interface or ""
    if not node.address:
        actual = (
            f"{subject} has no address"
            if node.interface
            else (f"no {subject} there" if subject else "cannot tell which")
        )
        status = Status.FAILED if request.interface else Status.UNKNOWN
        return Finding(
            node.host,
            "interface",
            status,
            subject,
            expected=expected,
            actual=f"{actual}; there are: {have}",
            remedy="choose one that every host has with --interface",
        )
    actual = f"{subject or 'no interface'} {node.address}"
    if hosts > 1 and not node.link_up:
        return Finding(
            node.host,
            "interface",
            Status.FAILED,
            subject,
            expected=expected,
            actual=f"{actual} is down",
            remedy=f"bring it up (cable, switch port, `ip link set {subject} up`), or choose another with --interface",
        )
    return Finding(node.host, "interface", Status.OK, subject, expected=expected, actual=actual)


def launcher(node: NodeInfo, request: PreflightRequest) -> Finding:
    """The job starts through the deployed launch script."""
    expected = f"{request.launcher}, executable"
    remedy = f"run `nodectl provision --limit {node.host}`"
    if not node.launcher_sha256:
        return Finding(node.host, "launcher", Status.FAILED, expected=expected, actual="not there", remedy=remedy)
    if not node.launcher_runs:
        return Finding(node.host, "launcher", Status.FAILED, expected=expected, actual="not executable", remedy=remedy)
    return Finding(node.host, "launcher", Status.OK, expected=expected, actual=f"sha256 {node.launcher_sha256[:12]}")


def venv(node: NodeInfo, path: str) -> Finding:
    """Ranks run with the torch of the venv that provisioning made."""
    expected = f"{path} with torch"
    remedy = f"run `nodectl provision --limit {node.host}`"
    if not node.venv_python:
        return Finding(node.host, "venv", Status.FAILED, expected=expected, actual="no Python there", remedy=remedy)
    if not node.torch:
        actual = f"Python {node.venv_python}, no torch"
        return Finding(node.host, "venv", Status.FAILED, expected=expected, actual=actual, remedy=remedy)
    actual = f"Python {node.venv_python}, torch {node.torch}"
    return Finding(node.host, "venv", Status.OK, expected=expected, actual=actual)


def state_folder(node: NodeInfo, request: PreflightRequest) -> Finding:
    """The job's code and logs go there."""
    needed_mib = request.min_free_mib + -(-request.code_bytes // _MIB)
    return _folder(node.host, "state_folder", node.state_dir, node.state_error, node.state_free_mib, needed_mib)


def checkpoint_folder(node: NodeInfo, request: PreflightRequest) -> Finding:
    """Checkpoints go there."""
    folder = request.checkpoint_dir or ""
    error, free = node.checkpoint_error, node.checkpoint_free_mib
    return _folder(node.host, "checkpoint_folder", folder, error, free, request.min_free_mib)


def _folder(host: str, check: str, folder: str, error: str, free_mib: int | None, needed_mib: int) -> Finding:
    expected = f"can be written, {needed_mib} MiB free"
    if error:
        return Finding(
            host,
            check,
            Status.FAILED,
            folder,
            expected=expected,
            actual=error,
            remedy=f"make room or give the login user the right to write {folder} on {host}",
        )
    if free_mib is None:
        return Finding(
            host,
            check,
            Status.UNKNOWN,
            folder,
            expected=expected,
            actual="free space cannot be told",
            remedy=f"look at `df {folder}` on {host}",
        )
    if free_mib < needed_mib:
        return Finding(
            host,
            check,
            Status.FAILED,
            folder,
            expected=expected,
            actual=f"{free_mib} MiB free",
            remedy=f"make room on {host}; `nodectl jobs clean` removes what ended jobs left",
        )
    return Finding(host, check, Status.OK, folder, expected=expected, actual=f"{free_mib} MiB free")


def gpus(node: NodeInfo) -> Finding:
    """A driver that does not answer must not read as a host without GPUs."""
    if node.gpu_count is None:
        return Finding(
            node.host,
            "gpus",
            Status.UNKNOWN,
            expected="the driver lists its GPUs",
            actual="nvidia-smi does not answer",
            remedy=f"run `nvidia-smi -L` on {node.host}; a reboot may be needed",
            action="reboot",
        )
    return Finding(node.host, "gpus", Status.OK, expected="the driver lists its GPUs", actual=str(node.gpu_count))


def shared_memory(node: NodeInfo) -> Finding:
    """Ranks of one host talk through /dev/shm."""
    expected = f"{_MIN_SHM_MIB} MiB or more in /dev/shm"
    if node.shm_mib is None:
        return Finding(
            node.host,
            "shared_memory",
            Status.UNKNOWN,
            expected=expected,
            actual="no /dev/shm can be looked at",
            remedy="mount a tmpfs at /dev/shm",
        )
    if node.shm_mib < _MIN_SHM_MIB:
        return Finding(
            node.host,
            "shared_memory",
            Status.WARNING,
            expected=expected,
            actual=f"{node.shm_mib} MiB",
            remedy="enlarge it: `mount -o remount,size=50% /dev/shm`, or --shm-size of the container",
        )
    return Finding(node.host, "shared_memory", Status.OK, expected=expected, actual=f"{node.shm_mib} MiB")


def locked_memory(node: NodeInfo) -> Finding:
    """RDMA pins its buffers, in this very session."""
    if node.memlock_kib is None:
        return Finding(node.host, "locked_memory", Status.OK, expected="unlimited", actual="unlimited")
    return Finding(
        node.host,
        "locked_memory",
        Status.WARNING,
        ", ".join(node.rdma_devices),
        expected="unlimited",
        actual=f"{node.memlock_kib} KiB",
        remedy=f"run `nodectl provision --tags limits --limit {node.host}`",
    )


def other_jobs(node: NodeInfo) -> Finding:
    """Two jobs on one host share its cores, GPUs and links."""
    if not node.running_jobs:
        return Finding(node.host, "other_jobs", Status.OK, expected="no other job", actual="none")
    return Finding(
        node.host,
        "other_jobs",
        Status.WARNING,
        expected="no other job",
        actual=", ".join(node.running_jobs),
        remedy=f"both will be slower; `nodectl jobs stop {node.running_jobs[0]}` ends the first of them",
    )
