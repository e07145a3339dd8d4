"""Which lines of fabric manager's log a host sends."""

import subprocess
from pathlib import Path

from nodectl.facts.gpu_services import FABRIC_MANAGER_LOG_FACT


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
