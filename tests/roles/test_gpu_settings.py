"""The gpu_settings role on recorded nvidia-smi and lspci outputs, given by stand-in programs: no GPU is set here."""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.nodectl.fleet.plugins.module_utils import gpu_hw
from ansible_collections.nodectl.fleet.plugins.module_utils.undo import trials
from tests.roles.run_module import run_module

MODULE = "plugins/modules/gpu_settings.py"
# the columns of gpu_hw.FIELDS; values as an A100 with driver 535, an H100 with 590.48.01 and an RTX 2080 SUPER with
# 595.71.05 (a display on it) print them
MODES = "Default, Enabled, Enabled, Disabled, Disabled"
A100 = f"GPU-a, 0, Disabled, Disabled, 400.00, 100.00, 400.00, 1410, 210, 1593, {MODES}"
H100 = f"GPU-h, 1, Enabled, Disabled, 700.00, 200.00, 700.00, [N/A], 345, 2619, {MODES}"
RTX2080 = "GPU-r, 2, Disabled, Enabled, 250.00, 105.00, 350.00, 2145, 300, 405, Default, [N/A], [N/A], [N/A], [N/A]"
LSPCI = """0000:00:01.1 PCI bridge: Advanced Micro Devices, Inc. [AMD] Starship/Matisse GPP Bridge (prog-if 00)
	Capabilities: [2a0 v1] Access Control Services
		ACSCap:	SrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans+
		ACSCtl:	SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-

0000:02:00.0 PCI bridge: PLX Technology, Inc. Device c010 (rev b0) (prog-if 00 [Normal decode])
		ACSCtl:	SrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-

0000:03:00.0 3D controller: NVIDIA Corporation Device 20b5 (rev a1)
		ACSCtl:	SrcValid+ TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-
"""
# `refuses` in its folder names the options that the card does not take: nvidia-smi exits with 0 then
SMI = """#!/usr/bin/python3
import pathlib, sys
folder, words = pathlib.Path("{folder}"), sys.argv[1:]
with (folder / "calls").open("a") as calls:
    print("nvidia-smi", *words, file=calls)
rows = [line.split(", ") for line in (folder / "gpus").read_text().splitlines()]
if words[-2] == "--query-gpu=clocks.max.memory":
    print("1593")
elif "--query-supported-clocks" in words[-2]:
    print("1593, 1410\\n1593, 1395\\n1215, 1095")
elif words[0].startswith("--query-gpu"):
    print((folder / "gpus").read_text(), end="")
elif (folder / "refuses").exists() and words[2] in (folder / "refuses").read_text().split():
    print("Changing power management limit is not supported for GPU: 00000000:1A:00.0.")
    print("Treating as warning and moving on.\\nAll done.")
elif not (folder / "ignores").exists():
    row = next(row for row in rows if row[0] == words[1])
    at = {"-pm": 2, "-pl": 4, "-lgc": 8, "-rgc": 8, "-lmc": 9, "-rmc": 9, "-c": 10, "-e": 11, "-mig": 13}.get(words[2])
    value = (words[3:] or ["210"])[0].split(",")[0]
    value = f"{float(value):.2f}" if words[2] == "-pl" else value.title() if words[2] == "-c" else value
    if at:
        row[at] = {"1": "Enabled", "0": "Disabled"}.get(value, value)
    (folder / "gpus").write_text("".join(", ".join(row) + "\\n" for row in rows))
"""


class Node:
    """Stand-ins for the programs of a driver and of pciutils, on PATH; they note how they are called."""

    def __init__(self, folder: Path, *gpus: str) -> None:
        self.folder, self.bin = folder, folder / "bin"
        self.bin.mkdir()
        (folder / "gpus").write_text("".join(row + "\n" for row in gpus))
        if gpus:
            self.program("nvidia-smi", SMI.replace("{folder}", str(folder)))
        (folder / "lspci.txt").write_text(LSPCI)
        self.program("lspci", f"#!/bin/sh\ncat {folder}/lspci.txt\n")

    def program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def __call__(self, state: str, check: bool = False, trial: str = "", **wanted: Any) -> dict[str, Any]:
        files = {name: str(self.folder / name) for name in ("program", "settings", "unit", "record")}
        arguments = {"state": state, "wanted": wanted, "trial": trial, **files}
        env = {"PATH": f"{self.bin}:/usr/bin:/bin", "RUNTIME_DIRECTORY": str(self.folder)}
        return run_module(MODULE, arguments, folder=self.folder, check=check, env=env)

    def restore(self, trial: trials.Trial) -> None:
        env = {"PATH": f"{self.bin}:/usr/bin:/bin"}
        assert trial.restore(lambda argv: (subprocess.run(argv, env=env, check=False).returncode, "", "")) == []

    def calls(self) -> list[str]:
        lines = (self.folder / "calls").read_text().splitlines()
        return [line for line in lines if "--query" not in line]


def test_what_differs_is_set_and_only_that(tmp_path: Path) -> None:
    node = Node(tmp_path, A100, H100)
    done = node("set", persistence=True, power_limit_w=350, clocks="max")
    assert done["changed"]
    wanted = ["-i GPU-a -pm 1", "-i GPU-a -pl 350.00", "-i GPU-a -lgc 1410,1410", "-i GPU-h -pl 350.00"]
    assert node.calls() == [f"nvidia-smi {words}" for words in wanted], "the H100 names no highest clock"


def test_a_trial_sets_live_values_alone_and_restores_them(tmp_path: Path) -> None:
    node, trial = Node(tmp_path, A100), trials.Trial(f"test-gpu-{os.getpid()}")
    assert trial.arm(lambda argv: (0, "", ""), {}, 0, 600) == ""
    for limit in (350, 300):
        assert node("set", trial=trial.name, persistence=True, power_limit_w=limit, clocks="max", ecc=False)["changed"]
    assert not any("-e" in call.split() for call in node.calls()), "it waits for a reset"
    node.restore(trial)
    assert (tmp_path / "gpus").read_text() == A100 + "\n"
    left = {path.name for path in tmp_path.iterdir()} & {"program", "settings", "unit", "record"}
    assert not left and "restored itself" in node("set", trial=trial.name, persistence=True)["msg"]


def test_check_changes_nothing(tmp_path: Path) -> None:
    node = Node(tmp_path, A100)
    checked = node("set", check=True, persistence=True)
    assert checked["changed"] and node.calls() == [] and not (tmp_path / "settings").exists()
    assert "nvidia-smi -i GPU-a -pm 1" in checked["diff"][-1]["after"]


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({"power_limit_w": 500}, "GPU-a: a power limit of 500 W is outside the card's 100 to 400 W"),
        ({"clocks": "1593,9999"}, "GPU-a: clocks 1593,9999 are none of the card's"),
    ],
)
@pytest.mark.parametrize("state", ["look", "set"])
def test_beyond_the_cards_limits_is_refused(tmp_path: Path, wanted: dict[str, Any], reason: str, state: str) -> None:
    node = Node(tmp_path, A100)
    answer = node(state, **wanted)
    assert answer["failed"] and reason in answer["msg"]
    assert node.calls() == [] and not (tmp_path / "settings").exists()


def test_what_is_no_longer_wanted_goes_back(tmp_path: Path) -> None:
    node = Node(tmp_path, A100)
    node("set", persistence=True, power_limit_w=350)
    assert not node("set", persistence=True, power_limit_w=350)["changed"]
    (tmp_path / "calls").write_text("")
    assert node("set", persistence=True)["changed"]
    assert node.calls() == ["nvidia-smi -i GPU-a -pl 400.00"]
    (tmp_path / "calls").write_text("")
    assert node("set")["changed"] and not (tmp_path / "settings").exists()
    assert "nvidia-smi -i GPU-a -pm 0" in node.calls()
    assert not node("set")["changed"]


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("refuses", "nvidia-smi -i GPU-a -pl 350.00: Changing power management limit is not supported"),
        ("ignores", "GPU-a: power_limit_w is 400.00 after it was set to 350.00"),
    ],
)
def test_a_setting_that_the_card_does_not_take_fails(tmp_path: Path, file: str, reason: str) -> None:
    (tmp_path / file).write_text("-pl")
    done = Node(tmp_path, A100)("set", power_limit_w=350)
    assert done["failed"] and reason in done["msg"]


def test_clocks_are_locked_once_and_again_where_one_is_above(tmp_path: Path) -> None:
    node = Node(tmp_path, A100)
    assert node("set", clocks="1593,1395")["changed"] and not node("set", clocks="1593,1395")["changed"]
    assert node.calls() == [f"nvidia-smi -i GPU-a {words}" for words in ("-lmc 1593,1593", "-lgc 1395,1395")]
    (tmp_path / "gpus").write_text(A100.replace(", 210,", ", 1440,") + "\n")
    assert node("set", clocks="1593,1395")["changed"]
    (tmp_path / "calls").write_text("")
    assert node("set")["changed"] and not node("set")["changed"]
    assert node.calls() == [f"nvidia-smi -i GPU-a {words}" for words in ("-rmc", "-rgc")]


def test_application_clocks_are_set_where_the_card_has_no_lock(tmp_path: Path) -> None:
    (tmp_path / "refuses").write_text("-lgc")
    node = Node(tmp_path, A100)
    assert node("set", clocks="1410")["changed"] and not node("set", clocks="1410")["changed"]
    assert node.calls()[-1] == "nvidia-smi -i GPU-a -ac 1593,1410"


def test_ecc_and_mig_wait_for_a_reset(tmp_path: Path) -> None:
    node = Node(tmp_path, A100)
    wanted: dict[str, Any] = {"ecc": False, "mig": True, "compute_mode": "Exclusive_Process"}
    for changed in (True, False):
        done = node("set", **wanted)
        assert done["changed"] == changed and "GPU-a: mig is Enabled only after a reset" in str(done["warnings"])
    assert node.calls() == [f"nvidia-smi -i GPU-a {words}" for words in ("-e 0", "-mig 1", "-c EXCLUSIVE_PROCESS")]
    reset = A100.replace(MODES, "Exclusive_Process, Disabled, Disabled, Enabled, Enabled")
    (tmp_path / "gpus").write_text(f"{reset}\n")
    assert "warnings" not in node("set", **wanted)


def test_without_a_driver_nothing_is_done_and_nothing_passes(tmp_path: Path) -> None:
    node = Node(tmp_path)
    assert not node("set", persistence=True)["changed"] and not (tmp_path / "settings").exists()
    assert not node("set")["changed"]


MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"
LOST = "Unable to determine the device handle for GPU0000:1A:00.0: Unknown Error"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((18, MISMATCH, ""), MISMATCH),
        ((0, MISMATCH, ""), MISMATCH),
        ((9, "", "NVIDIA-SMI has failed because it could not communicate"), "NVIDIA-SMI has failed"),
        ((6, "No devices were found\n", ""), "No devices were found"),
        ((0, "No devices were found\n", ""), "No devices were found"),
        ((-11, "", ""), "exit status -11"),
        ((124, "", "nvidia-smi did not end within 120 s"), "did not end"),
        ((0, "", ""), "exit status 0, 0 GPUs"),
        ((0, f"{A100}\na, b\n", ""), "a, b"),
        ((0, f"{A100}\n{LOST}\n", ""), LOST),
    ],
)
def test_a_failing_nvidia_smi_is_not_one_without_gpus(answer: tuple[int, str, str], reason: str) -> None:
    with pytest.raises(gpu_hw.UnreadableError, match=reason):
        gpu_hw.gpus(lambda argv: answer)


@pytest.mark.parametrize(
    ("script", "fails"), [(f"echo {MISMATCH}; exit 18", False), (f"echo '{A100}'; echo {LOST}", True)]
)
def test_a_failing_nvidia_smi_changes_nothing(tmp_path: Path, script: str, fails: bool) -> None:
    node = Node(tmp_path, A100, H100)
    node("set", power_limit_w=350)
    kept = {name: (tmp_path / name).read_bytes() for name in ("record", "settings", "gpus")}
    working = (node.bin / "nvidia-smi").read_text()
    node.program("nvidia-smi", f"#!/bin/sh\n{script}\n")
    for done in (node("set", power_limit_w=350), node("set")):
        assert (done.get("failed", False), done.get("changed", False)) == (fails, False)
    assert "stay as they are" in str(node("look", power_limit_w=350)["warnings"])
    assert kept == {name: (tmp_path / name).read_bytes() for name in kept}
    node.program("nvidia-smi", working)
    assert node("set")["changed"] and (tmp_path / "gpus").read_text() == f"{A100}\n{H100}\n"


def test_a_corrupted_inforom_is_no_failure(tmp_path: Path) -> None:
    node = Node(tmp_path, A100)
    node.program("real", (node.bin / "nvidia-smi").read_text())
    warning = "echo WARNING: infoROM is corrupted at gpu 0000:1A:00.0; exit 14"
    node.program("nvidia-smi", f'#!/bin/sh\nreal "$@" || exit\ncase $1 in --query*) {warning};; esac\n')
    assert node("set", power_limit_w=350)["changed"] and not node("set", power_limit_w=350)["changed"]


@pytest.mark.parametrize("script", ["exec sleep 60", "sleep 60 & wait"])
def test_a_hanging_nvidia_smi_is_ended(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_hw, "_DEADLINE_S", 0.2)
    begin = time.monotonic()
    status, _, reason = gpu_hw.run_program(["sh", "-c", script])
    assert (status, reason) == (124, "sh did not end within 0.2 s") and time.monotonic() - begin < 30


def test_access_control_is_read_from_bridges_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    controls = gpu_hw.parse_bridges(LSPCI)
    assert set(controls) == {"0000:00:01.1", "0000:02:00.0"}

    def run(argv: list[str]) -> tuple[int, str, str]:
        return (0, LSPCI, "") if argv[0] == "lspci" else (1, "", "")

    monkeypatch.setattr(gpu_hw, "virtual", lambda: False)
    assert gpu_hw.commands(run, {"acs": "off"}) == [["setpci", "-s", "0000:00:01.1", "ECAP_ACS+0x6.w=0000"]]
    monkeypatch.setattr(gpu_hw, "virtual", lambda: True)
    assert gpu_hw.commands(run, {"acs": "off"}) == []


def test_the_boot_program_does_the_same_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path, A100)
    monkeypatch.setenv("PATH", f"{node.bin}:/usr/bin:/bin")
    (tmp_path / "gpu.json").write_text(json.dumps({"persistence": True, "clocks": None}))
    assert gpu_hw.main(str(tmp_path / "gpu.json")) == 0
    assert node.calls() == ["nvidia-smi -i GPU-a -pm 1"]


def test_what_was_asked_for_and_cannot_be_set_is_a_warning(tmp_path: Path) -> None:
    node = Node(tmp_path, H100, RTX2080)
    said = str(node("set", clocks="max", persistence=True)["warnings"])
    assert node.calls() == []
    assert "clocks of GPU-h: not settable on this host: its driver does not offer it" in said
    assert "persistence, clocks of GPU-r: not settable on this host: a display uses it" in said
    (tmp_path / "none").mkdir()
    assert "persistence: not settable on this host: nvidia-smi is not installed" in str(
        Node(tmp_path / "none")("set", persistence=True)["warnings"]
    )
