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


def judged(limits: ModuleType, **facts: Any) -> tuple[list[str], list[str]]:
    known = {"fresh": WANTED, "session": WANTED, "uses_pam": True, "may_raise": True, "max_files": 1048576}
    failures, report = limits.judge(WANTED, **{**known, **facts})
    return failures, report


def test_a_session_that_holds_them_is_silent(limits: ModuleType) -> None:
    assert judged(limits) == ([], [])
    assert judged(limits, fresh={"memlock": "unlimited", "nofile": "unlimited"}) == ([], [])


def test_a_fresh_login_below_them_is_a_failure(limits: ModuleType) -> None:
    failures, report = judged(limits, fresh=LOW)
    assert failures[0] == "a fresh login has memlock 8192, the profile says unlimited"
    assert len(failures) == 2 and report == []


def test_where_root_may_not_raise_them_it_is_reported(limits: ModuleType) -> None:
    failures, report = judged(limits, fresh=LOW, may_raise=False)
    assert failures == [] and all("not settable on this host" in line for line in report) and len(report) == 2


def test_an_ssh_server_without_pam_is_reported(limits: ModuleType) -> None:
    failures, report = judged(limits, session=LOW, uses_pam=False)
    assert failures == []
    assert report[0] == "memlock unlimited: not applied to SSH sessions on this host: sshd has UsePAM no"


def test_more_files_than_the_kernel_gives_is_not_settable(limits: ModuleType) -> None:
    failures, report = judged(limits, fresh=LOW | {"memlock": "unlimited"}, max_files=65536)
    assert failures == [] and report == ["nofile 1048576: not settable on this host, its fs.nr_open is 65536"]


def test_a_session_that_cannot_be_opened_does_not_pass_silently(limits: ModuleType) -> None:
    assert len(judged(limits, fresh={})[1]) == 2


def test_the_lower_of_soft_and_hard_counts(limits: ModuleType) -> None:
    def run(argv: list[str]) -> tuple[int, str, str]:
        return 0, "motd\n8192\nunlimited\n1024\n4096\n", ""

    assert limits.limits_of(run, ["sh", "-c"]) == {"memlock": "8192", "nofile": "1024"}
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
