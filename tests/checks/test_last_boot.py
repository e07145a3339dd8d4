"""How the last boot ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from nodectl.checks.kernel import last_boot
from nodectl.facts.last_boot import LastBoot
from tests.checks.table import NOW, Case, found
from tests.facts.recorded import fact


def boot(way: str, journal: str = "kept", ago_s: float = 3600.0, **more: Any) -> LastBoot:
    return LastBoot(way, "the journal simply stops", more.pop("reason", ""), journal, NOW - ago_s, NOW - ago_s, **more)


BOOT = [
    Case("unclean_boot", "ok", {"last_boot": boot("clean")}),
    Case("unclean_boot", "ok", {"last_boot": boot("first")}),
    Case("unclean_boot", "ok", {"last_boot": boot("stopped", ago_s=9 * 86_400)}),
    *(
        Case("unclean_boot", "warning", {"last_boot": boot(way)})
        for way in ("panic", "watchdog", "thermal", "hardware")
    ),
    Case("unclean_boot", "warning", {"last_boot": boot("stopped")}),
    Case("unclean_boot", "unknown", {"last_boot": boot("unknown", "volatile")}),
    Case("unclean_boot", "unknown", {"last_boot": boot("unknown", "denied")}),
    Case("unclean_boot", "unknown", {"last_boot": boot("unknown", "slow")}),
]


def said(module: Any, check: str, facts: Mapping[str, object], **variables: object) -> Any:
    (finding,) = found(module, Case(check, "", facts, variables=variables))
    return finding


HEAD = "booted 1000000\njournal kept\n"
STOPS = "end 999900.5\nwtmp reboot\nwtmp reboot\n"
# what a kernel of 6.16 and later printed on a Ryzen
RESET = "<6>[    0.4] x86/amd: Previous system reset reason "
FLOOD = f"{RESET}[0x08000800]: an uncorrected error caused a data fabric sync flood event\n"
BY_SOFTWARE = f"{RESET}[0x00080800]: software wrote 0x6 to reset control register 0xCF9\n"


@pytest.mark.parametrize(
    ("text", "dmesg", "way"),
    [
        (
            HEAD + "line 999899.1 systemd-shutdown[1]: Syncing filesystems\nend 999899.1\nwtmp reboot\nwtmp reboot\n",
            "",
            "clean",
        ),
        (HEAD + "end 999899.1\nwtmp reboot\nwtmp shutdown\n", "", "clean"),
        (HEAD + STOPS, "", "stopped"),
        (HEAD + STOPS, BY_SOFTWARE, "stopped"),
        (HEAD + STOPS, FLOOD, "hardware"),
        (HEAD + STOPS + "dump 999990 /var/lib/systemd/pstore/1\n", "", "panic"),
        (HEAD + STOPS + "dump 1000060 /var/crash/202611280000\n", "", "panic"),
        (HEAD + STOPS + "dump 700000 /var/crash/202601010000\n", "", "stopped"),
        (HEAD + "line 999900.5 kernel: Kernel panic - not syncing: Fatal exception\n" + STOPS, "", "panic"),
        (HEAD + "line 999900.5 kernel: watchdog: BUG: soft lockup - CPU#3 stuck for 26s!\n" + STOPS, "", "watchdog"),
        (
            HEAD + "line 999900.5 kernel: thermal thermal_zone0: acpitz: critical temperature reached\n" + STOPS,
            "",
            "thermal",
        ),
        (HEAD + "line 999900.5 kernel: mce: [Hardware Error]: Machine check events logged\n" + STOPS, "", "hardware"),
        (HEAD + "line 990000.5 kernel: mce: [Hardware Error]: Machine check events logged\n" + STOPS, "", "stopped"),
        (HEAD + "line 999900.5 kernel: {1}[Hardware Error]: event severity: corrected\n" + STOPS, "", "stopped"),
        (HEAD + "line 999900.5 sshd[1]: kernel: Kernel panic\n" + STOPS, "", "stopped"),
        (HEAD + "line 999900.5 kernel: Oops: 0000 [#1] SMP\n" + STOPS, "", "panic"),
        (HEAD + "line 999880.5 kernel: Oops: 0000 [#1] SMP\nend 999900.1\nwtmp reboot\nwtmp shutdown\n", "", "clean"),
        (HEAD + "wtmp reboot\n", "", "first"),
        ("booted 1000000\njournal volatile\nwtmp reboot\nwtmp reboot\n", "", "stopped"),
        ("booted 1000000\njournal volatile\nwtmp reboot\n", "", "unknown"),
        ("booted 1000000\njournal kept\njournal denied\n", "", "unknown"),
        ("booted 1000000\njournal kept\njournal slow\n", "", "unknown"),
    ],
)
def test_how_a_boot_ended(text: str, dmesg: str, way: str) -> None:
    assert fact("last_boot", last_boot=text, dmesg=dmesg or "<6>[    0.0] Linux version\n").way == way


def test_a_container_has_no_boot_of_its_own() -> None:
    assert fact("last_boot", last_boot=3).kind == "absent"


def test_what_ran_then_and_when_is_told_and_a_supply_only_with_its_reason() -> None:
    facts = {"last_boot": boot("stopped", jobs=("20261128-train",))}
    finding = said(last_boot, "unclean_boot", facts)
    assert "20261128-train" in finding.actual and "power supply" in finding.actual
    assert "the journal simply stops" in finding.actual and "power limits" in finding.remedy
    reset = said(last_boot, "unclean_boot", {"last_boot": boot("stopped", reason=BY_SOFTWARE.strip())})
    assert "power supply" not in reset.actual and "0xCF9" in reset.actual
