"""Validation looks up each package that a role would install, before anything changes; each system has its repository.

Every task of every role that installs is found in the roles themselves, and so is every look. Ansible renders both for
bare hosts where everything is asked for that can be.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest
import yaml

from nodectl.common.resources import share_dir
from tests.playbooks import ansible_playbook

ROLES = share_dir() / "roles"
PLAYBOOKS = share_dir() / "playbooks"
PINNED = "nodectl.fleet.pinned_packages"
INSTALLERS = {
    f"{prefix}{name}" for prefix in ("", "ansible.builtin.") for name in ("apt", "dnf", "dnf5", "package", "yum")
}
COMMANDS = {f"{prefix}{name}" for prefix in ("", "ansible.builtin.") for name in ("command", "shell", "raw", "script")}
DRIVER = "580.126.20"
BARE: dict[str, Any] = {
    "os": {"id": "ubuntu", "version": "22.04", "key": "ubuntu-22.04"},
    "architecture": "x86_64",
    "kernel": "5.15.0-100-generic",
    "boot": {"kernel": "5.15.0-112-generic", "headers": False, "free_mib": None, "needed_mib": 0, "held": []},
    "gpus": [{"address": "0000:07:00.0", "device": "0x20b2", "numa_node": 0}] * 8,
    "nvswitch": True,
    "nvlink5": False,
    "driver": {"version": None, "flavour": None, "origin": "none", "from": [], "packages": []},
    "gpu_users": [],
    "systemd": True,
    "container": None,
    "secure_boot": False,
    "nouveau": False,
    "booted_at": 1,
}
KEPT = {"version": DRIVER, "flavour": "open", "origin": "apt", "from": [], "packages": []}
UBUNTU_24 = {"id": "ubuntu", "version": "24.04", "key": "ubuntu-24.04"}
ROCKY = {"os": {"id": "rocky", "version": "9.4", "key": "rocky-9"}, "kernel": "5.14.0-427.el9_4.x86_64"}
HOSTS: dict[str, dict[str, Any]] = {
    "ubuntu": {},
    "ubuntu-precompiled": {"nvidia_driver_modules": "precompiled"},
    "rocky": {"node": ROCKY},
    "b200": {"nodectl_hardware": "b200-8", "node": {"os": UBUNTU_24, "nvlink5": True}},
    "kept-driver": {"node": {"driver": KEPT}},
    "kept-driver-b200": {"nodectl_hardware": "b200-8", "node": {"os": UBUNTU_24, "nvlink5": True, "driver": KEPT}},
}
# os-release's ID and VERSION_ID, the key of stacks, the machine; NVIDIA's folder and the name of its key
SYSTEMS = [
    ("ubuntu", "22.04", "ubuntu-22.04", "x86_64", "ubuntu2204/x86_64", "3bf863cc"),
    ("ubuntu", "24.04", "ubuntu-24.04", "aarch64", "ubuntu2404/sbsa", "3bf863cc"),
    ("ubuntu", "26.04", "ubuntu-26.04", "x86_64", "ubuntu2604/x86_64", "60DF8A40"),
    ("debian", "12", "debian-12", "x86_64", "debian12/x86_64", "3bf863cc"),
    ("debian", "13", "debian-13", "aarch64", "debian13/sbsa", "8793F200"),
    ("rhel", "9.8", "rhel-9", "aarch64", "rhel9/sbsa", "D42D0685"),
    # its key is the operator's to name
    ("rocky", "10.1", "rocky-10", "x86_64", "rhel10/x86_64", ""),
    ("almalinux", "10.1", "almalinux-10", "x86_64", "rhel10/x86_64", ""),
]
HOSTS |= {
    key: {
        "nodectl_hardware": "unknown",
        "nodectl_stack": "cu132",
        "node": {"os": {"id": system, "version": version, "key": key}, "architecture": machine},
    }
    for system, version, key, machine, *_ in SYSTEMS
}
# what earlier tasks find on a bare host, and everything asked for that can be
GIVEN: dict[str, Any] = {
    "rdma_doca_baseurl": "https://example.invalid/doca",
    "rdma_present": {"installed": {}},
    "nccl_tests_host": {"built": False, "note": {"cuda": "12.8"}},
    "_time_sync_node": {"clock": {"settable": True, "keeper": ""}},
    "deepspeed_build": True,
    "dcgm_exporter_packages": ["datacenter-gpu-manager-exporter"],
    "container_toolkit_packages": ["nvidia-container-toolkit"],
    "nodectl_health_timer": True,
    "health_timer_node_exporter": "prometheus-node-exporter",
    "nodectl_overrides": {"stack": {"deepspeed": "0.19.8"}},
    "fabric_manager_imex_nodes": ["192.0.2.1", "192.0.2.2"],
    "nvidia_driver_installed": DRIVER,
    "nvidia_repository_looked": {"installed": [], "source": ""},
}


def tasks_in(document: Any, when: tuple[Any, ...] = ()) -> Iterator[tuple[dict[str, Any], tuple[Any, ...]]]:
    """Each task with its own conditions and those of the blocks around it."""
    for task in document or ():
        own = task.get("when", [])
        conditions = (*when, *(own if isinstance(own, list) else [own]))
        yield task, conditions
        for part in ("block", "rescue", "always"):
            yield from tasks_in(task.get(part), conditions)


def asking() -> Iterator[tuple[str, str, dict[str, Any], tuple[Any, ...], Any]]:
    """(role, installed or looked, task, conditions, its packages) of every task that names packages."""
    for path in sorted(ROLES.glob("*/tasks/*.yml")):
        role = path.parent.parent.name
        for task, when in tasks_in(yaml.safe_load(path.read_text())):
            if PINNED in task and task[PINNED]["packages"]:
                yield role, "looked" if task[PINNED].get("look") else "installed", task, when, task[PINNED]["packages"]
            for name in INSTALLERS & set(task):
                yield role, "installed", task, when, task[name]["name"]


def play() -> list[dict[str, Any]]:
    """A task for each of them that tells its packages, in a play with the roles' defaults as our plays have them."""
    wanted = "nodectl_hardware, nodectl_stack, 'stock', overrides=nodectl_overrides, node=node"
    resolved = f"{{{{ lookup('nodectl.fleet.fleet_profile', {wanted}) }}}}"
    tasks: list[dict[str, Any]] = [{"ansible.builtin.set_fact": {"fleet": resolved}}]
    for role, kind, task, when, packages in asking():
        condition = " and ".join(f"({each})" for each in when) or "true"
        told = f"{{'host': inventory_hostname, 'role': '{role}', 'kind': '{kind}', 'packages': told_packages}}"
        tasks.append(
            {
                "name": f"{role}: {task['name']}",
                "ansible.builtin.debug": {"msg": f"TOLD {{{{ {told} | to_json }}}}"},
                "vars": {**task.get("vars", {}), "told_packages": packages},
                "when": condition,
            }
        )
    shown = "[_nvidia_repository_uri, _nvidia_repository_key_name]"
    told = f"{{'host': inventory_hostname, 'kind': 'repository', 'packages': {shown}}}"
    tasks.append({"ansible.builtin.debug": {"msg": f"TOLD {{{{ {told} | to_json }}}}"}})
    places = ("defaults/main.yml", "defaults/profiles.yml", "vars/main.yml")
    files = [str(path) for place in places for path in sorted(ROLES.glob(f"*/{place}"))]
    return [{"hosts": "all", "gather_facts": False, "vars_files": files, "tasks": tasks}]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each task names on each host."""
    folder = tmp_path_factory.mktemp("looked-up")
    (folder / "play.yml").write_text(yaml.safe_dump(play(), width=10_000))
    hosts = {
        name: {
            "nodectl_hardware": "dgx-a100",
            "nodectl_stack": "cu128",
            **more,
            "node": {**BARE, **more.get("node", {})},
        }
        for name, more in HOSTS.items()
    }
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": hosts}}))
    (folder / "given.json").write_text(json.dumps(GIVEN))
    own = {"ANSIBLE_COLLECTIONS_PATH": str(share_dir()), "ANSIBLE_HOME": str(folder), "ANSIBLE_NOCOLOR": "1"}
    words = ("-i", "hosts.yml", "-e", "@given.json", "play.yml")
    done = ansible_playbook(*words, cwd=folder, env={**os.environ, **own})
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    return [json.loads(json.loads(f'"{text}"')) for text in re.findall(r'"msg": "TOLD (.*)"', done.stdout)]


def names_of(entry: str | Mapping[str, Any]) -> set[str]:
    """By which names a package may come; the driver's version is known only when it is chosen."""
    names = [entry] if isinstance(entry, str) else entry["names"]
    return {name.replace("@driver", DRIVER) for name in names}


@pytest.mark.parametrize(("host", "folder", "key"), [(row[2], *row[4:]) for row in SYSTEMS])
def test_each_system_and_architecture_has_its_folder_and_its_key(
    told: list[dict[str, Any]], host: str, folder: str, key: str
) -> None:
    (shown,) = [each["packages"] for each in told if each["host"] == host and each["kind"] == "repository"]
    assert shown == [f"https://developer.download.nvidia.com/compute/cuda/repos/{folder}/", f"{key}.pub"]


@pytest.mark.slow
@pytest.mark.parametrize("host", [name for name in HOSTS if name not in {row[2] for row in SYSTEMS}])
def test_what_would_be_installed_is_looked_up_before(told: list[dict[str, Any]], host: str) -> None:
    of_host = [each for each in told if each["host"] == host]
    looked = set().union(
        *(names_of(entry) for each in of_host if each["kind"] == "looked" for entry in each["packages"])
    )
    installed = [
        (each["role"], names_of(entry))
        for each in of_host
        if each["kind"] == "installed"
        for entry in each["packages"]
        if isinstance(entry, str) or not entry.get("optional")
    ]
    assert {role for role, _ in installed} >= {"time_sync", "rdma", "cuda", "dcgm", "fabric_manager", "nccl_tests"}
    assert {role for role, _ in installed} >= {"dcgm_exporter", "container_toolkit"}
    assert [(role, names) for role, names in installed if not names <= looked] == []


def test_no_role_installs_by_a_command() -> None:
    for path in sorted(ROLES.glob("*/tasks/*.yml")):
        for task, _ in tasks_in(yaml.safe_load(path.read_text())):
            said = " ".join(str(task[name]) for name in COMMANDS & set(task))
            assert not re.search(r"\b(apt|apt-get|aptitude|dnf|yum|rpm|dpkg)\b", said), (path, said)


def test_each_role_of_a_run_is_validated_before_the_run() -> None:
    def roles(lists: Iterable[list[dict[str, Any]]]) -> dict[str, str]:
        imported = [task.get("ansible.builtin.import_role") for tasks in lists for task, _ in tasks_in(tasks)]
        return {role["name"]: role.get("tasks_from", "main") for role in imported if role}

    validated = roles(play["tasks"] for play in yaml.safe_load((PLAYBOOKS / "validate.yml").read_text()))
    changing = sorted((PLAYBOOKS / "tasks").glob("provision_*.yml")) + sorted((PLAYBOOKS / "tasks").glob("tune_*.yml"))
    changed = roles(yaml.safe_load(path.read_text()) for path in changing)
    assert set(validated.values()) == {"validate"}
    assert len(changed) > 10 and set(changed) <= set(validated)
