"""What provisioning sets, read from what hosts print: every outcome of the commands that `health` adds."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nodectl.facts.base import Fact, read_fact
from nodectl.facts.host_files import NCCL_FILES_FACT, NcclFiles
from nodectl.facts.services import CLOCK_SYNC_FACT, ClockSync
from nodectl.facts.settings import LIMITS_FACT, SessionLimits, Sysctl, sysctl_fact
from nodectl.model.facts import Unread
from nodectl.model.host import Host
from nodectl.model.recording import Entry, Recording

HOST = Host("gpu01", "192.0.2.1")


def said(fact: Fact[Any], **outputs: tuple[int, str, str]) -> object:
    entries = {
        key.replace("_", "-"): Entry(key, ("sh",), status, out, err, 0.1) for key, (status, out, err) in outputs.items()
    }
    return read_fact(fact, Recording("gpu01", entries))


def test_the_kernel_of_this_machine_is_read_by_the_real_command() -> None:
    fact = sysctl_fact(["net.ipv4.tcp_rmem", "net.ipv4.no_such_thing", "kernel.ostype"])
    argv = fact.commands_on(HOST)[0].argv
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    found = said(fact, sysctl=(0, done.stdout, ""))
    assert isinstance(found, dict)
    assert {"net.ipv4.tcp_rmem", "net.ipv4.no_such_thing", "kernel.ostype", "net.core.rmem_max"} <= set(found)
    assert len(found["net.ipv4.tcp_rmem"].value.split()) == 3
    unknown = Sysctl("net.ipv4.no_such_thing", None, "this kernel has no such setting", unknown=True)
    assert found["net.ipv4.no_such_thing"] == unknown
    assert found["kernel.ostype"] == Sysctl("kernel.ostype", "Linux", "read-only in this kernel view, at Linux")


def test_limits_are_the_lower_of_soft_and_hard() -> None:
    text = "8192\nunlimited\n1024\n4096\n8191\nunlimited\ncap "
    container, machine = "00000000fcecbfff\n", "000001ffffffffff\n"
    wanted = ("8192", "1024", "8191")
    assert said(LIMITS_FACT, session_limits=(0, text + machine, "")) == SessionLimits(*wanted, True)
    assert said(LIMITS_FACT, session_limits=(0, text + container, "")) == SessionLimits(*wanted, False)
    assert isinstance(said(LIMITS_FACT, session_limits=(0, text, "")), Unread)
    assert isinstance(said(LIMITS_FACT, session_limits=(0, "8192\n", "")), Unread)
    done = subprocess.run(LIMITS_FACT.commands_on(HOST)[0].argv, capture_output=True, text=True, check=True)
    assert isinstance(said(LIMITS_FACT, session_limits=(0, done.stdout, "")), SessionLimits)


@pytest.mark.parametrize(
    ("variable", "profile"),
    [
        ("{home}/own.conf", ""),
        ("", "export NCCL_CONF_FILE='{home}/own.conf' # ours\n"),
        ("", "NCCL_CONF_FILE=~/own.conf\n"),
    ],
)
def test_the_file_that_nccl_conf_file_names_goes_for_the_logins(tmp_path: Path, variable: str, profile: str) -> None:
    for name, text in ((".nccl.conf", "A=1\n"), ("own.conf", "NCCL_NET=IB\n"), (".profile", profile)):
        (tmp_path / name).write_text(text.format(home=tmp_path))
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "NCCL_CONF_FILE": variable.format(home=tmp_path)}
    done = subprocess.run(
        NCCL_FILES_FACT.commands_on(HOST)[1].argv, capture_output=True, text=True, check=True, env=env
    )
    found = said(NCCL_FILES_FACT, nccl_conf=(0, "", ""), nccl_conf_user=(0, done.stdout, ""))
    assert found == NcclFiles("", "NCCL_NET=IB\n", str(tmp_path / "own.conf"))


def test_a_missing_nccl_file_is_none_and_an_unreadable_one_is_unknown() -> None:
    missing = (1, "", "cat: /etc/nccl.conf: No such file or directory")
    assert said(NCCL_FILES_FACT, nccl_conf=(0, "A=1\n", ""), nccl_conf_user=missing) == NcclFiles("A=1\n", None)
    denied = (1, "", "cat: /etc/nccl.conf: Permission denied")
    named = (1, "NCCL_CONF_FILE\t/own\n", "cat: /own: No such file or directory")
    assert said(NCCL_FILES_FACT, nccl_conf=missing, nccl_conf_user=named) == NcclFiles(None, None, "/own")
    assert isinstance(said(NCCL_FILES_FACT, nccl_conf=denied, nccl_conf_user=missing), Unread)


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ((0, "chrony Normal\n", ""), ClockSync(True, "chrony: Normal")),
        ((0, "chrony Not synchronised\n", ""), ClockSync(False, "chrony: Not synchronised")),
        ((0, "systemd yes\n", ""), ClockSync(True, "systemd: yes")),
        ((3, "", ""), Unread("unknown", "neither chronyc nor timedatectl answers")),
    ],
)
def test_who_keeps_the_clock(answer: tuple[int, str, str], found: object) -> None:
    assert said(CLOCK_SYNC_FACT, clock_sync=answer) == found
