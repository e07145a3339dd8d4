"""What the templates shared by several roles become, and that the tests render them as Ansible does."""

from pathlib import Path
from typing import Any

import yaml

from nodectl.common.resources import share_dir
from nodectl.jobs.export import render
from tests.playbooks import ansible_playbook

CASES: list[tuple[str, dict[str, Any]]] = [
    ("nccl.conf.j2", {"profiles": "a, b", "variables": {}}),
    ("nccl.conf.j2", {"profiles": "é", "variables": {"NCCL_B": "ring,tree;allreduce:tree", "NCCL_A": "=mlx5_0"}}),
    ("launch.sh.j2", {"profiles": "a, b", "venv": "/opt/nodectl/venv"}),
]


def test_rendered_as_ansible_renders(tmp_path: Path) -> None:
    tasks = [
        {
            "ansible.builtin.template": {
                "src": str(next((share_dir() / "roles").glob(f"*/templates/{template}"))),
                "dest": str(tmp_path / f"out{number}"),
                "mode": "0644",
            },
            "vars": variables,
        }
        for number, (template, variables) in enumerate(CASES)
    ]
    play = tmp_path / "play.yml"
    play.write_text(
        yaml.safe_dump([{"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": tasks}])
    )
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "ANSIBLE_HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}
    done = ansible_playbook("-i", "localhost,", str(play), env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    for number, (template, variables) in enumerate(CASES):
        assert (tmp_path / f"out{number}").read_bytes() == render(template, **variables).encode(), template


def test_nccl_file_holds_nothing_that_nccl_would_misread() -> None:
    lines = render("nccl.conf.j2", profiles="p", variables={"NCCL_B": "2", "NCCL_A": "1"}).splitlines()
    assert lines[0].startswith("# Written by nodectl") and lines[1:] == ["NCCL_A=1", "NCCL_B=2"]
