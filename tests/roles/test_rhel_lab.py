"""`nodectl provision` of a host that has dnf: the machine's own namespaces, with the files of a Rocky Linux 9.8.

The lab host has no dpkg any more, but os-release, dnf's configuration and an empty rpm database; dnf and rpm are
Debian's. Packages of the tests' repository (they hold no file) are installed for real. Nothing of RHEL is booted: there
is neither its systemd, nor SELinux, nor a kernel of its own.
"""

import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import Any

import pytest

from nodectl.common.resources import share_dir
from tests.conftest import Cli, LabUnderTest
from tests.playbooks import ansible_playbook
from tests.profiles.combinations import A100
from tests.rpm_repo import Repository, build
from tests.rpm_repo.build import PROGRAMS

pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,  # a minute; what dnf itself does with packages is in test_nvidia_dnf.py
    pytest.mark.skipif(not all(map(shutil.which, PROGRAMS)), reason=f"needs {', '.join(PROGRAMS)} (scripts/setup.sh)"),
]

PLACE = "/opt/rpm-repository"
KERNEL = "5.14.0-687.51.1.el9_8.x86_64"
TAGS = "nvidia_repository,nvidia_driver,cuda,cudnn,nccl,fabric_manager,dcgm,rdma"
DRESS = rf"""
set -e
mkdir -p /opt/kept /etc/pki/rpm-gpg /etc/dnf/modules.d /etc/yum.repos.d /opt/nodectl /var/lib/rpm
mv /var/lib/dpkg/status /opt/kept/
rm -f /etc/os-release
printf 'ID="rocky"\nVERSION_ID="9.8"\nID_LIKE="rhel centos fedora"\nPLATFORM_ID="platform:el9"\n' > /etc/os-release
printf '[main]\ngpgcheck=1\nbest=True\nclean_requirements_on_remove=True\n' > /etc/dnf/dnf.conf
printf '[main]\nenabled=0\n' > /etc/dnf/plugins/local.conf
: > /etc/dnf/plugins/versionlock.list
printf '[system]\nname=x\nbaseurl=file://{PLACE}/system\ngpgcheck=1\n' > /etc/yum.repos.d/system.repo
echo gpgkey=file://{PLACE}/key.pub >> /etc/yum.repos.d/system.repo
dnf -y -q install make
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return build(tmp_path_factory.mktemp("rpms"))


@pytest.fixture(scope="module")
def rocky(nodectl: Cli, lab_machine: None, repository: Repository) -> Iterator[LabUnderTest]:
    """One host of its own, since packages stay on it; the repository lies on it."""
    packed = BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(repository.folder.parent, arcname=PLACE)
    with nodectl.lab(f"rocky-{os.getpid()}", 1) as lab:
        command = ["ssh", "-F", lab.ssh_config, lab.hosts[0], f"tar -C / -x && {{ {DRESS} }}"]
        subprocess.run(command, input=packed.getvalue(), check=True)
        yield lab


@pytest.fixture(scope="module")
def extra(repository: Repository, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The host's variables: a DGX A100 with a stack of CUDA 12.8."""
    driver: dict[str, Any] = {"version": None, "flavour": None, "origin": "none", "from": [], "packages": []}
    boot = {"kernel": KERNEL, "headers": False, "free_mib": None, "needed_mib": 0, "held": []}
    variables = {
        "nodectl_hardware": "dgx-a100",
        "nodectl_stack": "cu128",
        "nodectl_tuning": "stock",
        "nvidia_repo_baseurl": f"file://{PLACE}/nvidia",
        "nvidia_repo_keyring": str(repository.key_file),
        "nodectl_recorded_look": {
            "gpus": [A100] * 8,
            "nvswitch": True,
            "systemd": False,
            "container": None,
            "kernel": KERNEL,
            "secure_boot": False,
            "driver": driver,
            "boot": boot,
        },
    }
    file = tmp_path_factory.mktemp("extra") / "vars.json"
    file.write_text(json.dumps(variables))
    return f"@{file}"


def site(lab: LabUnderTest, extra: str, cli_env: Mapping[str, str]) -> str:
    """All of site.yml but PyTorch; the look at the end finds neither adapters nor what real packages hold."""
    words = ("-i", lab.inventory, "-l", lab.hosts[0], "-e", extra, "playbooks/site.yml", "--tags", TAGS)
    done = ansible_playbook(*words, cwd=share_dir(), env={**cli_env, "ANSIBLE_NOCOLOR": "1", "LC_ALL": "C.UTF-8"})
    return done.stdout + done.stderr


def test_packages_come_are_locked_and_a_second_run_changes_nothing(
    rocky: LabUnderTest, extra: str, cli_env: dict[str, str]
) -> None:
    host = rocky.hosts[0]
    output = site(rocky, extra, cli_env)
    wrong = set(re.findall(r"failed (\w+):", output.partition("PLAY RECAP")[0]))
    assert wrong == {"fabric_manager_version", "ib_count"}, output[-4000:]
    listed = set(rocky.ssh(host, "rpm -qa --queryformat '%{NAME}-%{VERSION}\\n'").split())
    assert {
        *("nvidia-open-580.126.20", "kmod-nvidia-open-dkms-580.126.20", "nvidia-fabricmanager-580.126.20"),
        *("cuda-toolkit-12-8-12.8.1", "libcudnn9-cuda-12-9.10.2.21", "libcudnn9-devel-cuda-12-9.10.2.21"),
        *("datacenter-gpu-manager-4-cuda12-4.4.1", "dkms-3.2.2", "kernel-devel-5.14.0"),
        "python3-dnf-plugin-versionlock-4.3.0",
        *("rdma-core-57.0", "libibverbs-utils-57.0", "perftest-25.04.0.0.84", "infiniband-diags-57.0"),
    } <= listed
    locks = set(rocky.ssh(host, "cat /etc/dnf/plugins/versionlock.list").split())
    assert {"nvidia-open-3:580.126.20-1.el9.*", "nvidia-fabricmanager-0:580.126.20-1.*"} <= locks
    assert {"libcudnn9-cuda-12-0:9.10.2.21-1.*", "cuda-toolkit-12-8-0:12.8.1-1.*"} <= locks
    again = site(rocky, extra, cli_env)
    assert "changed=0 " in again.partition("PLAY RECAP")[2], again[-4000:]
    assert "Nothing to do" in rocky.ssh(host, "dnf -y upgrade")


def test_rollback_takes_packages_locks_and_files_back(nodectl: Cli, rocky: LabUnderTest) -> None:
    host = rocky.hosts[0]
    done = nodectl("-i", rocky.inventory, "rollback", "--yes", "--packages", check=False, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert rocky.ssh(host, "rpm -qa --queryformat '%{NAME}\\n' | grep -v gpg-pubkey").split() == ["make"]
    assert rocky.ssh(host, "cat /etc/dnf/plugins/versionlock.list; ls /etc/dnf/modules.d").strip() == ""
    assert "nodectl" not in rocky.ssh(host, "ls /etc/yum.repos.d /etc/pki/rpm-gpg || true")
