"""Plan, environment and package: what a launch is made of, before any host is touched."""

import io
import json
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest

from nodectl.common.node_paths import LAUNCHER
from nodectl.errors import JobError, UsageError
from nodectl.jobs.code import find_code
from nodectl.jobs.nodes import judge_survey
from nodectl.jobs.package import collect_variables, pack
from nodectl.jobs.plan import (
    CheckpointPlan,
    LaunchRequest,
    NodeCount,
    PlanHost,
    Surroundings,
    choose_nproc,
    make_plan,
    one_venv,
)
from nodectl.model.host import Host
from nodectl.report.jobs import plan_text

HOSTS = (PlanHost("gpu01", "10.0.0.1", "eth1"), PlanHost("gpu02", "10.0.0.2", "eth1"))


def request(**more: Any) -> Any:
    values = {
        "script": "train.py",
        "args": ("--name", "a b; rm -rf /"),
        "nproc_per_node": None,
        "lease_s": 8.0,
        "launcher": "/opt/nodectl/bin/nodectl-launch",
        "venv": "/opt/nodectl/venv",
        "env_names": ("TOKEN",),
        "name": "my-train-1234abcd",
    }
    return LaunchRequest(**{**values, **more})


def plan(checkpoint: CheckpointPlan | None = None, **more: Any) -> Any:
    surroundings = Surroundings(HOSTS, (8, 8), (21_001, 21_002, 21_003))
    return make_plan("20261121-040000-ab12", request(**more), surroundings, checkpoint)


def test_a_spare_has_no_rank_in_the_plan_that_is_shown() -> None:
    lines = plan_text(plan(nodes=NodeCount(1, 1), restarts=1, time_limit_s=90.0).document()).splitlines()
    assert "time limit  90 s" in lines
    shown = [line.split()[:2] for line in lines[lines.index("rank order") + 1 :]]
    assert shown == [["0", "gpu01"], ["-", "gpu02"]]


def test_the_plan_takes_ports_and_ranks_from_what_was_found() -> None:
    made = plan()
    assert (made.master_port, made.heartbeat_port) == (21_001, 21_002)
    assert (made.nproc_per_node, made.world_size) == (8, 16)
    host = {"name": "gpu02", "address": "10.0.0.2", "interface": "eth1", "ib_hca": "", "venv": ""}
    assert made.document()["hosts"][1] == host


@pytest.mark.parametrize(("asked", "gpus", "expected"), [(None, (8, 8), 8), (None, (0, 0), 1), (3, (8, 4), 3)])
def test_ranks_a_host(asked: Any, gpus: Any, expected: Any) -> None:
    assert choose_nproc(asked, gpus) == expected


@pytest.mark.parametrize(
    ("asked", "folder"),
    [(None, None), ("/mnt/ckpt", "/mnt/ckpt"), ("auto", "state:my-train-1234abcd"), ("rel/ative", UsageError)],
)
def test_checkpoint_folders(asked: Any, folder: Any) -> None:
    made = request(script="My Train.py", checkpoint=asked)
    if folder is UsageError:
        with pytest.raises(UsageError, match="not an absolute path"):
            made.checkpoint_folder()
    else:
        assert made.checkpoint_folder() == folder


@pytest.mark.parametrize(("seen", "shared"), [([True], True), ([True, True], True), ([True, False], False)])
def test_a_folder_is_shared_if_all_hosts_see_the_token(seen: list[bool], shared: bool) -> None:
    answers = [(f"node{rank}", {"sees_token": sees}) for rank, sees in enumerate(seen)]
    assert judge_survey("/c", answers) == CheckpointPlan("/c", shared)


def test_a_folder_that_some_hosts_do_not_mount_is_refused() -> None:
    with pytest.raises(JobError, match="b does not mount it"):
        judge_survey("/c", [("a", {"sees_token": True}), ("b", {"sees_token": False}), ("d", {"sees_token": True})])


def test_restarts_need_a_checkpoint_folder_that_all_hosts_see() -> None:
    with pytest.raises(JobError, match="the hosts do not share the checkpoint folder /c"):
        plan(CheckpointPlan("/c", shared=False), restarts=1)


@pytest.mark.parametrize(
    ("name", "says"),
    [("TOKEN=abc", "a name, not a value"), ("A-B", "not a name"), ("MISSING", "has no MISSING"), ("NODECTL_X", "own")],
)
def test_wrong_names(name: Any, says: Any) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        collect_variables([name], None, {})
    assert "abc" not in caught.value.message


def test_env_file(tmp_path: Path) -> None:
    path = tmp_path / "secrets"
    path.write_text("# a comment\n\nTOKEN=a=b c'd\nEMPTY=\n")
    path.chmod(0o600)
    assert collect_variables([], path, {}) == {"TOKEN": "a=b c'd", "EMPTY": ""}


def test_env_file_that_others_may_read(tmp_path: Path) -> None:
    path = tmp_path / "secrets"
    path.write_text("TOKEN=x\n")
    path.chmod(0o640)
    with pytest.raises(UsageError, match=r"mode 0640") as caught:
        collect_variables([], path, {})
    assert caught.value.remedy == f"chmod 600 {path}"


def read(archive: tarfile.TarFile, name: str) -> str:
    member = archive.extractfile(name)
    assert member is not None
    return member.read().decode()


def test_the_package_holds_the_scripts_folder_and_private_files(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('hi')\n")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "data.py").write_text("x = 1\n")
    for left_out in (".git", "__pycache__", ".venv"):
        (tmp_path / left_out).mkdir()
        (tmp_path / left_out / "junk").write_text("x")
    code = find_code(str(tmp_path / "train.py"), tmp_path)
    with tarfile.open(fileobj=io.BytesIO(pack(plan(), code))) as archive:
        members = {member.name: member for member in archive.getmembers()}
        sent = json.loads(read(archive, "plan.json"))
    assert set(members) == {"plan.json", "secret", "code/train.py", "code/lib/data.py"}
    assert sent["env_names"] == ["TOKEN"]
    assert all(stat.S_IMODE(member.mode) & 0o077 == 0 for member in members.values())
    assert members["secret"].size == 32


def test_hosts_of_several_environments_are_refused_where_all_start_alike() -> None:
    hosts = [Host(name, name, 22, "root", "ssh", {"pytorch_venv": f"/opt/{venv}"}) for name, venv in ("ax", "bx", "cy")]
    assert one_venv(hosts[:2], LAUNCHER, None) == "/opt/x"
    assert one_venv(hosts, LAUNCHER, "/opt/z") == "/opt/z"
    with pytest.raises(UsageError, match=r"pytorch_venv is not the same on all hosts: /opt/x on a,b; /opt/y on c"):
        one_venv(hosts, LAUNCHER, None)
