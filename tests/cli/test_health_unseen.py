"""`health --one-line --unknown ok`, as a prolog asks: what nobody can see of what the profile promises is no 0."""

import json
import re
import shutil
from pathlib import Path

import pytest

from nodectl.common.resources import recordings_dir
from tests.conftest import Cli

DENIED = "sudo: a password is required\n"
LOST = "NVRM: Xid (PCI:0000:3f:00): 79, pid=1234, name=python3, GPU has fallen off the bus."


def spoiled(folder: Path, *, status: int | None = None, stderr: str = "", **texts: str) -> Path:
    """The bundled recording with other outputs; with `status` these commands ended so."""
    target = folder / "recorded"
    shutil.copytree(recordings_dir() / "h100-8", target)
    index = json.loads((target / "node01" / "index.json").read_text(encoding="utf-8"))
    for name, text in texts.items():
        key = name.replace("_", "-")
        (target / "node01" / f"{key}.out").write_text(text, encoding="utf-8")
        if stderr:
            (target / "node01" / f"{key}.err").write_text(stderr, encoding="utf-8")
        for entry in index:
            if entry["key"] == key and status is not None:
                entry["exit_status"] = status
    (target / "node01" / "index.json").write_text(json.dumps(index), encoding="utf-8")
    return target


def dmesg(*lines: str) -> str:
    booted = (recordings_dir() / "h100-8" / "node01" / "dmesg.out").read_text(encoding="utf-8")
    return booted + "".join(f"{line}\n" for line in lines)


SMI = dict.fromkeys(("nvidia_smi_q", "nvidia_smi_query", "nvidia_smi_nvlink", "nvidia_smi_topo", "nvidia_smi_p2p"), "")


@pytest.mark.parametrize(
    ("outputs", "status", "exit_status", "word"),
    [
        ({}, None, 0, "ok"),
        (SMI, 124, 1, "failed"),
        ({"dmesg": ""}, 124, 1, "failed"),
        ({"dmesg": dmesg(f"<4>[9.0] {LOST}", "<4>[9.1] NVRM: Xid (PCI:0000:3f:0")}, None, 1, "failed"),
        ({"dmesg": dmesg("<4>[9.1] NVRM: Xid (PCI:0000:3f:0")}, None, 3, "unknown"),
        # what a user quotes is no word of the kernel's
        ({"dmesg": dmesg(f"<13>[9.2] {LOST}")}, None, 0, "ok"),
    ],
)
def test_what_a_prolog_is_told(
    nodectl: Cli, tmp_path: Path, outputs: dict[str, str], status: int | None, exit_status: int, word: str
) -> None:
    folder = spoiled(tmp_path, status=status, **outputs)
    done = nodectl("--replay", str(folder), "health", "--one-line", "--unknown", "ok", check=False)
    assert done.returncode == exit_status and done.stdout.startswith(f"{word}: "), done.stdout


def test_what_only_the_logins_rights_hide_is_excused(nodectl: Cli, tmp_path: Path) -> None:
    folder = spoiled(tmp_path, status=1, stderr=DENIED, dmesg="", lspci_acs="")
    ask = ("--replay", str(folder), "health", "--one-line")
    assert nodectl(*ask, check=False).returncode == 3
    assert nodectl(*ask, "--unknown", "ok", check=False).returncode == 0
    assert nodectl(*ask, "--unknown", "fail", check=False).returncode == 1


@pytest.mark.parametrize(("login", "exit_status"), [("", 0), ("root\n", 3)])
def test_what_nvidia_smi_denies_to_root_is_no_matter_of_rights(
    nodectl: Cli, tmp_path: Path, login: str, exit_status: int
) -> None:
    node = recordings_dir() / "h100-8" / "node01"
    report = (node / "nvidia-smi-q.out").read_text(encoding="utf-8")
    denied = re.sub(r"(ECC Mode\n +Current +: )\S+", r"\1Insufficient Permissions", report, count=1)
    session = (node / "session-limits.out").read_text(encoding="utf-8") + login
    folder = spoiled(tmp_path, nvidia_smi_q=denied, session_limits=session)
    done = nodectl("--replay", str(folder), "health", "--one-line", "--unknown", "ok", check=False)
    assert done.returncode == exit_status, done.stdout
