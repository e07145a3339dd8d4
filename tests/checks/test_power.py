"""Power: what supplies give against the GPUs' limits, and how the last boot ended."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from nodectl.checks.kernel import last_boot
from nodectl.checks.system import power
from nodectl.facts.board import BmcEvent, BmcLog, PowerSupplies, PowerSupply
from nodectl.facts.gpus import Gpu, Gpus
from nodectl.facts.last_boot import LastBoot
from nodectl.facts.processors import Cpu
from tests.checks.table import DENIED, NOW, UNREAD, Case, found, missing, verify
from tests.facts.recorded import fact

DMIDECODE = """\
# dmidecode 3.3
Getting SMBIOS data from sysfs.
SMBIOS 3.2.0 present.

"""
UNIT = """\
Handle 0x002C, DMI type 39, 22 bytes
System Power Supply
\tPower Unit Group: {group}
\tName: PSU0
\tMax Power Capacity: {watt}
\tStatus: {status}
\tHot Replaceable: {hot}

"""


def gpus(number: int, limit: float | None, name: str = "NVIDIA GeForce RTX 4090", least: float = 150.0) -> Gpus:
    each = Gpu(name=name, power_limit_w=limit, power_limit_enforced_w=limit, power_limit_min_w=least)
    return Gpus(number, (each,) * number, source="nvidia-smi-q")


def host(of: Gpus, *supplies: PowerSupply, sockets: int = 1, **facts: object) -> dict[str, object]:
    cpu = Cpu("x", "x86_64", sockets, 8, 16, 1)
    return {"gpus": of, "cpu": cpu, "power_supplies": PowerSupplies(supplies), **facts}


def unit(watt: int | None, status: str = "Present, OK", redundant: bool = True) -> PowerSupply:
    return PowerSupply("PSU", watt, status, redundant)


def given(watt: object) -> dict[str, object]:
    return {power.VARIABLE: watt}


def boot(way: str, journal: str = "kept", ago_s: float = 3600.0, **more: Any) -> LastBoot:
    return LastBoot(way, "the journal simply stops", more.pop("reason", ""), journal, NOW - ago_s, NOW - ago_s, **more)


OFFICE = host(gpus(3, 450))
A100 = gpus(8, 400, "NVIDIA A100-SXM4-80GB")
POWER = [
    Case("psu_power", "skipped", OFFICE),
    Case("psu_power", "skipped", host(gpus(3, 450), unit(None))),
    Case("psu_power", "skipped", host(gpus(1, None)), variables=given(1600)),
    Case("psu_power", "warning", OFFICE, variables=given(1600)),
    Case("psu_power", "warning", OFFICE, variables=given("1600 W")),
    Case("psu_power", "failed", OFFICE, variables=given(1200)),
    Case("psu_power", "ok", OFFICE, variables=given(2000)),
    *(Case("psu_power", "unknown", OFFICE, variables=given(bad)) for bad in ("big", 0, -5, True, "1600V", [1600])),
    Case("psu_power", "skipped", OFFICE, variables=given("{{ psu }}")),
    Case("psu_power", "ok", host(A100, *[unit(3000)] * 6, sockets=2)),
    Case("psu_power", "warning", host(A100, unit(3500), unit(3500, "Not Present"), sockets=2)),
    Case("psu_power", "warning", host(A100, unit(3000), unit(3000), sockets=2)),
    Case("psu_power", "ok", host(A100, *[unit(3000, redundant=False)] * 2, sockets=2)),
    Case("psu_power", "failed", host(A100, unit(3000, redundant=False), sockets=2)),
    Case("psu_power", "unknown", {**OFFICE, "power_supplies": DENIED}),
    Case("psu_power", "ok", {**OFFICE, "power_supplies": DENIED}, variables=given(2000)),
    Case("psu_power", "nothing", {"power_supplies": PowerSupplies((unit(3000),))}),
]
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
    Case("unclean_boot", "unknown", {"last_boot": UNREAD}),
]


@pytest.mark.parametrize("case", POWER, ids=str)
def test_power(case: Case) -> None:
    verify(power, case)


@pytest.mark.parametrize("case", BOOT, ids=str)
def test_last_boot(case: Case) -> None:
    verify(last_boot, case)


def test_no_check_lacks_a_case() -> None:
    assert not missing(power, POWER) | missing(last_boot, BOOT)


def said(module: Any, check: str, facts: Mapping[str, object], **variables: object) -> Any:
    (finding,) = found(module, Case(check, "", facts, variables=variables))
    return finding


def test_the_remedy_names_the_watts_that_are_needed() -> None:
    assert "1800 W" in said(power, "psu_power", OFFICE, nodectl_psu_watt=1600).remedy


def test_one_of_redundant_supplies_does_not_count_and_says_so() -> None:
    finding = said(power, "psu_power", host(A100, *[unit(3000)] * 6, unit(3000, "Present, Critical")))
    assert "15000 W" in finding.expected and "5 of 6" in finding.expected


@pytest.mark.parametrize(
    ("watt", "rating"),
    [
        ("3000 W", 3000),
        ("1100.000 W", 1100),
        ("Unknown", None),
        ("0.075 W", None),
        ("75 W", None),
        ("65535 W", None),
        ("", None),
    ],
)
def test_a_rating_that_cannot_be_is_none(watt: str, rating: int | None) -> None:
    text = DMIDECODE + UNIT.format(group=1, watt=watt, status="Present, OK", hot="Yes")
    assert fact("power_supplies", power_supplies=text).supplies == (PowerSupply("PSU0", rating, "Present, OK", True),)


@pytest.mark.parametrize(
    ("status", "plugged", "counts"),
    [
        ("Present, OK", "Yes", True),
        ("Present, Non-critical", "Yes", True),
        ("Present, Critical", "Yes", False),
        ("Not Present", "Yes", False),
        ("Present, OK", "No", False),
    ],
)
def test_which_supplies_count(status: str, plugged: str, counts: bool) -> None:
    text = UNIT.format(group=1, watt="3000 W", status=status, hot="Yes").replace("Hot", f"Plugged: {plugged}\n\tHot")
    (supply,) = fact("power_supplies", power_supplies=DMIDECODE + text).supplies
    assert supply.counts == counts


def test_supplies_of_machines_without_any_or_without_rights() -> None:
    assert fact("power_supplies", power_supplies=DMIDECODE).supplies == ()
    assert (
        fact(
            "power_supplies", power_supplies="# dmidecode 3.3\n# No SMBIOS nor DMI entry point found, sorry.\n"
        ).supplies
        == ()
    )
    alone = DMIDECODE + UNIT.format(group="None", watt="800 W", status="Present, OK", hot="No")
    assert not fact("power_supplies", power_supplies=alone).supplies[0].redundant
    # as a Supermicro with 500 W tells no more than this
    short = "System Power Supply\n\tLocation: PSU1\n\tMax Power Capacity: 500 W\n\tStatus: Present, OK\n"
    assert fact("power_supplies", power_supplies=DMIDECODE + short).supplies[0].redundant
    assert fact("power_supplies", power_supplies=127).kind == "absent"
    assert fact("power_supplies", power_supplies=(1, "", "sudo: a password is required\n")).kind == "unknown"
    assert fact("power_supplies", power_supplies="garbage\n").kind == "unknown"


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
    assert "the journal simply stops" in finding.actual and "psu_power" in finding.remedy
    reset = said(last_boot, "unclean_boot", {"last_boot": boot("stopped", reason=BY_SOFTWARE.strip())})
    assert "power supply" not in reset.actual and "0xCF9" in reset.actual


@pytest.mark.parametrize("hours", [0, 9])
@pytest.mark.parametrize(
    ("sensor", "event", "way"),
    [
        ("Watchdog2 #0x03", "Hard reset", "watchdog"),
        ("Processor #0x30", "Thermal Trip", "thermal"),
        ("Power Supply #0x51", "Power Supply AC lost", "power"),
        ("Memory #0x87", "Correctable ECC", "power supply?"),
        ("Memory #0x87", "Uncorrectable ECC", "hardware"),
        ("Processor CPU1", "IERR", "hardware"),
        ("Power Unit #0x01", "240VA power down", "power"),
    ],
)
def test_the_bmc_knows_better_in_whatever_time_zone_it_is(hours: int, sensor: str, event: str, way: str) -> None:
    at = datetime.fromtimestamp(NOW - 3600 + 60 + hours * 3600, UTC)
    log = BmcLog((BmcEvent(f"{at:%m/%d/%Y}", f"{at:%H:%M:%S}", sensor, event, True),))
    finding = said(last_boot, "unclean_boot", {"last_boot": boot("stopped"), "bmc_log": log})
    assert f": {way}" in finding.actual
