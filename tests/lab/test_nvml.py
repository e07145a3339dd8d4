"""The real nvidia-smi on top of the simulated NVML prints what the state holds, and sets it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ansible_collections.nodectl.fleet.plugins.module_utils import gpu_hw
from nodectl.errors import ParseError
from nodectl.facts.base import AbsentError, Fact
from nodectl.facts.gpus import GPU_TOPOLOGY_FACT, GPUS_FACT, NVLINK_FACT, P2P_FACT, Gpu
from nodectl.facts.parsers.catalogue import parser_of
from nodectl.facts.parsers.nvidia.smi_q.report import parse_nvidia_smi_q
from nodectl.facts.parsers.nvidia.smi_table import parse_nvidia_smi
from nodectl.lab.base import write_file
from nodectl.lab.composed import host_of
from nodectl.lab.dress import hardware_commands
from nodectl.lab.faults import FAULTS, Scene
from nodectl.lab.nvml import STATE, programs, smi_folder, state_of
from nodectl.model.recording import Entry, Recording
from nodectl.model.status import Status
from nodectl.payload.jobs import node_end, pulse
from nodectl.payload.jobs.preflight import answer
from tests.profiles.test_boxes import judged

COMMANDS = tuple(command for command in hardware_commands() if command.argv[0] == "nvidia-smi")
pytestmark = pytest.mark.skipif(not programs(), reason=f"{smi_folder()} is empty: run `make nvidia-smi`")
each_version = pytest.mark.parametrize("program", programs(), ids=lambda path: path.parent.name)
BOXES = (
    *("8 x h100-80gb-hbm3", "8 x h200", "8 x a100-sxm4-80gb", "8 x b200", "4 x gb200", "8 x v100-sxm2-32gb"),
    *("4 x l40s", "2 x t4", "4 x a10g", "2 x h100-pcie", "4 x rtx4090", "2 x a5000 + 1 x rtx3090"),
)
# the recordings that composed hosts begin with are of driver 580, which prints more than 535 and 550
_NEWER = {"part_number", "addressing_mode", "recovery_action", "channel_repair_pending", "tpc_repair_pending"}
_NEWER |= {"clock_event_counters_us", "fabric_clique_id", "fabric_cluster_uuid", "unavailable"}
# driver 580 has no application clocks any more
_OLDER = {"applications_graphics_clock_mhz", "applications_memory_clock_mhz"}


@dataclass(frozen=True)
class Simulated:
    """One version of nvidia-smi, and the state file under it."""

    program: Path
    state: Path

    @property
    def env(self) -> dict[str, str]:
        library = {"LD_LIBRARY_PATH": str(self.program.parents[1]), "NODECTL_NVML_STATE": str(self.state)}
        return {**os.environ, **library, "PATH": f"{self.program.parent}:{os.environ['PATH']}"}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = ["nvidia-smi", *words]
        return subprocess.run(argv, capture_output=True, text=True, env=self.env, check=False, timeout=60)

    def answer(self, argv: list[str]) -> tuple[int, str, str]:
        """What a module's runner returns for this command line of nvidia-smi."""
        done = self.run(*argv[1:])
        return done.returncode, done.stdout, done.stderr

    def recorded(self, base: Recording) -> Recording:
        """The recording with what this nvidia-smi prints."""
        entries: dict[str, Entry] = {}
        for command in COMMANDS:
            done = self.run(*command.argv[1:])
            said = {"exit_status": done.returncode, "stdout": done.stdout, "stderr": done.stderr}
            entries[command.key] = replace(base.entries[command.key], **said)  # type: ignore[arg-type]
        return replace(base, entries={**base.entries, **entries})

    def values(self, gpu: int) -> dict[str, str]:
        rows = (line.split(" ", 2) for line in self.state.read_text().splitlines())
        return {key: value for index, key, value in rows if index == str(gpu)}

    def write(self, *lines: str) -> None:
        """Put lines in front: the first of a key counts."""
        self.state.write_text("".join(f"{line}\n" for line in lines) + self.state.read_text())


def simulated(program: Path, folder: Path, box: str) -> tuple[Simulated, Recording]:
    host = host_of(box)
    write_file(folder / STATE, state_of(host))
    return Simulated(program, folder / STATE), host


def differences(one: Gpu, other: Gpu) -> set[str]:
    names = {item.name for item in fields(Gpu)} - _NEWER - _OLDER
    return {name for name in names if getattr(one, name) != getattr(other, name)}


def links(fact: Fact[Any], host: Recording) -> Any:
    try:
        return fact.read(host)
    except AbsentError as error:
        return str(error)


@each_version
@pytest.mark.parametrize("box", BOXES)
def test_readers_find_the_values_of_the_state(program: Path, box: str, tmp_path: Path) -> None:
    smi, host = simulated(program, tmp_path, box)
    printed = smi.recorded(host)
    expected, gpus = GPUS_FACT.read(host), GPUS_FACT.read(printed)
    assert gpus.disputed == "" and gpus.lost == () and gpus.warnings == ()
    # Blackwell is unknown to both versions; V100 counts ECC by other memories
    known = {"product_architecture"} if "b200" in box else set()
    known |= {"ecc_sram_threshold_exceeded"} if " t4" in box or "v100" in box else set()
    sram = {item.name for item in fields(Gpu) if "_sram_" in item.name} if "v100" in box else set()
    for one, other in zip(expected.devices, gpus.devices, strict=True):
        assert differences(one, other) <= known | sram
    table = replace(printed, entries={key: printed.entries[key] for key in ("nvidia-smi-query",)})
    for one, other in zip(expected.devices, GPUS_FACT.read(table).devices, strict=True):
        places = (other.bus_id, other.memory_total_mib, other.vbios_version, other.uuid)
        assert places == (one.bus_id, one.memory_total_mib, one.vbios_version, one.uuid)
    for fact in (GPU_TOPOLOGY_FACT, P2P_FACT, NVLINK_FACT):
        assert links(fact, printed) == links(fact, host)
    assert [each for each in judged(printed, box) if each.status not in (Status.OK, Status.SKIPPED)] == []
    for words in ((), ("-L",), ("-q", "-x")):
        assert smi.run(*words).returncode == 0


ERRORS = {"Unknown Error": "!999", "GPU is lost": "!15", "GPU requires reset": "!16"}


@each_version
@pytest.mark.parametrize("error", ERRORS)
def test_a_gpu_whose_values_are_errors_does_not_hide_the_others(program: Path, error: str, tmp_path: Path) -> None:
    smi, host = simulated(program, tmp_path, "3 x h100-80gb-hbm3")
    known, keys = smi.state.read_text(), [key for key in smi.values(1) if key != "BusId"]
    for failing in ([*keys], *([key] for key in keys)):
        smi.state.write_text("".join(f"1 {key} {ERRORS[error]}\n" for key in failing) + known)
        table = parse_nvidia_smi(smi.run().stdout).gpus
        assert [gpu.index for gpu in table] == [0, 1, 2]
        assert [gpu.unavailable for gpu in (table[0], table[2])] == [{}, {}]
        if failing == ["MemoryInfo"]:
            assert table[1].unavailable == {"memory_used_mib": error, "memory_total_mib": error}
    smi.state.write_text("".join(f"1 {key} {ERRORS[error]}\n" for key in keys) + known)
    recorded = smi.recorded(host)
    gpus = GPUS_FACT.read(recorded)
    assert (len(gpus.lost), gpus.count) == ((1, 2) if error == "GPU is lost" else (0, 3))
    found = [each for each in judged(recorded, "3 x h100-80gb-hbm3") if each.check == "gpu_reset_required"]
    assert {each.status for each in found} == ({Status.FAILED} if "reset" in error else {Status.SKIPPED})


@each_version
def test_a_lost_gpu_is_one_and_hides_no_other(program: Path, tmp_path: Path) -> None:
    box = "3 x h100-80gb-hbm3"
    smi, host = simulated(program, tmp_path, box)
    for line, place in (("1 Lost 1", "GPU 0001:13:00.0"), ("1 Gone 1", "GPU 1")):
        smi.write(line)
        recorded = smi.recorded(host)
        gpus = GPUS_FACT.read(recorded)
        assert (gpus.count, len(gpus.lost), {gpu.index for gpu in gpus.devices}) == (2, 1, {0, 2})
        found = [each for each in judged(recorded, box) if each.status is Status.FAILED]
        assert {each.check for each in found} == {"gpus", "gpu_lost"}
        assert [each.subject for each in found if each.check == "gpu_lost"] == [place]
        assert not any("the driver has not taken" in each.actual for each in found)


@each_version
def test_a_gpu_whose_links_are_not_listed_is_named(program: Path, tmp_path: Path) -> None:
    smi, host = simulated(program, tmp_path, "3 x h100-80gb-hbm3")
    known = smi.state.read_text()
    for line, unlisted in (("1 Field.91 0", ["GPU 1"]), ("1 Name !999", ["GPU 1", "GPU 2"])):
        smi.state.write_text(f"{line}\n{known}")
        found = [each for each in judged(smi.recorded(host), "3 x h100-80gb-hbm3") if each.check == "nvlink_active"]
        assert [each.subject for each in found if each.status is Status.UNKNOWN] == unlisted
        assert not any(each.status is Status.FAILED for each in found)


OUTPUTS: Mapping[str, tuple[str, ...]] = {
    "nvidia-smi": (),
    "nvidia-smi-q": ("-q",),
    "nvidia-smi-q -x": ("-q", "-x"),
    "nvidia-smi-query": ("--query-gpu=index,uuid", "--format=csv"),
    "nvidia-smi-nvlink": ("nvlink", "-s"),
}


@each_version
@pytest.mark.parametrize("output", OUTPUTS)
def test_outputs_of_two_machines_are_refused(program: Path, output: str, tmp_path: Path) -> None:
    smi, _ = simulated(program, tmp_path, "2 x h100-80gb-hbm3")
    parse, text = parser_of(output.removesuffix(" -x")), smi.run(*OUTPUTS[output]).stdout
    smi.state.write_text(re.sub(r"UUID GPU-\S{8}", "UUID GPU-0badcafe", smi.state.read_text()))
    parse(text)
    with pytest.raises(ParseError, match=r"above|twice|another"):
        parse(text + smi.run(*OUTPUTS[output]).stdout)


@each_version
def test_a_sum_that_is_cut_is_no_sum(program: Path, tmp_path: Path) -> None:
    smi, _ = simulated(program, tmp_path, "2 x h100-80gb-hbm3")
    smi.write("1 MemoryErrorCounter.1.0.2 120")
    lines = smi.run("-q").stdout.splitlines()
    volatile = [number for number, line in enumerate(lines) if line.strip() == "Volatile"][-1]
    end = next(number for number in range(volatile, len(lines)) if "SRAM Uncorrectable" in lines[number])
    report = parse_nvidia_smi_q("\n".join(lines[: end + 1]) + "\n")
    assert report.is_cut and report.gpus[1].ecc_volatile_uncorrectable is None
    assert parse_nvidia_smi_q("\n".join(lines)).gpus[1].ecc_volatile_uncorrectable == 120


@each_version
@pytest.mark.parametrize("kind", [name for name, fault in FAULTS.items() if fault.dressed])
def test_each_fault_is_found_on_its_gpu_and_healed(program: Path, kind: str, tmp_path: Path) -> None:
    box, fault = "8 x h100-80gb-hbm3", FAULTS[kind]
    smi, host = simulated(program, tmp_path, box)
    before = smi.state.read_text()
    scene = cast("Scene", SimpleNamespace(root=tmp_path))
    fault.happens(scene, "")
    found = [each for each in judged(smi.recorded(host), box) if each.check in fault.checks]
    # the last of eight
    place = "0001:25:00.0" if kind == "gpu-lost" else "GPU 7"
    assert [each.status for each in found if place in each.subject] == [Status.FAILED]
    assert all(each.status is Status.OK for each in found if place not in each.subject)
    fault.heal(scene, "")
    assert smi.state.read_text() == before


def each_gpu(count: int, *lines: str) -> list[str]:
    return [f"{gpu} {line}" for gpu in range(count) for line in lines]


@each_version
@pytest.mark.parametrize(
    ("box", "lines", "check", "failed", "auto"),
    [
        ("4 x h200", each_gpu(4, "Field.165 0"), "nvlink_count", [""], Status.WARNING),
        ("4 x h200", ["3 GpuFabricInfo 2 0 0"], "gpu_fabric", ["GPU 3 (0001:19:00.0)"], Status.FAILED),
        ("4 x h200", ["1 UUID GPU-0", "0 UUID GPU-0"], "gpu_report", [], Status.OK),
        ("4 x h200", ["3 MemoryErrorCounter.1.0.2 -1"], "gpu_report", [], Status.OK),
        ("4 x h200", each_gpu(4, "Gone 1"), "gpu_lost", ["GPU 0", "GPU 1", "GPU 2", "GPU 3"], Status.FAILED),
    ],
)
def test_what_stands_on_one_gpu_or_on_all_is_judged(
    program: Path, box: str, lines: list[str], check: str, failed: list[str], auto: Status, tmp_path: Path
) -> None:
    smi, host = simulated(program, tmp_path, box)
    smi.write(*lines)
    recorded = smi.recorded(host)
    found = [each for each in judged(recorded, box) if each.check == check]
    assert [each.subject for each in found if each.status is not Status.OK] == failed
    assert {each.status for each in found} == {Status.FAILED if failed else Status.OK}
    assert {each.status for each in judged(recorded, "auto") if each.check == check} == {auto}


@each_version
def test_programs_of_a_job_see_that_a_gpu_is_lost(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi, _ = simulated(program, tmp_path, "2 x h100-80gb-hbm3")
    for name, value in smi.env.items():
        monkeypatch.setenv(name, value)
    assert (answer.gpu_count(), node_end._gpus({"gpus_per_node": 2})) == (2, "")
    smi.write("1 Lost 1")
    assert (answer.gpu_count(), node_end._gpus({"gpus_per_node": 2})) == (None, "lost: GPU 1")
    assert [row["lost"] for row in pulse.gpus()] == [0.0, 1.0]


@each_version
def test_the_role_sets_each_once_and_restores_it(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi, _ = simulated(program, tmp_path, "2 x h100-80gb-hbm3")
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))

    run = smi.answer
    wanted = {"persistence": False, "power_limit_w": 500, "clocks": "2619,345", "ecc": False, "mig": True}
    wanted |= {"compute_mode": "Exclusive_Process"}
    before = {gpu["uuid"]: gpu_hw.settings(gpu) for gpu in gpu_hw.gpus(run) or ()}
    assert [gpu_hw.execute(run, command) for command in gpu_hw.commands(run, wanted)] == [""] * 7 * len(before)
    assert gpu_hw.not_held(run, wanted) == gpu_hw.commands(run, wanted) == []
    for gpu in gpu_hw.gpus(run) or ():
        for command in gpu_hw.setting_commands(gpu["uuid"], before[gpu["uuid"]], gpu_hw.settings(gpu)):
            assert not gpu_hw.execute(run, command)
    assert {gpu["uuid"]: gpu_hw.settings(gpu) for gpu in gpu_hw.gpus(run) or ()} == before


@each_version
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1 SetGpuLockedClocks !999", "Unable to set"),
        ("1 SetGpuLockedClocks !15", "lost"),
        ("1 Gone 1", "GPU is lost"),
        ("1 Lost 1", "cannot read GPU 1"),
        ("1 PowerManagementLimit !999", "cannot read GPU 1"),
    ],
)
def test_the_role_reports_a_gpu_that_it_cannot_set(
    program: Path, line: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi, _ = simulated(program, tmp_path, "2 x h100-80gb-hbm3")
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))

    run = smi.answer
    smi.write(line)
    before = smi.values(1)
    try:
        said = [gpu_hw.execute(run, command) for command in gpu_hw.commands(run, {"clocks": "1980"})]
    except gpu_hw.UnreadableError as error:
        said = [str(error)]
    assert reason in said[-1] and smi.values(1) == before
