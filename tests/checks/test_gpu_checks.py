"""Each check of a GPU's own report: when it fires, when it is quiet, when it cannot tell."""

from types import ModuleType
from typing import Any, cast

import pytest

from nodectl.checks.catalogue import declared
from nodectl.checks.gpu import count as gpu_count
from nodectl.checks.gpu import memory as gpu_memory
from nodectl.checks.gpu import processes as gpu_processes
from nodectl.checks.gpu import state as gpu_state
from nodectl.checks.gpu.rules import GpuJudgement
from nodectl.facts.board import Pcie
from nodectl.facts.gpus import Gpus
from nodectl.facts.parsers.linux.lspci_acs import PcieLink
from nodectl.facts.parsers.nvidia.smi_q.fields import GpuProcess
from nodectl.facts.processes import JobProcesses
from nodectl.facts.services import SlurmNode
from nodectl.model.facts import Unread
from nodectl.profiles.resolve import Resolved, resolve
from tests.checks.gpus import all_with, count, eight, gpu
from tests.checks.table import DENIED, UNREAD, Case, dgx, found, plain, verify

GPU7 = "GPU 7 (0000:77:00.0)"
PART = {"ecc_volatile_uncorrectable": "Unknown Error"}
HOT = ("sw_thermal_slowdown",)
FOUR = "NVIDIA GeForce RTX 4090"
TABLE = {"gpus": Gpus(8, tuple(gpu(index) for index in range(8)))}
NONE = Unread("absent", "nvidia-smi is not installed")


HOMES = (gpu_count, gpu_memory, gpu_state, gpu_processes)
QUIET = [Case(check.id, "ok", eight(), dgx()) for module in HOMES for check in declared(module)]


def test_of_a_profile_that_counts_fewer_nothing_is_gone() -> None:
    (more,), (fewer,) = (
        [one for one in found(gpu_count, Case("gpus", "failed", count(number), dgx())) if one.check == "gpus"]
        for number in (9, 7)
    )
    assert "nodectl_hardware" in more.remedy and "dmesg" not in more.remedy
    assert "nodectl_hardware" not in fewer.remedy and "dmesg" in fewer.remedy


def refused(field: str, said: str = "Unknown Error") -> dict[str, object]:
    return eight(refused={field: said})


def tuned(**gpu_settings: object) -> Resolved:
    return resolve("dgx-a100", "cu128", "stock", overrides={"gpu": gpu_settings})


def on_bus(number: int, *displays: str) -> dict[str, object]:
    """NVIDIA's GPUs on PCI, and old cards for a display."""
    kind, name = "3D controller", "NVIDIA Corporation GA100 [A100 SXM4 80GB] (rev a1)"
    old = "NVIDIA Corporation GK208 [GeForce GT 710]"
    gpus = [PcieLink(f"0000:{16 * n + 7:02x}:00.0", kind, name, 16.0, 16.0, 16, 16) for n in range(number)]
    others = [PcieLink(at.lower(), "VGA compatible controller", old, 8.0, 8.0, 8, 8) for at in displays]
    return {"pcie": Pcie((), (*gpus, *others))}


SLOT3: dict[str, Any] = {"pcie_gen_host_max": 3, "utilization_gpu_percent": 97}
COUNT = [
    Case("gpus", "ok", count(8), dgx()),
    Case("gpus", "failed", count(7), dgx(), action="reboot"),
    Case("gpus", "failed", count(9), dgx(), action="none"),
    Case("gpus", "failed", count(8, lost=("0000:0F:00.0",)), dgx()),
    Case("gpus", "failed", {"gpus": NONE}, dgx()),
    Case("gpus", "failed", {"gpus": UNREAD}, dgx()),
    Case("gpus", "unknown", {"gpus": DENIED}, dgx()),
    Case("gpus", "unknown", count(5, disputed="the header of nvidia-smi -q says 8"), dgx(), action="none"),
    Case("gpus", "nothing", count(8)),
    # without a profile PCI says how many there are
    Case("gpus", "failed", {**count(7), **on_bus(8)}, plain(), action="reboot"),
    Case("gpus", "failed", {**count(7), **on_bus(8)}),
    Case("gpus", "warning", {**count(7), **on_bus(7, "0000:F1:00.0")}, plain(), action="none"),
    Case("gpus", "failed", {**count(0), **on_bus(8)}, plain(), action="reboot"),
    Case("gpus", "nothing", {**count(8), **on_bus(8)}, plain()),
    Case("gpus", "nothing", {"gpus": NONE}, plain(gpus=0)),
    Case("gpus", "warning", count(8), plain(gpus=0)),
    Case("gpu_report", "unknown", TABLE),
    Case("gpu_report", "unknown", count(6, disputed="the header of nvidia-smi -q says 8")),
    Case("gpu_report", "nothing", {"gpus": UNREAD}, dgx()),
    Case("gpu_report", "nothing", {"gpus": NONE}),
    Case("gpu_lost", "failed", eight(lost=("0000:0F:00.0",)), subject="GPU 0000:0F:00.0", action="reboot"),
    Case("gpu_model", "ok", eight(), dgx()),
    Case("gpu_model", "failed", eight(name="NVIDIA A100-SXM4-40GB"), dgx(), subject=GPU7),
    Case("gpu_model", "unknown", refused("name"), dgx(), subject=GPU7),
    Case("gpu_model", "nothing", eight(name="other"), plain()),
    Case("gpu_memory", "ok", eight(), dgx()),
    Case("gpu_memory", "failed", eight(memory_total_mib=65536), dgx(), subject=GPU7, action="reset GPU"),
    Case("gpu_memory", "unknown", refused("memory_total_mib"), dgx(), subject=GPU7),
    Case("gpu_inforom", "warning", eight(warnings=("WARNING: infoROM is corrupted at gpu 0000:02:00.0",))),
    Case("gpu_inforom", "unknown", refused("inforom_version", "ERR!")),
]

RECOVERY = [
    Case("gpu_recovery", "failed", eight(recovery_action="Reset"), subject=GPU7, action="reset GPU"),
    Case("gpu_recovery", "failed", eight(recovery_action="Reboot"), action="reboot"),
    Case("gpu_recovery", "failed", eight(recovery_action="Drain P2P"), action="drain"),
    Case("gpu_recovery", "failed", eight(recovery_action="Something New"), action="drain"),
]


def flagged(flag: GpuJudgement) -> Case:
    """The flag is set on one GPU."""
    (check,), values = flag.checks, cast("dict[str, Any]", {flag.field: True})
    return Case(check.id, "failed", eight(**values), subject=GPU7, action=check.action)


FLAGS = list(map(flagged, gpu_memory.FLAGS))
MEMORY = [
    Case("gpu_ecc_mode", "failed", eight(ecc_mode_current=False, ecc_mode_pending=False), subject=GPU7),
    # one action for one fault: what waits for a reset is told by the other check
    Case("gpu_ecc_mode", "skipped", eight(ecc_mode_current=False, ecc_mode_pending=True), subject=GPU7),
    Case("gpu_ecc_pending", "failed", eight(ecc_mode_current=False), subject=GPU7, action="reset GPU"),
    Case("gpu_ecc_mode", "ok", all_with(name=FOUR, ecc_mode_current=False, ecc_mode_pending=False)),
    # a sum of which one part was refused is a lower bound
    Case("gpu_ecc_uncorrectable", "failed", eight(ecc_volatile_uncorrectable=3, refused=PART)),
    Case("gpu_ecc_uncorrectable", "unknown", eight(ecc_volatile_uncorrectable=0, refused=PART)),
    Case("gpu_ecc_mode", "skipped", all_with(refused={"ecc_mode_current": "N/A"})),
    Case("gpu_ecc_pending", "failed", eight(ecc_mode_pending=False), subject=GPU7, action="reset GPU"),
    Case("gpu_ecc_uncorrectable", "failed", eight(ecc_volatile_uncorrectable=1), subject=GPU7, action="reset GPU"),
    Case("gpu_sram_uncorrectable", "warning", eight(ecc_aggregate_sram_uncorrectable=1), subject=GPU7, action="none"),
    Case("gpu_sram_uncorrectable", "failed", eight(ecc_aggregate_sram_uncorrectable=5), action="replace"),
    Case("gpu_retired_pages", "failed", eight(retired_pages_double_bit=60, retired_pages_single_bit=2)),
    Case("gpu_remap_pending", "skipped", all_with(refused={"remap_pending": "[N/A]"})),
    Case("gpu_remapped_rows", "failed", eight(remapped_uncorrectable=513), action="replace"),
    Case("gpu_remap_banks", "warning", eight(remap_banks_low=2)),
    Case("gpu_remap_banks", "failed", eight(remap_banks_none=1), action="replace"),
]  # fmt: skip
STATE = [
    Case("gpu_persistence", "warning", eight(persistence_mode=False), subject=GPU7),
    Case("gpu_persistence", "ok", eight(persistence_mode=False, display_active=True)),
    Case("gpu_persistence", "failed", eight(persistence_mode=False), tuned(persistence=True), subject=GPU7),
    Case("gpu_compute_mode", "warning", eight(compute_mode="Exclusive_Process")),
    Case("gpu_compute_mode", "failed", eight(compute_mode="Prohibited")),
    Case("gpu_mig", "failed", eight(mig_mode=True, mig_mode_pending=True), subject=GPU7),
    Case("gpu_mig", "warning", all_with(mig_mode=True, mig_mode_pending=True)),
    Case("gpu_mig", "warning", eight(mig_mode_pending=True), action="reset GPU"),
    Case("gpu_memory_temperature", "warning", eight(memory_temperature_c=91)),
    Case("gpu_memory_temperature", "failed", eight(memory_temperature_c=95)),
    Case("gpu_clock", "ok", eight(utilization_gpu_percent=98, sm_clock_mhz=1395)),
    Case("gpu_clock", "warning", eight(utilization_gpu_percent=98, sm_clock_mhz=210), action="reset GPU"),
    Case("gpu_temperature", "warning", eight(temperature_c=86)),
    Case("gpu_temperature", "failed", eight(temperature_c=89, clock_event_reasons=HOT), action="drain"),
    Case("gpu_temperature", "failed", eight(temperature_c=89, clock_event_reasons=None)),
    # one number against all reasons: T.Limit 0 with 33 °C
    Case("gpu_temperature", "warning", eight(temperature_c=33, temperature_limit_margin_c=0)),
    Case("gpu_temperature", "ok", eight(temperature_c=70, temperature_slowdown_c=None, temperature_limit_margin_c=17)),
    Case("gpu_temperature", "failed", eight(temperature_c=88, temperature_limit_margin_c=-1, clock_event_reasons=HOT)),
    # Hopper slows down at -2, and not at 0
    Case(
        "gpu_temperature",
        "warning",
        eight(temperature_limit_margin_c=-1, temperature_slowdown_margin_c=-2, clock_event_reasons=HOT),
    ),
    Case("gpu_hw_slowdown", "failed", eight(clock_event_reasons=("hw_slowdown",)), subject=GPU7, action="drain"),
    Case("gpu_hw_slowdown", "ok", eight(clock_event_reasons=("hw_slowdown", "hw_thermal_slowdown"))),
    Case("gpu_hw_thermal", "failed", eight(clock_event_reasons=("hw_slowdown", "hw_thermal_slowdown"))),
    Case("gpu_power_brake", "failed", eight(clock_event_reasons=("hw_power_brake_slowdown",))),
    Case("gpu_sw_thermal", "warning", eight(clock_event_reasons=("sw_thermal_slowdown",))),
    Case("gpu_clock_setting", "warning", all_with(), tuned(clocks="max")),
    Case("gpu_clock_setting", "ok", all_with(graphics_clock_mhz=1275), tuned(clocks="1275")),
    Case("gpu_power_limit", "warning", eight(power_limit_w=300.0), subject=GPU7),
    Case("gpu_power_limit", "failed", eight(), tuned(power_limit_w=350)),
    Case("gpu_power_limit", "ok", all_with(power_limit_w=350.0), tuned(power_limit_w=350)),
]


def built_x8(**changes: object) -> dict[str, object]:
    """A card that is built, or sits in a slot, with 8 lanes of the chip's 16."""
    values: dict[str, Any] = {"name": "NVIDIA A10G", "pcie_width_current": 8, "pcie_width_max": 16, **changes}
    return all_with(**values)


def slot(width: int) -> Pcie:
    """What root sees above each GPU."""
    addresses = [f"0000:{16 * index + 7:02x}:00.0" for index in range(8)]
    ports = {address: f"0000:{index:02x}:01.0" for index, address in enumerate(addresses)}
    return Pcie((), tuple(PcieLink(port, "PCI bridge", "", 16.0, 16.0, 8, width) for port in ports.values()), ports)


PCIE = [
    Case("gpu_pcie_width", "failed", eight(pcie_width_current=8), subject=GPU7, action="drain"),
    Case("gpu_pcie_width", "failed", all_with(pcie_width_current=8), subject="GPU 0 (0000:07:00.0)"),
    Case("gpu_pcie_width", "failed", all_with(pcie_width_current=8, name="NVIDIA H200"), action="drain"),
    Case("gpu_pcie_width", "ok", built_x8()),
    Case("gpu_pcie_width", "ok", {**built_x8(), "pcie": slot(8)}),
    Case("gpu_pcie_width", "failed", {**built_x8(), "pcie": slot(16)}, action="drain"),
    Case("gpu_pcie_width", "warning", built_x8(pcie_width_current=4)),
    # what the driver calls the most may be the slot's
    Case("gpu_pcie_width", "warning", built_x8(pcie_width_current=4, pcie_width_max=4)),
    Case("gpu_pcie_width", "ok", built_x8(name="Nobody's", pcie_width_current=4, pcie_width_max=4)),
    Case("gpu_pcie_gen", "ok", eight(pcie_gen_current=1)),
    Case("gpu_pcie_gen", "failed", eight(pcie_gen_current=1, utilization_gpu_percent=97), subject=GPU7),
    Case("gpu_pcie_gen", "failed", eight(pcie_gen_max=3), subject=GPU7),
    # Max is the GPU's own there, and its slot has no more
    Case("gpu_pcie_gen", "warning", all_with(**SLOT3, pcie_gen_current=3), action="none"),
    Case("gpu_pcie_gen", "failed", all_with(**SLOT3, pcie_gen_current=1), action="drain"),
    Case("gpu_pcie_gen", "failed", eight(**SLOT3, pcie_gen_current=3), action="drain", subject=GPU7),
    Case("gpu_pcie_gen", "warning", all_with(pcie_gen_max=3, pcie_gen_host_max=3, pcie_gen_current=3)),
    # where the driver does not tell the GPU's own, the catalogue does
    Case("gpu_pcie_gen", "warning", all_with(pcie_gen_max=3, pcie_gen_device_max=None, pcie_gen_current=1)),
    Case("gpu_pcie_gen", "ok", all_with(name="X", pcie_gen_max=3, pcie_gen_device_max=None, pcie_gen_current=1)),
    Case("gpu_pcie_replays", "ok", eight(pcie_replay_counter=5000), before={"gpu.GPU-7.pcie_replays": 4999}),
    Case("gpu_pcie_replays", "warning", eight(pcie_replay_counter=5000), before={"gpu.GPU-7.pcie_replays": 4000}),
    Case("gpu_pcie_replays", "warning", eight(pcie_replay_counter=50_000), subject=GPU7),
]
MINE = GpuProcess(4242, "C", "python3", 20480)
SHOWN = GpuProcess(1200, "G", "/usr/lib/xorg/Xorg", 4)


def owned(**pids: int) -> dict[str, object]:
    """Whose job a process is of."""
    by_owner = {name: frozenset({pids[name]} if name in pids else ()) for name in ("slurm", "nodectl")}
    return {"job_processes": JobProcesses(**by_owner)}


PROCESSES = [
    Case("gpu_processes", "ok", eight(processes=(SHOWN,))),
    Case("gpu_processes", "warning", eight(processes=(MINE, SHOWN)), subject=GPU7),
    Case("gpu_processes", "ok", {**eight(processes=(MINE,)), **owned(slurm=4242)}),
    Case("gpu_processes", "ok", {**eight(processes=(MINE,)), **owned(nodectl=4242)}),
    Case("gpu_processes", "warning", {**eight(processes=(MINE,)), **owned(slurm=77)}, subject=GPU7),
    Case("gpu_processes", "ok", {**eight(processes=(MINE,)), "slurm": SlurmNode("n", ("MIXED",), True)}),
    Case("gpu_processes", "warning", {**eight(processes=(MINE,)), "slurm": SlurmNode("n", ("IDLE",), True)}),
    Case("gpu_processes", "unknown", all_with(refused={"processes": "Insufficient Permissions"})),
    Case("gpu_memory_held", "unknown", all_with(refused={"processes": "Insufficient Permissions"})),
    Case("gpu_memory_held", "ok", eight(memory_used_mib=600)),
    Case("gpu_memory_held", "ok", eight(memory_used_mib=20480, processes=(MINE,))),
    Case("gpu_memory_held", "warning", eight(memory_used_mib=20480), subject=GPU7),
]


def test_a_process_on_all_gpus_is_listed_once() -> None:
    case = Case("gpu_processes", "warning", all_with(processes=(GpuProcess(77, "C", "python3", 1000),)))
    actual = [finding.actual for finding in found(gpu_processes, case) if finding.check == case.check]
    assert actual == ["77 python3 8000 MiB on 8 GPUs"]


RULES = [
    (module, rule.checks[0].id, rule.field)
    for module in (gpu_memory, gpu_state)
    for rule in vars(module).values()
    if isinstance(rule, GpuJudgement)
]


@pytest.mark.parametrize(("module", "check", "field"), RULES, ids=[check for _, check, _ in RULES])
def test_a_value_that_a_gpu_refuses_or_lacks_is_unknown(module: ModuleType, check: str, field: str) -> None:
    verify(module, Case(check, "unknown", refused(field), subject=GPU7))
    # its siblings print the line: missing from one part of the report, it was cut
    lacking: dict[str, Any] = {field: None}
    verify(module, Case(check, "unknown", eight(**lacking), subject=GPU7))
    # a GPU has no such thing: skipped, never passed
    verify(module, Case(check, "skipped", all_with(refused={field: "[Not Supported]"})))
    verify(module, Case(check, "skipped", all_with(**{field: None})))


def test_findings_name_the_card() -> None:
    (one,) = [
        each for each in found(gpu_memory, Case("", "", eight(remap_failure=True))) if each.status.value == "failed"
    ]
    assert (one.check, one.subject, one.evidence) == (
        "gpu_remap_failure",
        GPU7,
        "UUID GPU-7, serial 1560000000007, bus 0000:77:00.0",
    )


def test_a_machine_without_a_profile_is_quiet() -> None:
    assert {each.status.value for module in HOMES for each in found(module, Case("", "", eight()))} <= {"ok", "skipped"}
