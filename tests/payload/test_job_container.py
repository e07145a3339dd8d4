"""A job in a container: the command line of each engine, and an end for what an engine's daemon holds."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodectl.payload.jobs import container
from nodectl.payload.jobs.container import Place
from tests.payload.fleet import Fleet

PLACE = Place("/s/jobs/j", "/s/jobs/j/code/sub", ["/data", "/data/x", ""], ["/s/payload", "/bin/go"], True, 0, 0)
WORDS = ["/bin/go", "--nnodes", "2", "--", "train.py", "a b", "$(id)"]
COMMON = [
    *("--rm", "--pull=never", "--name=nodectl-j.1", "--network=host", "--ipc=host"),
]
MOUNTS = [
    *("--device=/dev/infiniband", "--workdir=/s/jobs/j/code/sub"),
    *("--mount=type=bind,source=/data,target=/data", "--mount=type=bind,source=/s/jobs/j,target=/s/jobs/j"),
    *("--mount=type=bind,source=/bin/go,target=/bin/go,readonly",),
    *("--mount=type=bind,source=/s/payload,target=/s/payload,readonly", "--env=NCCL_DEBUG", "--env=TOKEN"),
    *("--entrypoint=/bin/go", "img:1", *WORDS[1:]),
]


def argv(engine: str, place: Place = PLACE, *, gpus: bool = True) -> list[str]:
    names = container.handed_over(["TOKEN", "PATH", "NCCL_DEBUG", "HOME"], ["TOKEN"])
    asked = {"engine": engine, "image": "img:1", "gpus": gpus, "paths": []}
    return container.argv(asked, container.name("j", 1), place, names, WORDS)


def test_docker_gets_the_hosts_network_devices_and_limits_and_no_values() -> None:
    limits = ["--init", "--ulimit=memlock=-1:-1", "--ulimit=stack=67108864"]
    assert argv("docker") == ["docker", "run", *COMMON, *limits, "--gpus=all", *MOUNTS]
    plain = argv("docker", PLACE._replace(rdma=False, uid=1000, gid=100), gpus=False)
    assert plain == ["docker", "run", *COMMON, *limits, "--user=1000:100", *MOUNTS[1:]]


def test_podman_with_root_and_without() -> None:
    rest = ["--security-opt=label=disable", "--device=nvidia.com/gpu=all", *MOUNTS]
    assert argv("podman") == ["podman", "run", *COMMON, "--ulimit=memlock=-1:-1", *rest]
    own = ["--ulimit=host", "--userns=keep-id"]
    assert argv("podman", PLACE._replace(uid=1000)) == ["podman", "run", *COMMON, *own, *rest]


# as docker does, what runs is a child of a daemon; only `rm` ends it
DOCKER = """#!/bin/bash
echo "$@" >> {log}
if [ "$1" = rm ]; then kill -9 -- -"$(cat {pid})"; exit; fi
for word; do
  shift
  case $word in --entrypoint=*) program=${{word#*=}} ;; --workdir=*) cd "${{word#*=}}" ;; img:1) break ;; esac
done
setsid sh -c 'setsid "$@" & echo $! > {pid}' sh "$program" "$@" &
wait
while kill -0 "$(cat {pid})" 2> /dev/null; do sleep 0.1; done
"""


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/docker").write_text(DOCKER.format(log=tmp_path / "log", pid=tmp_path / "pid"))
    (tmp_path / "bin/docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    made = Fleet(tmp_path, 1)
    yield made
    made.close()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_stopped_job_leaves_nothing_with_the_daemon(fleet: Fleet, tmp_path: Path) -> None:
    asked: dict[str, Any] = {"engine": "docker", "image": "img:1", "gpus": False, "paths": []}
    mark = tmp_path / "rank"
    text = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(1000)"
    job_id = fleet.launch(text, plan_start={"container": asked}, nproc_per_node=1)
    fleet.wait(lambda: mark.exists() and bool(mark.read_text()))
    pid = int(mark.read_text())
    assert alive(pid) and fleet.report(0, job_id)["state"]["containment"]["container"][:3] == [
        "docker",
        "rm",
        "--force",
    ]
    assert fleet.ctl(0, "stop", job_id).returncode == 0
    until = time.monotonic() + 30
    while alive(pid):
        assert time.monotonic() < until, "the daemon's process is still there"
        time.sleep(0.1)
    said = (tmp_path / "log").read_text().splitlines()
    assert f"--name=nodectl-{job_id}.0" in said[0] and said[-1] == f"rm --force nodectl-{job_id}.0"
