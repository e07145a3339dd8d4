"""Hosts of RHEL's kind: packages by rpm, locks of versionlock and dnf's sources, as the facts' own programs tell."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nodectl.checks.check import Subject
from nodectl.checks.judge import judge
from nodectl.common import node_paths
from nodectl.facts.catalogue import commands_for, facts_named
from nodectl.facts.kernel import Kernel
from nodectl.facts.packages import Packages
from nodectl.model.host import Host
from nodectl.profiles.resolve import resolve
from tests.facts.recorded import fact

WANTED = resolve("dgx-a100", "cu121", "stock")
ROCKY = Kernel("Linux", "5.14.0", "x86_64", "rocky", "9.8", "Rocky Linux 9.8")
ROWS = {
    "cuda-toolkit-12-1": "cuda-toolkit-12-1\t0\t12.1.1-1\tx86_64\n",
    "libcudnn8": "libcudnn8\t0\t8.9.0.131-1.cuda12.1\tx86_64\n",
    "libcudnn8-devel": "libcudnn8-devel\t0\t8.9.0.131-1.cuda12.1\tx86_64\n",
    "libnccl": "libnccl\t0\t2.17.1-1+cuda12.1\tx86_64\n",
    "libnccl-devel": "libnccl-devel\t0\t2.17.1-1+cuda12.1\tx86_64\n",
    "datacenter-gpu-manager-4-cuda12": "datacenter-gpu-manager-4-cuda12\t1\t4.4.1-1\tx86_64\n",
}
LOCKS = "".join(f"lock\t{name}-{row.split()[1]}:{row.split()[2]}.*\n" for name, row in ROWS.items())


def told(check: str, text: str, variables: dict[str, Any] | None = None) -> dict[str, tuple[str, str]]:
    facts = {"packages": fact("packages", packages=text), "kernel": ROCKY}
    found = judge(Subject("h", facts, WANTED, variables=variables or {}))
    return {each.subject: (each.status.value, each.remedy) for each in found if each.check == check}


@pytest.mark.parametrize("check", ["cuda", "cudnn", "nccl", "dcgm"])
def test_packages_of_rpm_have_their_names_versions_and_locks(check: str) -> None:
    answers = told(check, "".join(ROWS.values()) + LOCKS)
    assert answers and {status for status, _ in answers.values()} == {"ok"} and set(answers) <= set(ROWS)
    unlocked = told(check, "".join(ROWS.values()))
    assert {status for status, _ in unlocked.values()} == {"warning"}
    assert all(remedy.startswith("`dnf versionlock add ") for _, remedy in unlocked.values())
    assert {status for status, _ in told(check, "x\t0\t1-1\tnoarch\n").values()} == {"failed"}


@pytest.mark.parametrize(
    ("lock", "held"),
    [
        ("nvidia-open-3:580.126.20-1.el9.*", True),
        ("nvidia-open-580.126.20-1.el9", True),
        ("nvidia-open-580.126.20", True),
        ("*nvidia*580*", True),
        ("nvidia-open", False),
        ("nvidia-open-3:580.105.08-1.el9.*", False),
        ("!nvidia-open-3:580.126.20-1.el9.*", False),
    ],
)
def test_a_lock_keeps_what_it_names_in_its_version(lock: str, held: bool) -> None:
    packages: Packages = fact(
        "packages",
        packages=f"nvidia-open\t3\t580.126.20-1.el9\tnoarch\nlock\t{lock}\n"
        if lock[0] != "!"
        else "nvidia-open\t3\t580.126.20-1.el9\tnoarch\n",
    )
    package = packages.installed["nvidia-open"]
    assert (package.version, package.held, package.is_driver) == ("580.126.20-1.el9", held, True)


def run(subject: str, tmp_path: Path, programs: dict[str, str], changes: dict[str, str]) -> str:
    """What the fact's program prints on a host that has these programs; paths below `/` are those of the test."""
    (command,) = commands_for(Host("a", "a"), facts_named(subject))
    script = command.argv[2]
    for old, new in changes.items():
        assert old in script
        script = script.replace(old, new)
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("awk", "sed", "uname", "cat", "sh"):
        (folder / name).symlink_to(f"/usr/bin/{name}")
    for name, text in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    argv = ["/bin/sh", "-c", script, *command.argv[3:]]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env={**os.environ, "PATH": str(folder)})
    return done.stdout


def test_the_fact_asks_rpm_where_there_is_no_dpkg(tmp_path: Path) -> None:
    (tmp_path / "locks").write_text("# by hand\nlibnccl-0:2.17.1-1.*\n!perftest-0:1-1.*\n\n")
    text = run(
        "packages",
        tmp_path,
        {"rpm": "printf 'libnccl\\t0\\t2.17.1-1\\tx86_64\\n'"},
        {node_paths.ROOT: str(tmp_path), "/etc/dnf/plugins/versionlock.list": str(tmp_path / "locks")},
    )
    packages: Packages = fact("packages", packages=text)
    assert {name: each.held for name, each in packages.installed.items()} == {"libnccl": True}


REPO = """# NVIDIA's own file
[cuda-rhel9-x86_64]
name=cuda-rhel9-x86_64
baseurl = https://developer.download.nvidia.com/compute/cuda/repos/rhel$releasever/x86_64
enabled=1
gpgcheck={check}

[off]
baseurl=https://developer.download.nvidia.com/compute/cuda/repos/rhel8/x86_64
enabled=0
"""


@pytest.mark.parametrize(("check", "status"), [("1", "ok"), ("0", "failed")])
def test_sources_of_dnf_are_told_and_judged(tmp_path: Path, check: str, status: str) -> None:
    (tmp_path / "cuda.repo").write_text(REPO.format(check=check))
    (tmp_path / "os-release").write_text('ID="rocky"\nVERSION_ID="9.8"\n')
    changes = {"cd /etc/yum.repos.d": f"cd {tmp_path}", ". /etc/os-release": f". {tmp_path}/os-release"}
    text = run("nvidia_repository", tmp_path, {"dnf": "exit 1"}, changes)
    repository = fact("nvidia_repository", nvidia_repository=text)
    found = judge(Subject("h", {"nvidia_repository": repository}, WANTED))
    told = {each.subject: each.status.value for each in found if each.check == "nvidia_repository"}
    assert told == {"https://developer.download.nvidia.com/compute/cuda/repos": "ok", "signatures": status}, text
