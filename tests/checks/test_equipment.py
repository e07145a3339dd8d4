"""RAID, drives, BMC log, partitions and DCGM's watches: what fires, what is quiet, what could not tell."""

from typing import Any

import pytest

from nodectl.facts.board import BmcEvent, BmcLog
from nodectl.facts.gpu_services import DcgmHealth
from nodectl.facts.rdma import Pkeys
from nodectl.facts.storage import Array, Drive, Drives, Raid
from tests.checks.table import Case
from tests.lab.recorded_host import findings

# the table's clock shows 1970-01-12
NAME = "/dev/nvme3"
OLD, NEW = "01/02/1970", "01/11/1970"


def array(state: str = "active", failed: tuple[str, ...] = (), working: int = 2, busy: str = "") -> dict[str, object]:
    return {"raid": Raid((Array("md0", state, ("sda", "sdb"), failed, 2, working, busy or None),))}


def drive(**said: Any) -> dict[str, object]:
    return {"drives": Drives((Drive(NAME, **said),))}


def logged(*events: tuple[str, str], asserted: bool = True) -> dict[str, object]:
    return {
        "bmc_log": BmcLog(tuple(BmcEvent(date, "08:00:00", "Memory #0x87", text, asserted) for date, text in events))
    }


CASES = [
    *[
        Case("raid", "ok", array()),
        Case("raid", "ok", {"raid": Raid(())}),
        Case("raid", "failed", array(failed=("sda",), working=1), action="replace"),
        Case("raid", "failed", array("inactive")),
        Case("raid", "warning", array(working=1), action="replace"),
        Case("raid", "warning", array(working=1, busy="recovery 3.0%"), action="none"),
        Case("drive_health", "ok", drive(passed=True, critical_warning=0, used_percent=89, media_errors=99)),
        Case("drive_health", "failed", drive(passed=False), action="replace", subject=NAME),
        Case("drive_health", "failed", drive(passed=False, critical_warning=8), action="replace"),
        Case("drive_health", "failed", drive(passed=True, failed_attributes=("Reallocated_Sector_Ct",))),
        Case("drive_health", "warning", drive(passed=False, critical_warning=2), action="none"),
        Case("drive_health", "warning", drive(used_percent=90), action="none"),
        Case("drive_health", "warning", drive(unreadable_sectors=1), action="none"),
        Case("drive_health", "warning", drive(media_errors=100), action="none"),
        Case("drive_health", "unknown", {"drives": Drives((), (NAME,))}, subject=NAME),
    ],
    *[
        Case("bmc_log", "ok", logged((NEW, "Presence detected"))),
        Case("bmc_log", "ok", logged((OLD, "Uncorrectable ECC"))),
        Case("bmc_log", "ok", logged((NEW, "Uncorrectable ECC"), asserted=False)),
        Case("bmc_log", "failed", logged((NEW, "Uncorrectable ECC")), action="drain"),
        Case("bmc_log", "failed", logged(("", "Failure detected")), action="drain"),
        Case("bmc_log", "warning", logged((NEW, "Upper Non-critical going high")), action="none"),
    ],
    *[
        Case("ib_pkey", "ok", {"pkeys": Pkeys({"mlx5_0/1": ("0xffff", "0x0012")})}),
        Case("ib_pkey", "failed", {"pkeys": Pkeys({"mlx5_0/1": ("0x7fff",)})}, subject="mlx5_0/1"),
    ],
    *[
        Case("dcgm_health", "ok", {"dcgm_health": DcgmHealth("Healthy", ())}),
        Case("dcgm_health", "warning", {"dcgm_health": DcgmHealth("Warning", ("PCIe replays",))}, action="none"),
        Case("dcgm_health", "failed", {"dcgm_health": DcgmHealth("Failure", ("GPU 3",))}, action="drain"),
        Case("dcgm_health", "nothing", {"dcgm_health": DcgmHealth("", ())}),
        Case("dcgm_watches", "warning", {"dcgm_health": DcgmHealth("", ())}, action="none"),
        Case("dcgm_watches", "ok", {"dcgm_health": DcgmHealth("Warning", ("PCIe replays",))}),
    ],
]


def test_data_that_a_drive_lost_since_the_last_look_is_told() -> None:
    (finding,) = findings("dgx-a100", {"node02": ["drive-errors"]})
    assert (finding.check, finding.host, finding.subject) == ("drive_health", "node02", "/dev/nvme0")
    assert "media errors" in finding.actual and "5" in finding.actual


@pytest.mark.parametrize(
    ("kind", "check"),
    [("microcode-other", "fleet_microcode"), ("ecn-off", "fleet_flow_control")],
)
def test_what_one_host_has_otherwise_is_named_with_both_values(kind: str, check: str) -> None:
    (finding,) = [each for each in findings("dgx-a100", {"node02": [kind]}) if each.check == check]
    assert finding.host == "node02" and finding.expected != finding.actual
