"""The NVIDIA roles on a lab host: real apt and dpkg, packages of the real names that hold no NVIDIA software.

The host is Debian 12 without systemd and without a GPU, and is given Ubuntu 22.04's part of the test repository, since
only that has every layer: so this shows what apt and dpkg do with names, pins and holds, not that a GPU works.
"""

import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

import pytest

from tests.apt_repo import Repository, build
from tests.conftest import Cli, LabUnderTest

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(
        not all(map(shutil.which, ("apt-get", "dpkg-deb", "gpg"))), reason="needs apt, dpkg-deb and gpg"
    ),
]

PLACE = "/opt/nvidia-repository"
LAYERS = ("nvidia_repository", "nvidia_driver", "cuda", "cudnn", "nccl", "fabric_manager", "dcgm")
PLAY = """
- name: {name}
  hosts: all
  gather_facts: false
  vars: {variables}
  tasks:
{tasks}
"""
# everything that a check may not change: packages with their holds, and the files where the roles write
STATE = (
    "dpkg --get-selections | sort; "
    "find /etc /usr/local $(ls -d /var/lib/nodectl 2>/dev/null) -newer /etc/dpkg/dpkg.cfg.d/tests -type f"
)


def roles(names: tuple[str, ...], step: str = "main", name: str = "Roles", **variables: object) -> str:
    """A play of these roles; several in one file start Ansible once."""
    lines = [
        f"    - import_role: {{name: nodectl.fleet.{role}, tasks_from: {step}, rolespec_validate: false}}\n"
        for role in names
    ]
    return PLAY.format(name=name, variables=json.dumps(variables), tasks="".join(lines))


def noted(name: str) -> str:
    """A play that keeps the host's state in a variable."""
    task = {"ansible.builtin.raw": STATE, "register": name, "changed_when": False}
    return PLAY.format(name=f"State {name}", variables="{}", tasks=f"    - {json.dumps(task)}\n")


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return build(tmp_path_factory.mktemp("nvidia"), ["ubuntu2204"], archive=True)


@pytest.fixture(scope="module")
def gpu_host(nodectl: Cli, lab_machine: None, repository: Repository) -> Iterator[LabUnderTest]:
    """One host of its own, since packages stay on it; the repository lies on it."""
    packed = BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(repository.base_url_path, arcname=PLACE)
    # none of the packages needs the distribution, whose long lists would make each call of apt take seconds
    quick = "rm -rf /etc/apt/sources.list.d/* /var/lib/apt/lists/* /etc/apt/apt.conf.d/docker-clean"
    # the distribution's own source, as far as the roles need one; apt has read none yet, as on a fresh image
    distribution = f"echo 'deb [trusted=yes] file://{PLACE}/archive/x86_64/ /' > /etc/apt/sources.list"
    command = f"tar -C / -x && {quick} && {{ {distribution}; }} && echo force-unsafe-io > /etc/dpkg/dpkg.cfg.d/tests"
    with nodectl.lab(f"nvidia-{os.getpid()}", 1) as lab:
        subprocess.run(["ssh", "-F", lab.ssh_config, lab.hosts[0], command], input=packed.getvalue(), check=True)
        yield lab


@pytest.fixture
def variables(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    driver: dict[str, Any] = {"version": None, "flavour": None, "origin": "none", "from": [], "packages": []}
    return {
        "nvidia_repository_base_url": f"file://{PLACE}",
        "nvidia_repository_key_fingerprint": repository.fingerprint,
        "nvidia_repository_distribution": "ubuntu2204",
        "nvidia_repository_architecture": "x86_64",
        # what this host is not: see above
        "_nvidia_repository_node": {"os": {"id": "ubuntu", "version": "22.04"}, "architecture": "x86_64"},
        "nvidia_repository_driver_branch": "535",
        "nvidia_repository_pins": [
            {"names": ["libcudnn8"], "version": "8.6.0.163-1+cuda11.8"},
            {"names": ["libcudnn8-dev"], "version": "8.6.0.163-1+cuda11.8"},
            {"names": ["libnccl2"], "version": "2.12.7-1+cuda11.6", "nearest": True},
        ],
        "_nvidia_driver_node": {"driver": driver, "kernel": "6.1.0-0-test", "gpus": [{"address": "0000:07:00.0"}]},
        "nvidia_driver_mode": "manage",
        "nvidia_driver_packages": ["cuda-drivers-535", "cuda-drivers"],
        "nvidia_driver_branch": "535",
        "cuda_package": "cuda-toolkit-11-8",
        "cudnn_packages": {"libcudnn8": "8.6.0.163-1+cuda11.8", "libcudnn8-dev": "8.6.0.163-1+cuda11.8"},
        "cudnn_of_torch": "8.7.0.84",
        "nccl_packages": {"libnccl2": "2.12.7-1+cuda11.6"},
        "fabric_manager_wanted": True,
        "_fabric_manager_nvswitch": True,
        "fabric_manager_driver": "535.183.01",
        "_fabric_manager_systemd": False,
        "dcgm_packages": ["datacenter-gpu-manager-4-cuda12"],
        "_dcgm_systemd": False,
    }


def state(lab: LabUnderTest) -> str:
    """The host's state, for a test to compare."""
    return lab.ssh(lab.hosts[0], STATE)


def test_installed_held_and_then_nothing_left_to_do(
    ansible_play: Callable[..., Any], gpu_host: LabUnderTest, variables: dict[str, Any]
) -> None:
    host = gpu_host.hosts[0]
    same = (
        '    - ansible.builtin.assert: {that: ["before.stdout == checked.stdout", "first.stdout == second.stdout"]}\n'
    )
    made = ansible_play(
        noted("before")
        + roles(LAYERS, name="Check").replace("gather_facts", "check_mode: true\n  gather_facts")
        + noted("checked")
        + roles(LAYERS, name="Install")
        + noted("first")
        + roles(LAYERS, name="Again")
        + noted("second")
        + PLAY.format(name="Compare", variables="{}", tasks=same),
        gpu_host,
        host,
        **variables,
    )
    assert len(made.changed_in("Check")) == len(made.changed_in("Install")) == 12, made.text
    assert not made.changed_in("Again"), made.text
    ran = {role: made.run_of(role, "Again") for role in LAYERS}
    assert all(1 <= len(tasks) <= 3 for tasks in ran.values()), ran
    held = gpu_host.ssh(host, "apt-mark showhold").split()
    assert {"cuda-drivers-535", "nvidia-dkms-535", "libnvidia-compute-535", "cuda-toolkit-11-8"} <= set(held)
    assert {"libcudnn8", "libcudnn8-dev", "libnccl2", "nvidia-fabricmanager-535"} <= set(held)
    versions = gpu_host.ssh(
        host, "dpkg-query -W -f '${Package} ${Version}\\n' libcudnn8 libnccl2 nvidia-fabricmanager-535"
    )
    assert versions.splitlines() == [
        "libcudnn8 8.6.0.163-1+cuda11.8",
        "libnccl2 2.12.10-1+cuda11.6",
        "nvidia-fabricmanager-535 535.183.01-1",
    ]
    assert "Driver 535.183.01 is installed, none is loaded" in made.text
    assert "Unattended upgrades no longer touch ^cuda-drivers" in made.text


@pytest.mark.slow
def test_verify_reads_dpkg_and_apt(
    ansible_play: Callable[..., Any], gpu_host: LabUnderTest, variables: dict[str, Any]
) -> None:
    """After the test above; what should be is said by the profiles, as for `nodectl health`."""
    host, found = gpu_host.hosts[0], ("nvidia_repository", "cuda", "cudnn", "nccl", "dcgm")
    show = "".join(f'    - debug: {{msg: "{{{{ {name}_verified.findings | to_json }}}}"}}\n' for name in found)
    stack = {"system": {"nccl": {"packages": variables["nccl_packages"]}}, "dcgm": variables["dcgm_packages"]}
    profiles = {"nodectl_hardware": "unknown", "nodectl_stack": "cu118", "nodectl_overrides": {"stack": stack}}
    profiles["nvidia_repo_baseurl"] = variables["nvidia_repository_base_url"]
    gpu_host.ssh(host, "apt-mark unhold cuda-toolkit-11-8; mkdir -p /opt/nodectl")
    text = ansible_play(roles(found, "verify") + show, gpu_host, host, **variables, **profiles).text.replace('\\"', '"')
    gpu_host.ssh(host, "apt-mark hold cuda-toolkit-11-8; rmdir --ignore-fail-on-non-empty /opt/nodectl")
    assert '"status": "failed"' not in text, text
    assert "11.8.0-1, not held" in text
    assert "libcudnn8-dev" in text and "8.6.0.163-1+cuda11.8" in text
    assert "the nearest for the same CUDA, where the repository has no 2.12.7-1+cuda11.6" in text


@pytest.mark.slow
def test_an_interrupted_installation_is_brought_to_its_end(
    ansible_play: Callable[..., Any], gpu_host: LabUnderTest, variables: dict[str, Any]
) -> None:
    host, deb = gpu_host.hosts[0], f"{PLACE}/ubuntu2204/x86_64/cuda-toolkit-13-0_13.0.3-1_amd64.deb"
    gpu_host.ssh(host, f"dpkg --unpack {deb}")
    assert "unpacked" in gpu_host.ssh(host, "dpkg-query -W -f '${Status}' cuda-toolkit-13-0")
    wanted = {**variables, "cuda_package": "cuda-toolkit-13-0"}
    assert ansible_play(roles(("cuda",)), gpu_host, host, **wanted).changed == 1
    assert gpu_host.ssh(host, "dpkg-query -W -f '${Status}' cuda-toolkit-13-0") == "hold ok installed"
    assert ansible_play(roles(("cuda",)), gpu_host, host, **wanted).changed == 0


@pytest.mark.slow
def test_a_source_without_its_key_is_refused_and_one_with_it_adopted(
    ansible_play: Callable[..., Any], gpu_host: LabUnderTest, variables: dict[str, Any]
) -> None:
    host, other = gpu_host.hosts[0], "/etc/apt/sources.list.d/cuda-ubuntu2204-x86_64.list"
    line = f"file://{PLACE}/ubuntu2204/x86_64/ /"
    gpu_host.ssh(host, f"echo 'deb {line}' > {other}")
    refused = ansible_play(roles(("nvidia_repository",)), gpu_host, host, check=False, **variables).text
    assert other in refused and "with no signed-by" in refused
    gpu_host.ssh(host, f'echo "deb [signed-by=$(ls /usr/share/keyrings/nodectl-nvidia-*.asc)] {line}" > {other}')
    assert ansible_play(roles(("nvidia_repository",)), gpu_host, host, **variables).changed == 1
    left = gpu_host.ssh(host, "ls /etc/apt/sources.list.d; apt-get update --print-uris 2>&1 | grep -c Conflict")
    assert "nodectl-nvidia.sources" not in left and left.endswith("\n0")
    gpu_host.ssh(host, f"rm {other}")
    assert ansible_play(roles(("nvidia_repository",)), gpu_host, host, **variables).changed == 2


@pytest.mark.slow
def test_a_key_of_another_is_not_trusted(
    ansible_play: Callable[..., Any], gpu_host: LabUnderTest, repository: Repository, variables: dict[str, Any]
) -> None:
    host, wrong = gpu_host.hosts[0], "0" * 32 + repository.fingerprint[-8:]
    other = {**variables, "nvidia_repository_key_fingerprint": wrong}
    answer = ansible_play(roles(("nvidia_repository",)), gpu_host, host, check=False, **other)
    for said in ("apt could not read", "signatures couldn't be verified", "failed=1"):
        assert said in answer.text, answer.text
    # a relative path is one of the folder where the play was started
    given = {**variables, "nvidia_repository_keyring": os.path.relpath(repository.key_file)}
    bad = ansible_play(
        roles(("nvidia_repository",)), gpu_host, host, check=False, nvidia_repository_keyring_sha256="0" * 64, **given
    )
    assert f"has the SHA-256 {repository.sha256}" in " ".join(bad.text.split())
    good = {**given, "nvidia_repository_keyring_sha256": repository.sha256}
    assert ansible_play(roles(("nvidia_repository",)), gpu_host, host, **good).changed == 3


@pytest.mark.slow
def test_a_kept_driver_and_its_fabric_manager_are_held_together(
    ansible_play: Callable[..., Any], gpu_host: LabUnderTest, variables: dict[str, Any]
) -> None:
    """A driver that the role nvidia_driver only looks at was not held, fabric manager was: an upgrade parted them."""
    host = gpu_host.hosts[0]
    gpu_host.ssh(host, "apt-mark unhold $(apt-mark showhold | grep -E 'nvidia|cuda-drivers')")
    kept = {**variables, "nvidia_driver_mode": "keep", "nvidia_repository_driver_branch": ""}
    listed = '    - {ansible.builtin.raw: "apt-mark showhold", register: holds, changed_when: false}\n'
    none = "    - ansible.builtin.assert: {that: \"'nvidia' not in holds.stdout\"}\n"
    done = ansible_play(
        roles(("fabric_manager",), name="Without a hold", fabric_manager_hold=False)
        + PLAY.format(name="None is held", variables="{}", tasks=listed + none)
        + roles(("nvidia_repository", "nvidia_driver", "fabric_manager"), name="With holds")
        + roles(("fabric_manager",), name="Again"),
        gpu_host,
        host,
        **kept,
    )
    assert not done.changed_in("Without a hold") and not done.changed_in("Again"), done.text
    assert done.changed_in("With holds")
    held = set(gpu_host.ssh(host, "apt-mark showhold").split())
    assert {"nvidia-fabricmanager-535", "nvidia-driver-535", "libnvidia-compute-535", "nvidia-dkms-535"} <= held
    before = gpu_host.ssh(host, "dpkg-query -W")
    gpu_host.ssh(host, "apt-get -y -qq dist-upgrade")
    assert gpu_host.ssh(host, "dpkg-query -W") == before


@pytest.mark.slow
def test_nothing_is_changed_under_work_on_a_gpu(
    ansible_play: Callable[..., Any], gpu_host: LabUnderTest, variables: dict[str, Any]
) -> None:
    """The roles alone: nobody tells them who uses a GPU."""
    host, before = gpu_host.hosts[0], state(gpu_host)
    work = "touch /dev/nvidiactl /dev/nvidia0; setsid sleep 600 < /dev/nvidia0 > /dev/null 2>&1 & echo $!"
    pid = gpu_host.ssh(host, work)
    alone = {name: value for name, value in variables.items() if name != "_nvidia_driver_node"}
    newer = {"nvidia_driver_branch": "580", "nvidia_driver_packages": ["nvidia-open-580"]}
    newer["fabric_manager_driver"] = "580.159.04"
    try:
        for role in ("nvidia_driver", "fabric_manager"):
            refused = ansible_play(roles((role,)), gpu_host, host, check=False, **{**alone, **newer}).text
            assert "a GPU is in use by sleep (pid" in refused and "failed=1" in refused, refused
    finally:
        gpu_host.ssh(host, f"kill {pid}; rm /dev/nvidiactl /dev/nvidia0")
    assert state(gpu_host) == before


@pytest.mark.slow
def test_nvlink_5_brings_the_subnet_manager_and_another_condition(
    ansible_play: Callable[..., Any], gpu_host: LabUnderTest, variables: dict[str, Any]
) -> None:
    """HGX B200: no NVSwitch on the bus, no /dev/nvidia-nvswitch0."""
    host, folder = gpu_host.hosts[0], "/etc/systemd/system/nvidia-fabricmanager.service.d"
    gpu_host.ssh(host, "apt-get -y -qq --allow-change-held-packages purge nvidia-fabricmanager-535")
    b200 = {**variables, "fabric_manager_driver": "580.159.04", "_fabric_manager_nvlink5": True}
    racks = {**b200, "fabric_manager_imex_nodes": ["10.0.0.1", "10.0.0.2"]}
    plays = roles(("fabric_manager",)) + roles(("fabric_manager",), name="Again")
    assert not ansible_play(plays, gpu_host, host, **racks).changed_in("Again")
    names = "nvlsm libnvsdm libnvidia-nscq nvidia-imex nvidia-fabricmanager"
    shown = gpu_host.ssh(host, f"dpkg-query -W -f '${{Package}} ${{Version}}\\n' {names}")
    assert sorted(shown.splitlines()) == [
        "libnvidia-nscq 580.159.04-1",
        "libnvsdm 580.159.04-1",
        "nvidia-fabricmanager 580.159.04-1",
        "nvidia-imex 580.159.04-1",
        "nvlsm 2025.10.12-1",
    ]
    assert "ConditionPathExists" not in gpu_host.ssh(host, f"cat {folder}/90-nodectl.conf")
    assert "SW_MNG" in gpu_host.ssh(host, f"cat {folder}/90-nodectl.conf")
    assert gpu_host.ssh(host, "cat /etc/nvidia-imex/nodes_config.cfg").split() == ["10.0.0.1", "10.0.0.2"]
    assert "ib_umad" in gpu_host.ssh(host, "cat /etc/modules-load.d/nodectl-nvlsm.conf")


@pytest.mark.slow
def test_a_host_whose_peermem_does_not_load_goes_on(
    ansible_play: Callable[..., Any], gpu_host: LabUnderTest, variables: dict[str, Any]
) -> None:
    host = gpu_host.hosts[0]
    look: dict[str, Any] = {"node": {"driver": {"version": "535.183.01"}, "gpudirect": "none", "systemd": False}}
    said = ansible_play(roles(("rdma",), "configure"), gpu_host, host, rdma_looked=look, rdma_devices=True)
    assert "nvidia-peermem does not load" in said.text
    gpu_host.ssh(host, "rm /etc/modules-load.d/nodectl-peermem.conf")
    look["node"]["driver"]["version"] = None
    without = ansible_play(roles(("rdma",), "configure"), gpu_host, host, rdma_looked=look, rdma_devices=True)
    assert not without.changed, "no driver, nothing to load"
