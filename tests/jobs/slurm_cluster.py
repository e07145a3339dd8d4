"""A Slurm of Debian's packages on lab hosts: slurmctld on the first, slurmd and munged on each; nothing on the machine.

The packages are downloaded once into the lab's share, unpacked there, and copied into the hosts' own files.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import LabUnderTest

_PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")
SHARED = "/srv/shared"  # on all hosts, writable
_PRIVATE = "/etc/munge /var/log/munge /var/lib/munge"
_CONF = """\
ClusterName=lab
SlurmctldHost={first}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdLogFile=/var/log/slurmd.log
ReturnToService=2
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
KillWait=3
SlurmdTimeout=3600
NodeName={nodes} CPUs=2 RealMemory=1000 State=UNKNOWN
PartitionName=train Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
_INSTALL = f"""\
set -e
cp -a /srv/nodectl/slurm/usr/. /usr/
ldconfig
mkdir -p /etc/slurm /var/spool/slurmd /var/spool/slurmctld /run/munge {_PRIVATE} {SHARED} /opt/nodectl/bin
tar -xf - -C /etc/slurm --no-same-owner
mv /etc/slurm/munge.key /etc/munge/munge.key
chmod 700 {_PRIVATE}
chmod 600 /etc/munge/munge.key
chown -R root:root {_PRIVATE} /run/munge
mount --bind /srv/nodectl/@SHARE@ {SHARED}
mount -o remount,bind,rw {SHARED}
munged --force >/var/log/munged.start 2>&1 </dev/null
"""


def unpacked(share: Path) -> Path:
    """The packages' files, below the lab's share; skips the test, with the reason, where there are none to be had."""
    folder = share / "slurm"
    if (folder / "usr" / "sbin" / "slurmd").exists():
        return folder
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        pytest.skip("Slurm of Debian's packages needs apt-get and dpkg-deb")
    making = share / f".slurm-{os.getpid()}"
    making.mkdir(parents=True)
    try:
        for package in _download(making):
            subprocess.run(["dpkg-deb", "--extract", package, making / "root"], check=True)
        for name in ("slurmctld", "slurmd", "slurmstepd"):  # update-alternatives would make these
            (making / "root" / "usr" / "sbin" / name).symlink_to(f"{name}-wlm")
        if not folder.exists():  # another process may have been first
            (making / "root").rename(folder)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return folder


def _download(folder: Path) -> list[Path]:
    """Those packages, and what they need that this machine lacks."""
    argv = ["apt-get", "install", "--simulate", "--no-install-recommends", "-qq", *_PACKAGES]
    planned = subprocess.run(argv, capture_output=True, text=True, check=False)
    names = [line.split()[1] for line in planned.stdout.splitlines() if line.startswith("Inst ")]
    wanted = sorted({*names, *_PACKAGES, "slurm-wlm-basic-plugins"})
    argv = ["apt-get", "download", "-qq", *wanted]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    if planned.returncode or done.returncode:
        reason = (planned.stderr + done.stderr).strip().splitlines()
        pytest.skip(f"apt-get has no Slurm here: {reason[-1] if reason else 'no reason given'}")
    return sorted(folder.glob("*.deb"))


@dataclass(frozen=True, slots=True)
class SlurmCluster:
    """A Slurm on all hosts of a lab, which share the folder SHARED."""

    lab: LabUnderTest

    def ssh(self, command: str, host: int = 0) -> str:
        """Output of a shell command on a host, the first by default."""
        return self.lab.ssh(self.lab.hosts[host], command)


@contextmanager
def slurm_on(lab: LabUnderTest, share: Path, folder: Path) -> Iterator[SlurmCluster]:
    """Slurm on all hosts of a lab that is the test's own: its processes and files end with the lab."""
    unpacked(share)
    shared = share / f"slurm-shared-{os.getpid()}"
    shared.mkdir()
    try:
        conf = _CONF.format(first=lab.hosts[0], nodes=",".join(lab.hosts))
        (folder / "slurm.conf").write_text(conf)
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (folder / "munge.key").write_bytes(secrets.token_bytes(64))
        packed = subprocess.run(
            ["tar", "-C", folder, "-cf", "-", "slurm.conf", "cgroup.conf", "munge.key"], capture_output=True, check=True
        ).stdout
        for host in lab.hosts:
            argv = ["ssh", "-F", lab.ssh_config, host, _INSTALL.replace("@SHARE@", shared.name)]
            done = subprocess.run(argv, input=packed, capture_output=True, timeout=120, check=False)
            assert done.returncode == 0, done.stderr
        assert lab.ssh(lab.hosts[0], "slurmctld") == ""
        for host in lab.hosts:
            assert lab.ssh(host, f"slurmd -N {host}") == ""
        cluster = SlurmCluster(lab)
        said = cluster.ssh(f"for i in $(seq 300); do [ $(sinfo -h -N -t idle | wc -l) = {len(lab.hosts)} ] && exit; "
                           "sleep 0.2; done; sinfo -N; tail -n 5 /var/log/slurmctld.log")  # fmt: skip
        assert said == "", said
        yield cluster
    finally:
        shutil.rmtree(shared, ignore_errors=True)
