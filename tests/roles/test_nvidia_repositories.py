"""What the role nvidia_repository is given on each system, by its own defaults and tasks as Ansible renders them."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodectl.common.resources import share_dir

ROLE = share_dir() / "roles" / "nvidia_repository"
# os-release's ID and VERSION_ID, the key of stacks, NVIDIA's folder, the name of its key
SYSTEMS = [
    ("ubuntu", "22.04", "ubuntu-22.04", "ubuntu2204", "3bf863cc"),
    ("ubuntu", "24.04", "ubuntu-24.04", "ubuntu2404", "3bf863cc"),
    ("ubuntu", "26.04", "ubuntu-26.04", "ubuntu2604", "60DF8A40"),
    ("debian", "12", "debian-12", "debian12", "3bf863cc"),
    ("debian", "13", "debian-13", "debian13", "8793F200"),
    ("rhel", "9.8", "rhel-9", "rhel9", "D42D0685"),
    ("rocky", "10.1", "rocky-10", "rhel10", ""),
    ("almalinux", "10.1", "almalinux-10", "rhel10", ""),
]
ARCHITECTURES = {"x86_64": "x86_64", "aarch64": "sbsa"}


def hosts() -> Iterator[tuple[str, dict[str, Any], str, str, str]]:
    """(name, node, folder of the distribution, folder of the architecture, end of the key)."""
    for system, version, key, folder, fingerprint in SYSTEMS:
        for architecture, place in ARCHITECTURES.items():
            node = {
                "os": {"id": system, "version": version, "key": key},
                "architecture": architecture,
                "gpus": [],
                "driver": {"version": None, "flavour": None, "origin": "none", "from": [], "packages": []},
            }
            yield f"{key}-{architecture}", node, folder, place, fingerprint


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """The arguments of the role's first module, by host; and what its assertion of a key would say."""
    folder = tmp_path_factory.mktemp("repositories")
    tasks = yaml.safe_load((ROLE / "tasks" / "validate.yml").read_text())
    asserted = [task["ansible.builtin.assert"] for task in tasks if "ansible.builtin.assert" in task]
    (systems, key) = asserted[0]["that"], asserted[1]
    shown = {"uri": "{{ _nvidia_repository_uri }}", "key": "{{ _nvidia_repository_key_name }}"}
    shown |= {"served": "{{ " + " and ".join(f"({each})" for each in systems) + " }}"}
    shown |= {"known": "{{ " + key["that"] + " }}", "said": key["fail_msg"]}
    wanted = "'unknown', 'cu132', 'stock', node=node"
    play = [
        {
            "hosts": "all",
            "gather_facts": False,
            "vars_files": [str(ROLE / f"{name}.yml") for name in ("defaults/main", "defaults/profiles", "vars/main")],
            "tasks": [
                {"ansible.builtin.set_fact": {"fleet": f"{{{{ lookup('nodectl.fleet.fleet_profile', {wanted}) }}}}"}},
                {
                    "ansible.builtin.debug": {"msg": "TOLD {{ [inventory_hostname, shown] | to_json }}"},
                    "vars": {"shown": shown},
                },
            ],
        }
    ]
    (folder / "play.yml").write_text(yaml.safe_dump(play, width=10_000))
    inventory = {name: {"node": node} for name, node, *_ in hosts()}
    (folder / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": inventory}}))
    argv = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "hosts.yml", "play.yml"]
    own = {"ANSIBLE_COLLECTIONS_PATH": str(share_dir()), "ANSIBLE_HOME": str(folder), "ANSIBLE_NOCOLOR": "1"}
    done = subprocess.run(
        argv, cwd=folder, env={**os.environ, **own}, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
    return dict(json.loads(json.loads(f'"{text}"')) for text in re.findall(r'"msg": "TOLD (.*)"', done.stdout))


@pytest.mark.parametrize(("name", "node", "folder", "place", "key"), list(hosts()))
def test_each_system_and_architecture_has_its_folder_and_its_key(
    told: dict[str, dict[str, str]], name: str, node: dict[str, Any], folder: str, place: str, key: str
) -> None:
    host = told[name]
    assert host["uri"] == f"https://developer.download.nvidia.com/compute/cuda/repos/{folder}/{place}/"
    assert host["key"] == f"{key}.pub"
    assert str(host["served"]) == "True"
    assert (str(host["known"]) == "True") == bool(key)
    if not key:
        said = host["said"]
        assert f"the key that signs {folder} " in said and f"/compute/cuda/repos/{folder}/" in said
        assert "nvidia_repo_keyring" in said
