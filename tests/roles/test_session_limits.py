"""What a session's limits are judged to be: failed, not settable here, or not applied by this SSH server."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

WANTED = {"memlock": "unlimited", "nofile": "1048576"}
LOW = {"memlock": "8192", "nofile": "1024"}


@pytest.fixture(scope="module")
def limits(role_module: Callable[[str, str], ModuleType]) -> ModuleType:
    return role_module("limits", "session_limits")


def judged(limits: ModuleType, **facts: Any) -> list[tuple[str, str]]:
    known = {"fresh": WANTED, "session": WANTED, "uses_pam": True, "may_raise": True, "max_files": 1048576}
    return [(found["status"], found["actual"]) for found in limits.judge(WANTED, **{**known, **facts})]


def test_a_session_that_holds_them_is_fine(limits: ModuleType) -> None:
    assert judged(limits) == [("ok", "unlimited"), ("ok", "1048576")]
    assert judged(limits, fresh={"memlock": "unlimited", "nofile": "unlimited"})[1] == ("ok", "unlimited")


def test_a_fresh_login_below_them_is_a_failure(limits: ModuleType) -> None:
    assert judged(limits, fresh=LOW) == [("failed", "8192"), ("failed", "1024")]


def test_where_root_may_not_raise_them_it_is_reported(limits: ModuleType) -> None:
    found = judged(limits, fresh=LOW, may_raise=False)
    assert {status for status, _ in found} == {"skipped"}
    assert all(actual.startswith("not settable on this host") for _, actual in found)


def test_an_ssh_server_without_pam_is_a_warning(limits: ModuleType) -> None:
    found = judged(limits, session=LOW, uses_pam=False)
    assert found[0] == ("warning", "8192 in SSH sessions: sshd has UsePAM no")


def test_more_files_than_the_kernel_gives_is_not_settable(limits: ModuleType) -> None:
    found = judged(limits, fresh=LOW | {"memlock": "unlimited"}, max_files=65536)
    assert found == [("ok", "unlimited"), ("skipped", "not settable on this host: its fs.nr_open is 65536")]


def test_a_session_that_cannot_be_opened_does_not_pass(limits: ModuleType) -> None:
    assert {status for status, _ in judged(limits, fresh={})} == {"unknown"}


@pytest.mark.parametrize(
    ("stack", "nccl", "status"),
    [
        ("unlimited", "2.27.3", "warning"),
        ("8192", "2.27.3", "ok"),
        ("unlimited", "2.28.9", "ok"),
        ("unlimited", "", None),
    ],
)
def test_an_unlimited_stack_is_judged_by_the_nccl(
    limits: ModuleType, stack: str, nccl: str, status: str | None
) -> None:
    found = limits.judge_stack({"stack": stack}, nccl)
    assert [each["status"] for each in found] == ([status] if status else [])


@pytest.mark.parametrize(
    ("answer", "status"),
    [((0, "b false\n", ""), "ok"), ((0, "b true\n", ""), "failed"), ((1, "", "no such property"), "unknown")],
)
def test_logind_is_asked_itself(limits: ModuleType, answer: tuple[int, str, str], status: str) -> None:
    found = limits.removes_ipc(lambda argv: answer if argv[0] == "busctl" else (0, "", ""))
    assert found["status"] == status
    assert limits.removes_ipc(lambda argv: (3, "", ""))["actual"] == "logind does not run"


def test_the_lower_of_soft_and_hard_counts(limits: ModuleType) -> None:
    def run(argv: list[str]) -> tuple[int, str, str]:
        return 0, "motd\n8192\nunlimited\n1024\n4096\n8191\n", ""

    assert limits.limits_of(run, ["sh", "-c"]) == {"memlock": "8192", "nofile": "1024", "stack": "8191"}
    assert limits.limits_of(lambda argv: (1, "", "no"), ["sh", "-c"]) == {}


@pytest.mark.parametrize(
    ("title", "command"),
    [
        ("sshd: /usr/sbin/sshd -D -f /x y [listener] 0 of 10 startups ", ["/usr/sbin/sshd", "-D", "-f", "/x", "y"]),
        ("/usr/sbin/sshd -D ", ["/usr/sbin/sshd", "-D"]),
        ("/usr/sbin/sshd", ["/usr/sbin/sshd"]),
        ("sshd: root@notty ", []),
        ("bash -c /usr/sbin/sshd", []),
        ("", []),
    ],
)
def test_the_listening_sshd_is_told_from_others(limits: ModuleType, title: str, command: list[str]) -> None:
    assert limits.sshd_command(title) == command


def test_the_capability_is_read_from_proc(limits: ModuleType) -> None:
    assert limits.may_raise_limits("Name:\tx\nCapEff:\t000001ffffffffff\n")
    assert not limits.may_raise_limits("CapEff:\t000001fffeffffff\n")
    assert not limits.may_raise_limits("")
