"""The collection alone: what is in it, its roles in a play of somebody else's, and its playbooks from any folder."""

import json
import tarfile
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

import nodectl
from scripts.dist import semantic
from tests.collection.conftest import ENDS, Controller
from tests.conftest import LabUnderTest

# the first of an end also makes its environment
pytestmark = pytest.mark.timeout(900)

_ROOT = Path(__file__).resolve().parent.parent.parent
# role → its variables, a command on the host, and what that shows once the role has set it
ROLES: dict[str, tuple[dict[str, object], str, str]] = {
    "limits": (
        {"limits_memlock": "unlimited", "limits_nofile": 65536},
        "cat /etc/security/limits.d/90-nodectl.conf",
        "nofile 65536",
    ),
    "kernel_settings": (
        {"kernel_settings_wanted": [{"key": "net.ipv4.tcp_fin_timeout", "value": "61", "why": "a test"}]},
        "cat /proc/sys/net/ipv4/tcp_fin_timeout",
        "61",
    ),
    "nccl_env": ({"nccl_env_variables": {"NCCL_DEBUG": "WARN"}}, "cat /etc/nccl.conf", "NCCL_DEBUG=WARN"),
    "launcher": ({"launcher_venv": "/opt/nodectl/venv"}, "/opt/nodectl/bin/nodectl-launch --help", "usage"),
    "nic": ({"nic_mtu": 1500}, "true", ""),
    "time_sync": ({"time_sync_install": False}, "true", ""),
    "cudnn": ({"cudnn_packages": {}}, "true", ""),
}


def test_the_artifact_holds_what_runs_under_ansible_and_not_the_package(artifact: Path) -> None:
    with tarfile.open(artifact) as archive:
        names = [name for name in archive.getnames() if name]
    tops = {name.partition("/")[0] for name in names}
    documents = {"CHANGELOG.md", "FILES.json", "LICENSE", "LICENSES", "MANIFEST.json", "README.md", "docs"}
    documents |= {"changelogs", "extensions", "requirements.txt"}
    assert tops == documents | {"meta", "playbooks", "plugins", "roles", "tests"}
    assert {name for name in names if name.startswith("tests/")} == {"tests/config.yml"}
    assert not [name for name in names if name.endswith(".pyc")]


def test_the_collection_has_the_version_of_the_package(artifact: Path) -> None:
    with tarfile.open(artifact) as archive:
        manifest = archive.extractfile("MANIFEST.json")
        assert manifest is not None
        version = json.load(manifest)["collection_info"]["version"]
    assert version == semantic(nodectl.__version__) and artifact.name == f"nodectl-fleet-{version}.tar.gz"


def test_what_is_promised_is_what_is_tried() -> None:
    oldest, newest = ENDS["oldest"].core, ENDS["newest"].core
    major, minor = newest.split(".")
    (pin,) = (
        each
        for each in tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
        if each.startswith("ansible-core")
    )
    # the next one, of which indexes had a release candidate in November 2026, is allowed before it can be tried
    assert pin == f"ansible-core>={oldest},<{major}.{int(minor) + 2}"
    assert yaml.safe_load((_ROOT / "meta/runtime.yml").read_text()) == {"requires_ansible": f">={oldest}.0"}


@pytest.mark.lab
@pytest.mark.parametrize("controller", ["oldest", pytest.param("newest", marks=pytest.mark.slow)], indirect=True)
@pytest.mark.slow
def test_roles_alone_set_in_somebody_elses_play(
    controller: Controller, one_host: LabUnderTest, on_host: Callable[[str], str], tmp_path: Path
) -> None:
    tasks = [
        {"ansible.builtin.import_role": {"name": f"nodectl.fleet.{role}"}, "vars": variables}
        for role, (variables, _, _) in ROLES.items()
    ]
    plays = [{"name": name, "hosts": "all", "gather_facts": False, "tasks": tasks} for name in ("Set", "Set again")]
    (tmp_path / "theirs.yml").write_text(json.dumps(plays))
    said = controller.run(tmp_path, "ansible-playbook", "-i", one_host.inventory, "theirs.yml")
    assert "failed=0" in said
    for role, (_, command, shown) in ROLES.items():
        assert shown in on_host(command), role
    again = said.partition("PLAY [Set again]")[2]
    assert "ok: [node01]" in again and "changed: [node01" not in again


@pytest.mark.lab
@pytest.mark.parametrize("controller", ["oldest", pytest.param("newest", marks=pytest.mark.slow)], indirect=True)
def test_what_needs_the_package_says_so_and_what_to_do(
    controller: Controller, one_host: LabUnderTest, tmp_path: Path
) -> None:
    role = {"name": "nodectl.fleet.kernel_settings", "tasks_from": "verify"}
    play = {"hosts": "all", "gather_facts": False, "tasks": [{"ansible.builtin.import_role": role}]}
    (tmp_path / "theirs.yml").write_text(json.dumps([{**play, "vars": {"kernel_settings_wanted": []}}]))
    done = controller.attempt(tmp_path, "ansible-playbook", "-i", one_host.inventory, "theirs.yml")
    said = " ".join(done.stdout.split())
    assert done.returncode == 2 and "judges by the nodectl package" in said, done.stdout + done.stderr
    assert "install it there" in said


@pytest.mark.lab
@pytest.mark.slow
def test_an_interpreter_comes_by_the_hosts_uv_where_no_controller_has_one(
    controller: Controller, one_host: LabUnderTest, on_host: Callable[[str], str], tmp_path: Path
) -> None:
    on_host("mkdir -p /opt/theirs; printf '#!/bin/sh\\nexit 1\\n' > /opt/theirs/uv; chmod 755 /opt/theirs/uv")
    reasons = {
        "/opt/theirs/uv": "wheels exist for 3.99 to 3.99, and uv cannot bring one",
        "/opt/theirs/none": "no uv at /opt/theirs/none, the controller has none for Linux",
    }
    # two refusals of one run
    tasks = [
        {
            "block": [{"ansible.builtin.import_role": {"name": "nodectl.fleet.python"}}],
            "rescue": [{"ansible.builtin.debug": {"msg": f"refused with {uv}"}}],
            "vars": {"python_min": "3.99", "python_max": "3.99", "python_uv": uv},
        }
        for uv in reasons
    ]
    (tmp_path / "theirs.yml").write_text(json.dumps([{"hosts": "all", "gather_facts": True, "tasks": tasks}]))
    said = " ".join(controller.run(tmp_path, "ansible-playbook", "-i", one_host.inventory, "theirs.yml").split())
    for uv, reason in reasons.items():
        before, _, said = said.partition(f"refused with {uv}")
        assert reason in before and "rescued=2" in said, before


@pytest.mark.parametrize("controller", ["oldest", pytest.param("newest", marks=pytest.mark.slow)], indirect=True)
@pytest.mark.parametrize(
    ("text", "reason", "remedy"),
    [
        ("all: {hosts: {node01: {}}}\n", "Decryption failed", "give the password that it was encrypted with"),
        ("all:\n  hosts: [\n", "hosts.yml", "correct the file it names"),
    ],
)
def test_why_an_inventory_is_not_read_is_said_with_each_ansible(
    controller: Controller, tmp_path: Path, text: str, reason: str, remedy: str
) -> None:
    for name, content in {"hosts.yml": text, "right": "right", "wrong": "wrong"}.items():
        (tmp_path / name).write_text(content)
    encrypted = "correct" not in remedy
    if encrypted:
        controller.run(tmp_path, "ansible-vault", "encrypt", "--vault-password-file", "right", "hosts.yml")
    command = ["python", "-m", "nodectl", "-i", "hosts.yml", "--vault-password-file", "wrong", "exec", "true"]
    done = controller.attempt(tmp_path, *command, package=True)
    assert done.returncode != 0 and reason in done.stderr and remedy in done.stderr, done.stderr


@pytest.mark.lab
@pytest.mark.parametrize("controller", ["newest", pytest.param("oldest", marks=pytest.mark.slow)], indirect=True)
@pytest.mark.slow
def test_the_playbooks_run_from_any_folder_by_name(
    controller: Controller, one_host: LabUnderTest, on_host: Callable[[str], str], tmp_path: Path
) -> None:
    def play(name: str) -> str:
        options = ("-i", one_host.inventory, "--tags", "nccl_env")
        wanted = ("-e", '{"nodectl_nccl_env": {"NCCL_DEBUG": "INFO"}}')
        return controller.run(tmp_path, "ansible-playbook", f"nodectl.fleet.{name}", *options, *wanted, package=True)

    show = "cat /etc/nccl.conf 2>/dev/null || true"
    before = on_host(show)
    said = play("site")
    assert "changed=0" not in said
    assert "NCCL_DEBUG=INFO" in on_host(show)
    play("verify")
    play("rollback")
    assert on_host(show) == before
