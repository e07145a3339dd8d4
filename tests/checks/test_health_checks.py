"""Each check of `health`: when it fires, when it is quiet, when it cannot tell."""

from dataclasses import replace
from typing import Any

import pytest

from nodectl.checks.catalogue import checks
from nodectl.checks.check import Subject
from nodectl.checks.judge import judge
from nodectl.facts.host_files import NcclFiles
from nodectl.facts.network import Nic
from nodectl.facts.processors import Memory
from nodectl.facts.services import Clock, ClockSync
from nodectl.facts.settings import LoginLimits, SessionLimits, Sysctl
from nodectl.facts.storage import Disk
from nodectl.facts.versions import Versions
from nodectl.model.facts import Unread
from nodectl.profiles.resolve import Resolved, resolve

RMEM = "net.ipv4.tcp_rmem"
WANTED = resolve("unknown", "cpu", "article-20g", overrides={"nic": {"mtu": 9000}})
CONF = "".join(f"{name}={value}\n" for name, value in WANTED.nccl_env.items())
UNLIMITED = SessionLimits("unlimited", "1048576", "8192")
GOOD: dict[str, object] = {
    "sysctl": {key: Sysctl(key, setting.value) for key, setting in WANTED.tuning.sysctl.items()},
    "limits": UNLIMITED,
    "nccl_files": NcclFiles(CONF, None),
    "nics": {"ens1": Nic("ens1", "up", 9000, None, (), 100000, "mlx5_core"), "br0": Nic("br0", "up", 1500, None, ())},
    "versions": Versions("/v", torch=f"{WANTED.stack.torch}+cpu"),
    "gpus": Unread("absent", "nvidia-smi is not installed"),
    "memory": Memory(64000, 60000, 0, 32000),
    "disk": Disk(50000, 20000, "/root/.local/state/nodectl", 20000),
    "time": Clock(0.01, 0.02),
    "clock_sync": ClockSync(True, "chrony: Normal"),
    "lab": Unread("absent", "not a lab host"),
}


def bad(
    wanted: Resolved | None = WANTED, variables: dict[str, Any] | None = None, **facts: object
) -> set[tuple[str, ...]]:
    found = judge(Subject("gpu01", {**GOOD, **facts}, wanted, variables or {}))
    return {
        (each.check, each.subject, each.status.value) for each in found if each.status.value not in ("ok", "skipped")
    }


# the article's two variables of NCCL's debugging class are a warning wherever they stand
DEBUG = {("nccl_debug", "NCCL_ALGO", "warning"), ("nccl_debug", "NCCL_PROTO", "warning")}


def test_a_host_that_is_as_wanted_is_quiet_but_for_debugging_variables() -> None:
    assert bad() == DEBUG
    found = judge(Subject("gpu01", GOOD, WANTED))
    assert (
        {each.host for each in found} == {"gpu01"}
        and len({each.check for each in found}) > 10
        and {each.check for each in found} <= set(checks())
    )
    assert not [each for each in found if each.status.value == "ok" and each.remedy]


@pytest.mark.parametrize(
    ("facts", "finding"),
    [
        ({"sysctl": {}}, ("kernel_settings", RMEM, "unknown")),
        ({"sysctl": {RMEM: Sysctl(RMEM, "4096 131072 6291456")}}, ("kernel_settings", RMEM, "failed")),
        ({"sysctl": Unread("unknown", "cut")}, ("kernel_settings", "", "unknown")),
        ({"limits": SessionLimits("8192", "1048576", "8192")}, ("limits", "memlock", "failed")),
        ({"limits": SessionLimits("unlimited", "1024", "8192")}, ("limits", "nofile", "failed")),
        ({"limits": Unread("unknown", "cut")}, ("limits", "", "unknown")),
        ({"nccl_files": NcclFiles(None, None)}, ("nccl_file", "NCCL_ALGO", "failed")),
        ({"nccl_files": NcclFiles(CONF.replace("=4", "= 4"), None)}, ("nccl_file", "NCCL_NSOCKS_PERTHREAD", "failed")),
        ({"nccl_files": NcclFiles(CONF + "NCCL_NET=IB\n", None)}, ("nccl_file", "NCCL_NET", "warning")),
        ({"nccl_files": NcclFiles(CONF, "NCCL_ALGO=Ring\n")}, ("nccl_file", "NCCL_ALGO of user", "warning")),
        ({"nccl_files": NcclFiles(CONF, "NCCL_P2P_DISABLE=1\n")}, ("nccl_debug", "NCCL_P2P_DISABLE", "warning")),
        ({"nccl_files": Unread("unknown", "cut")}, ("nccl_file", "", "unknown")),
        ({"nccl_files": Unread("unknown", "cut")}, ("nccl_debug", "", "unknown")),
        ({"nics": Unread("unknown", "cut")}, ("mtu", "", "unknown")),
        ({"time": Clock(-9.0, 0.1)}, ("clock", "offset", "failed")),
        ({"time": Clock(2.0, 0.1)}, ("clock", "offset", "warning")),
        # near our clock only if the answer came fast: 2 s may lie between
        ({"time": Clock(-2.0, 2.0)}, ("clock", "offset", "unknown")),
        ({"time": Clock(0.0, 1.5)}, ("clock", "offset", "unknown")),
        ({"clock_sync": ClockSync(False, "systemd: no")}, ("clock", "synchronisation", "warning")),
        ({"clock_sync": Unread("unknown", "nobody answers")}, ("clock", "", "unknown")),
    ],
)
def test_what_is_not_as_wanted_is_found(facts: dict[str, Any], finding: tuple[str, str, str]) -> None:
    assert finding in bad(**facts)


def test_a_clock_that_may_be_right_is_not_called_wrong() -> None:
    found = {each[2] for each in bad(time=Clock(-6.0, 6.5)) if each[0] == "clock"}
    assert found == {"unknown"}, "within the error of the round trip: not right, either"


def test_without_profiles_only_the_host_itself_is_judged() -> None:
    assert {check for check, _, _ in bad(None)} == {"nccl_debug"}
    assert ("disk", "/", "warning") in bad(None, disk=Disk(50000, 20, "/s", 2000))


def test_an_unlimited_stack_crashes_an_old_nccl() -> None:
    unlimited, finding = replace(UNLIMITED, stack="unlimited"), ("limits", "stack", "warning")
    assert finding in bad(resolve("unknown", "cu121", "stock"), limits=unlimited)
    assert finding not in bad(limits=unlimited)


LOGIN = LoginLimits("op", "unlimited", "1048576", "8192", uses_pam=True)


@pytest.mark.parametrize(
    ("facts", "finding"),
    [
        # a session that is older than the files says nothing about the next one
        ({"limits": SessionLimits("8192", "1024", "8192")}, None),
        ({"login_limits": replace(LOGIN, memlock="8192")}, "failed"),
        ({"login_limits": replace(LOGIN, memlock=None)}, "unknown"),
        (
            {"limits": SessionLimits("8192", "1048576", "8192"), "login_limits": replace(LOGIN, uses_pam=False)},
            "warning",
        ),
    ],
)
def test_a_fresh_login_goes_before_the_session_that_asks(facts: dict[str, Any], finding: str | None) -> None:
    found = {each for each in bad(**{"login_limits": LOGIN, **facts}) if each[0] == "limits"}
    assert found == ({("limits", "memlock", finding)} if finding else set())
