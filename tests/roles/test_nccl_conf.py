"""NCCL's files as NCCL reads them: untrimmed, first writer wins, and the user's own before the system's."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType

import pytest

from tests.roles.run_module import run_module

WANTED = {"NCCL_SOCKET_IFNAME": "=eth0", "NCCL_NSOCKS_PERTHREAD": "4"}
GOOD = "# NCCL_ALGO=Tree\nNCCL_SOCKET_IFNAME==eth0\nNCCL_NSOCKS_PERTHREAD=4\n"


@pytest.fixture(scope="module")
def conf(role_module: Callable[[str, str], ModuleType]) -> ModuleType:
    return role_module("nccl_env", "nccl_conf")


def bad(conf: ModuleType, text: str | None, users: Mapping[str, str] | None = None) -> set[tuple[str, str, str]]:
    found = conf.judge("/etc/nccl.conf", text, WANTED, users or {})
    return {(each["subject"], each["status"], each["actual"]) for each in found if each["status"] != "ok"}


def test_what_is_wanted_is_fine(conf: ModuleType) -> None:
    assert bad(conf, GOOD) == set()
    assert conf.judge("/etc/nccl.conf", "# nothing\n", {}, {})[0]["status"] == "ok"


@pytest.mark.parametrize(
    ("line", "finding"),
    [
        ("NCCL_NSOCKS_PERTHREAD=4 # why", ("NCCL_NSOCKS_PERTHREAD", "failed", "4 # why")),
        ("NCCL_NSOCKS_PERTHREAD=4\r", ("NCCL_NSOCKS_PERTHREAD", "failed", "4\r")),
        ("NCCL_NSOCKS_PERTHREAD =4", ("NCCL_NSOCKS_PERTHREAD ", "failed", "4")),
        ("NCCL_NSOCKS_PERTHREAD=8\nNCCL_NSOCKS_PERTHREAD=4", ("NCCL_NSOCKS_PERTHREAD", "failed", "8")),
        ("", ("NCCL_NSOCKS_PERTHREAD", "failed", "not in /etc/nccl.conf")),
    ],
)
def test_nothing_is_read_more_kindly_than_nccl_does(conf: ModuleType, line: str, finding: tuple[str, str, str]) -> None:
    assert finding in bad(conf, f"NCCL_SOCKET_IFNAME==eth0\n{line}\n")


def test_a_line_nobody_asked_for_and_a_missing_file_fail(conf: ModuleType) -> None:
    assert bad(conf, GOOD + "NCCL_ALGO=Tree\n") == {("NCCL_ALGO", "failed", "Tree")}
    assert bad(conf, None) == {("/etc/nccl.conf", "failed", "not there")}


def test_a_users_own_file_that_overrides_is_a_warning(conf: ModuleType) -> None:
    own = {"/root/.nccl.conf": "NCCL_SOCKET_IFNAME=ib0\nNCCL_NSOCKS_PERTHREAD=4\nNCCL_DEBUG=INFO\n"}
    actual = "ib0, by /root/.nccl.conf, which goes before the system's file"
    assert bad(conf, GOOD, own) == {("NCCL_SOCKET_IFNAME", "warning", actual)}


def test_the_module_reads_the_live_file(tmp_path: Path) -> None:
    (tmp_path / "nccl.conf").write_text(GOOD.replace("=4", "=5"))
    arguments = {
        "path": str(tmp_path / "nccl.conf"),
        "variables": {**WANTED, "NCCL_NSOCKS_PERTHREAD": 4},
        "user": "nobody",
    }
    answer = run_module("plugins/modules/nccl_conf.py", arguments, folder=tmp_path)
    statuses = {found["subject"]: found["status"] for found in answer["findings"]}
    assert statuses == {"NCCL_SOCKET_IFNAME": "ok", "NCCL_NSOCKS_PERTHREAD": "failed"} and not answer["changed"]


def test_a_launcher_that_fails_and_one_that_runs(tmp_path: Path) -> None:
    script, venv = tmp_path / "launch", tmp_path / "venv"
    arguments = {"path": str(script), "venv": str(venv)}

    def look() -> list[tuple[str, str]]:
        answer = run_module("plugins/modules/launcher_look.py", arguments, folder=tmp_path)
        return [(found["status"], found["actual"]) for found in answer["findings"]]

    assert look()[0] == ("failed", "no such program, or not executable")
    script.write_text("#!/bin/sh\necho broken >&2\nexit 4\n")
    script.chmod(0o755)
    assert look()[0] == ("failed", "exit status 4: broken")
    script.write_text("#!/bin/sh\n")
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "torchrun").touch(mode=0o755)
    assert [status for status, _ in look()] == ["ok", "ok"]
