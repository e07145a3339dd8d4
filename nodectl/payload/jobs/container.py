"""The command line that runs the launch script in a container: `launch --dry-run` shows it, the supervisor runs it."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, NamedTuple, Sequence

DOCKER, PODMAN, APPTAINER = ENGINES = ("docker", "podman", "apptainer")
_OWN = ("NODECTL_", "NCCL_", "TORCH_", "GLOO_")
_NAMES = ("PYTHONPATH", "PYTHONUNBUFFERED")
_STACK_BYTES = 64 << 20


class Place(NamedTuple):
    """The host as a container sees it: the job's folder, the working directory, mounted folders, devices, the user."""

    job: str
    cwd: str
    folders: List[str]
    programs: List[str]
    rdma: bool
    uid: int
    gid: int


def name(job_id: str, rank: int) -> str:
    """Return the name by which the engine knows the job's container on this host."""
    return f"nodectl-{job_id}.{rank}"


def handed_over(env: Iterable[str], asked: Sequence[str]) -> List[str]:
    """Return the names of the variables passed into the container; their values never appear on a command line."""
    return sorted(name for name in env if name in asked or name in _NAMES or name.startswith(_OWN))


def argv(
    container: Dict[str, Any], called: str, place: Place, variables: Sequence[str], command: List[str]
) -> List[str]:
    """Return the argv that runs `command` (the launch script) in a container with the host's network, GPUs and RDMA."""
    if container["engine"] == APPTAINER:
        # it keeps the host's network, devices, limits and variables by itself
        binds = _once([place.job, place.cwd, *place.folders, *place.programs])
        start = ["apptainer", "exec", *(["--nv"] if container["gpus"] else []), f"--pwd={place.cwd}"]
        return [*start, *(f"--bind={path}" for path in binds), container["image"], *command]
    start = [container["engine"], "run", "--rm", "--pull=never", f"--name={called}", "--network=host", "--ipc=host"]
    if container["engine"] == DOCKER:
        start += ["--init", "--ulimit=memlock=-1:-1", f"--ulimit=stack={_STACK_BYTES}"]
        start += ["--gpus=all"] if container["gpus"] else []
        start += [f"--user={place.uid}:{place.gid}"] if place.uid else []
    else:  # the login's own limit holds, which preflight looks at and only root can raise
        start += ["--ulimit=host", "--userns=keep-id"] if place.uid else ["--ulimit=memlock=-1:-1"]
        start += ["--security-opt=label=disable"]
        start += ["--device=nvidia.com/gpu=all"] if container["gpus"] else []
    start += ["--device=/dev/infiniband"] if place.rdma else []
    start += [f"--workdir={place.cwd}"]
    folders = _once([place.job, place.cwd, *place.folders])
    start += [f"--mount=type=bind,source={path},target={path}" for path in folders]
    start += [f"--mount=type=bind,source={path},target={path},readonly" for path in _once(place.programs)]
    start += [f"--env={name}" for name in variables]
    return [*start, f"--entrypoint={command[0]}", container["image"], *command[1:]]


def _once(paths: Iterable[str]) -> List[str]:
    kept: List[str] = []
    for path in sorted(set(filter(None, paths)), key=len):
        if not any(path == other or path.startswith(other.rstrip("/") + "/") for other in kept):
            kept.append(path)
    return kept
