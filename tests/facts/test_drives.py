"""Drives: smartctl's and nvme's forms, whom they cannot tell anything, and the real script with stand-ins for both."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from nodectl.facts.storage import DRIVES_FACT, Drive, Drives
from nodectl.model.facts import Unread
from nodectl.model.host import Host
from tests.facts.recorded import fact

HEALTH = {"critical_warning": 4, "available_spare": 97, "percentage_used": 12, "media_errors": 3}
NVME = {"critical_warning": {"value": 1}, "avail_spare": 5, "percent_used": 101, "media_errors": "18446744073709551616"}
ATTRIBUTES = [
    {"id": 5, "name": "Reallocated_Sector_Ct", "when_failed": "now", "raw": {"value": 4000}},
    {"id": 190, "name": "Airflow_Temperature_Cel", "when_failed": "past", "raw": {"value": 55}},
    {"id": 197, "name": "Current_Pending_Sector", "when_failed": "", "raw": {"value": 8}},
    {"id": 198, "name": "Offline_Uncorrectable", "when_failed": "", "raw": {"value": 2}},
]


def said(**drives: Any) -> str:
    return "".join(f"drive /dev/{name}\n{json.dumps(each, indent=2)}\n" for name, each in drives.items())


def test_every_form() -> None:
    text = said(
        nvme0={"smart_status": {"passed": False}, "nvme_smart_health_information_log": HEALTH},
        nvme1=NVME,
        sda={"smart_status": {"passed": True}, "ata_smart_attributes": {"table": ATTRIBUTES}},
        sdb={"smart_status": {"passed": True}, "scsi_error_counter_log": {"read": {"total_uncorrected_errors": 7}}},
    )
    assert fact("drives", drives=text).drives == (
        Drive("/dev/nvme0", False, 4, 12, 3),
        Drive("/dev/nvme1", None, 1, 101, 2**64),
        Drive("/dev/sda", True, unreadable_sectors=10, failed_attributes=("Reallocated_Sector_Ct",)),
        Drive("/dev/sdb", True, media_errors=7),
    )


def test_a_virtual_disk_says_nothing_and_one_that_broke_off_is_silent() -> None:
    text = said(sda={"smartctl": {"exit_status": 4}}) + 'drive /dev/nvme0\n{"smart_st\n'
    assert fact("drives", drives=text) == Drives((), ("/dev/nvme0",))
    denied = said(nvme0={"smartctl": {"messages": [{"string": "Smartctl open device failed: Permission denied"}]}})
    assert fact("drives", drives=denied) == Drives((), ("/dev/nvme0",))


def test_what_is_not_there_is_absent_and_what_sudo_refuses_unknown() -> None:
    assert fact("drives", drives=3) == Unread("absent", "neither smartctl nor nvme is installed")
    assert fact("drives", drives="").kind == "absent"
    refused = fact("drives", drives=(0, "drive /dev/nvme0\ndrive /dev/nvme1\n", "sudo: a password is required\n"))
    assert refused.kind == "unknown" and "nodectl sudoers" in refused.reason


def run(tmp_path: Path, *tools: str) -> subprocess.CompletedProcess[str]:
    """The script where only these tools are, and the drives are files."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "nvme0").touch()
    (tmp_path / "sda").touch()
    for tool in tools:
        (tmp_path / "bin" / tool).write_text('#!/bin/sh\necho "{\\"asked\\": \\"${0##*/} $*\\"}"\n')
        (tmp_path / "bin" / tool).chmod(0o755)
    shell = "/bin/sh"
    text = DRIVES_FACT.commands_on(Host("gpu01", "gpu01"))[0].argv[-1].replace("/dev/nvme", f"{tmp_path}/nvme")
    text = text.replace("/dev/sd", f"{tmp_path}/sd")
    env = {**os.environ, "PATH": f"{tmp_path}/bin"}
    return subprocess.run([shell, "-c", text], capture_output=True, text=True, check=False, env=env)


def test_smartctl_is_asked_of_each_drive_with_what_sudoers_allows(tmp_path: Path) -> None:
    done = run(tmp_path, "smartctl", "nvme")
    options = "smartctl -j -n standby -H -A"
    expected = [f'{{"asked": "{options} {tmp_path}/{name}"}}' for name in ("nvme0", "sda")]
    assert [line for line in done.stdout.splitlines() if line.startswith("{")] == expected
    (command,) = DRIVES_FACT.commands_on(Host("gpu01", "gpu01"))
    assert {" ".join(argv[:-1]) for argv in command.sudo} == {options, "nvme smart-log -o json"}


def test_nvme_is_asked_where_smartctl_is_not(tmp_path: Path) -> None:
    done = run(tmp_path, "nvme")
    assert done.stdout == f'drive {tmp_path}/nvme0\n{{"asked": "nvme smart-log -o json {tmp_path}/nvme0"}}\n'
