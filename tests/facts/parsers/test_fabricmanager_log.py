"""Fabric manager's log as it is: without a weekday, behind a journal's prefix, by its start script."""

import subprocess
from pathlib import Path

import pytest

from nodectl.errors import ParseError
from nodectl.facts.gpu_services import FABRIC_MANAGER_LOG_FACT
from nodectl.facts.parsers.nvidia.fabricmanager_log import FabricManagerEvent, parse_fabricmanager_log

FATAL = "detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:86:00.0 physical id 3 port 33"


@pytest.mark.parametrize(
    ("prefix", "time", "level"),
    [
        ("[Jul 23 2024 07:53:55] [ERROR] [tid 841] ", "Jul 23 2024 07:53:55", "ERROR"),
        ("[Tue Jul 23 2024 07:53:55] [ERROR] [tid 841] ", "Tue Jul 23 2024 07:53:55", "ERROR"),
        ("[Sep  8 2025 23:21:50] [ERROR] ", "Sep  8 2025 23:21:50", "ERROR"),
        ("n7 nv-fabricmanager[9]: [May 16 2025 15:10:21] [ERROR] [tid 3] ", "May 16 2025 15:10:21", "ERROR"),
        ("Mar 03 18:39:57 node07 nv-fabricmanager[5183]: ", None, None),
        ("Mar 03 18:39:57 node07 nvidia-fabricmanager-start.sh[5183]: [ERROR] ", None, "ERROR"),
        ("", None, None),
    ],
)  # fmt: skip
def test_an_error_of_a_switch_in_every_form(prefix: str, time: str | None, level: str | None) -> None:
    log = parse_fabricmanager_log(f"{prefix}{FATAL}\n")
    assert log.events == (FabricManagerEvent(time, level, FATAL, 20034, "fatal", "00000000:86:00.0", 33),)


@pytest.mark.parametrize(
    ("line", "troubles"),
    [
        ("[Feb 25 2025 13:59:45] [INFO] [tid 1803] Received an inband message:  status:0 type:4 length:14", 0),
        ("[Feb 25 2025 13:59:45] [INFO] [tid 1803] ABORT_CUDA_JOBS_ON_FM_EXIT = 1, link failure mode = 0", 0),
        ("Aug 27 07:13:21 node07 nvidia-fabricmanager-start.sh[30946]: Started \"Nvidia Fabric Manager\"", 0),
        ("Aug 11 06:47:54 n7 nvidia-fabricmanager-start.sh[18685]: \"nv-fabricmanager\" failed! Exit code: 1", 1),
        ("Aug 11 06:47:54 node07 systemd[1]: nvidia-fabricmanager.service: Failed with result 'exit-code'.", 1),
        ("[Sep 17 2024 06:01:46] [ERROR] [tid 12] failed to find the GPU handle 54 in the multicast team request", 1),
    ],
)  # fmt: skip
def test_what_is_trouble_and_what_is_not(line: str, troubles: int) -> None:
    log = parse_fabricmanager_log(f"{line}\nMessage payload details:Team release request: Flags:0\n\n")
    assert (len(log.events), log.lines) == (troubles, 1)


def test_another_programs_log_is_refused() -> None:
    with pytest.raises(ParseError, match="no line of fabric manager's"):
        parse_fabricmanager_log("Aug 27 07:13:21 node07 sshd[1]: Accepted publickey\n")


def test_of_the_file_only_lines_since_the_boot_are_sent(tmp_path: Path) -> None:
    log, uptime = tmp_path / "fabricmanager.log", tmp_path / "uptime"
    old = (
        "[Oct  9 2026 07:00:00] [ERROR] [tid 1] before the boot\n[Wed Oct  7 2026 07:00:00] [ERROR] [tid 1] long ago\n"
    )
    new = "[Oct 11 2026 07:00:01] [ERROR] [tid 1] after it\n[Mon Oct 12 2026 00:00:00] [ERROR] [tid 1] later\n"
    log.write_text(old + new)
    uptime.write_text("#!/bin/sh\necho 2026-10-11 07:00:00\n")
    uptime.chmod(0o755)
    (command,) = FABRIC_MANAGER_LOG_FACT.commands  # type: ignore[misc]  # it is a tuple: the fact asks for one command
    shell = command.argv[2].replace("/var/log/fabricmanager.log", str(log))
    done = subprocess.run(
        ["sh", "-c", shell], capture_output=True, text=True, check=True, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}
    )
    assert done.stdout == new
