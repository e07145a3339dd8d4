"""The kernel's log: memory, machine checks, and the catalogue of messages; what a healthy boot says is no event."""

from pathlib import Path

import pytest
import yaml

from nodectl.checks.check import ACTIONS
from nodectl.checks.kernel import log as kernel_log
from nodectl.facts.board import Pcie
from nodectl.facts.look import Lab
from nodectl.facts.parsers.linux.dmesg import parse_dmesg
from nodectl.facts.parsers.linux.kernel_messages import kernel_messages, message_of
from tests.checks.table import Case, found
from tests.lab.recorded_faults import RECORDED_FAULTS

BOOT = "[    0.000000] Linux version 5.15.0-91-generic (buildd@x)\n"
RESET = "nvme nvme1: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff"
CORRECTED = "pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0"


def log(*texts: str) -> dict[str, object]:
    return {"kernel_events": parse_dmesg(BOOT + "".join(f"[ 71.5] {text}\n" for text in texts))}


OOM = "Out of memory: Killed process 812 (python3) total-vm:9kB, anon-rss:9kB, file-rss:0kB, shmem-rss:0kB"
MCE = "mce: [Hardware Error]: Machine check events logged"
LOST = "MCE: Killing python3:4711 due to hardware memory corruption fault at 7f0000000000"
CASES = [
    Case("oom", "ok", log()),
    Case("oom", "warning", log(OOM), action="restart job"),
    Case("machine_check", "ok", log(OOM)),
    Case("machine_check", "warning", log(MCE), action="drain"),
    Case("machine_check", "failed", log(MCE, LOST), action="drain"),
    Case("kernel_message", "ok", log()),
    Case("kernel_message", "failed", log(RESET), subject="nvme_reset", action="drain"),
    Case("kernel_message", "ok", log(*[CORRECTED] * 49)),
    Case("kernel_message", "warning", log(*[CORRECTED] * 50), subject="aer_corrected"),
]


LINES = Path(__file__).parent.parent / "fixtures/kernel_log"
ALARMING: dict[str, list[str]] = yaml.safe_load((LINES / "alarming.yml").read_text())
HARMLESS = (LINES / "harmless.txt").read_text().splitlines()


def test_every_alarming_line_is_found_by_its_entry() -> None:
    for name, texts in ALARMING.items():
        for text in texts:
            (finding,) = found(kernel_log, Case("kernel_message", "", log(*[text] * kernel_messages()[name].at_least)))
            assert finding.subject == name and text[:40] in finding.evidence, text
            assert finding.status.value in ("failed", "warning") and finding.remedy


@pytest.mark.parametrize(
    "text",
    [
        'audit: type=1326 audit(1.0:2): comm="EXT4-fs error (device sda1)" exe="/bin/x"',
        'audit: type=1400 audit(1.0:3): name="NVRM: Xid (PCI:0000:07:00): 79, pid=1" comm="sh"',
        "mce: Machine check injector initialized",
        "x86/mce: Machine check polling timer started",
    ],
)
def test_what_is_quoted_or_only_started_is_no_event(text: str) -> None:
    assert parse_dmesg(f"[    1.000000] Linux version 6.8.0\n[   99.100000] {text}\n").events == ()


def test_what_a_healthy_boot_says_is_no_message() -> None:
    assert [text for text in HARMLESS if message_of(text) is not None] == []


def test_many_lines_of_one_kind_are_one_finding_that_counts_and_names_the_parts() -> None:
    texts = [f"nvme nvme{number}: I/O 1 QID 2 timeout, aborting" for number in (0, 0, 3, 4, 5, 6)]
    (finding,) = found(kernel_log, Case("kernel_message", "", log(*texts)))
    assert "6 lines since boot, last at 71.5 (nvme0: 2, nvme3, nvme4, nvme5, 1 more)" in finding.actual


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("NETDEV WATCHDOG: eno1 (ixgbe): transmit queue 4 timed out", "eno1"),
        ("NETDEV WATCHDOG: CPU: 3: eth0 (mlx5_core): transmit queue 5 timed out 5204 ms", "eth0"),
        ("mlx5_core 0000:12:00.0 ens1f0: NETDEV WATCHDOG: CPU: 3: transmit queue 5 timed out 5080 ms", "ens1f0"),
        ("bnxt_en 0000:c1:00.0 eth0: TX timeout detected, starting reset task!", "eth0"),
        ("blk_update_request: critical medium error, dev sdc, sector 888", "sdc"),
        ("nvme0n1: Read(0x2) @ LBA 0, 8 blocks, Unrecovered Read Error (sct 0x2 / sc 0x81) DNR", "nvme0n1"),
    ],
)
def test_the_part_is_named_in_each_wording(text: str, part: str) -> None:
    (finding,) = found(kernel_log, Case("kernel_message", "", log(text)))
    assert f"({part})" in finding.actual


def test_each_entry_says_what_to_do_and_a_fault_shows_it() -> None:
    for name, message in kernel_messages().items():
        assert message.action in ACTIONS and message.remedy and message.source.count(":") >= 1
        assert message.status == "ok" or f"log-{name.replace('_', '-')}" in RECORDED_FAULTS, name


def test_the_device_below_a_port_is_named() -> None:
    told = log("pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:41:00.0")
    (finding,) = found(kernel_log, Case("kernel_message", "", told))
    assert "(0000:41:00.0)" in finding.actual
    shut = log("pcieport 0000:00:01.0: DPC: containment event, status:0x1f01 source:0x0000")
    tree = {"0000:41:00.0": "0000:00:01.0", "0000:41:00.1": "0000:00:01.0"}
    (finding,) = found(kernel_log, Case("kernel_message", "", {**shut, "pcie": Pcie((), (), tree)}))
    assert "(0000:41:00.0 below 0000:00:01.0)" in finding.actual


def test_the_evidence_is_the_logs_last_line_of_it() -> None:
    (oom,) = [each for each in found(kernel_log, Case("", "", log(OOM, MCE))) if each.check == "oom"]
    assert "Killed process 812" in oom.evidence and "python3 (1)" in oom.actual


def test_the_log_of_a_lab_host_is_the_machines() -> None:
    assert found(kernel_log, Case("", "", {**log(OOM), "lab": Lab("lab", ("kernel",))})) == []


def test_without_gpus_nobody_asks_for_the_log() -> None:
    assert found(kernel_log, Case("", "", {})) == []
