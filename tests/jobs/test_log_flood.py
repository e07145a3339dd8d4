"""64 ranks on four lab hosts that print 1,000 lines a second each: all are followed, whole, in little memory."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import pytest

from tests.jobs.test_jobs_lab import Shell, lab, launcher_everywhere, shell

__all__ = ["lab", "launcher_everywhere", "shell"]
pytestmark = [pytest.mark.lab, pytest.mark.slow]

RANKS, SECONDS = 16, 10
# what --redirects does, then the flood; one rank of each host prints a line of 10 MB, one what drives terminals
FLOOD = f"""
import os, time
ranks, rank = os.environ["NODECTL_JOB_DIR"] + "/ranks", os.environ["LOCAL_RANK"]
os.makedirs(f"{{ranks}}/run/attempt_0/{{rank}}")
open(f"{{ranks}}/only-copy", "w").close()
out = os.open(f"{{ranks}}/run/attempt_0/{{rank}}/stdout.log", os.O_WRONLY | os.O_CREAT, 0o644)
begun = time.monotonic()
for batch in range({SECONDS} * 20):
    time.sleep(max(0, begun + batch / 20 - time.monotonic()))
    text = "".join(f"line {{number}} {{'x' * 60}}\\n" for number in range(batch * 50, batch * 50 + 50))
    if rank == "3" and batch == 50:
        text += "y" * 10_000_000 + "\\n"
    if rank == "4" and batch == 50:
        text += "\\x1b[2J\\x1b]0;title\\x07\\n"
    for data in (text[:777], text[777:]):  # never whole lines in one write
        data = data.encode()
        while data:
            data = data[os.write(out, data):]
"""
_LINE = re.compile(r"(\S+) +\| \[(\d+)\] line (\d+) x{60}")


def _peak_mib(process: subprocess.Popen[bytes]) -> int:
    """The most memory that it had, asked until it ends."""
    peak = 0
    while process.poll() is None:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
        peak = int(found[1]) // 1024 if found else peak
        time.sleep(0.2)
    return peak


def test_a_flood_is_followed_without_loss_or_mixing(shell: Shell, tmp_path: Path) -> None:
    argv = shell.launch_argv(FLOOD, "--nproc-per-node", str(RANKS))
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        words = [sys.executable, "-m", "nodectl", "-i", shell.lab.inventory, *argv]
        process = subprocess.Popen(words, env=shell.nodectl.env, stdout=out, stderr=err)
        peak_mib = _peak_mib(process)
    assert process.returncode == 0, (tmp_path / "err").read_text()
    numbers: dict[tuple[str, str], list[int]] = defaultdict(list)
    others: list[str] = []
    with (tmp_path / "out").open(encoding="utf-8") as lines:
        for line in lines:
            found = _LINE.fullmatch(line.rstrip("\n"))
            if found:
                numbers[found[1], found[2]].append(int(found[3]))
            else:
                others.append(line)
    assert len(numbers) == 4 * RANKS
    assert all(said == list(range(SECONDS * 1000)) for said in numbers.values())
    said = [line.partition("| ")[2].rstrip("\n") for line in others if "| [" in line]
    assert sorted(said) == sorted(4 * ["[3] " + "y" * 10_000_000] + 4 * [r"[4] \x1b[2J\x1b]0;title\x07"])
    assert 0 < peak_mib < 300, peak_mib
