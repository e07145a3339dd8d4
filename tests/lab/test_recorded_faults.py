"""Every recorded kind of fault, on a fleet that was never up: seen by its check, on its host, and by nobody else's."""

from pathlib import Path

import pytest

from nodectl.checks.catalogue import checks
from nodectl.common.resources import recordings_dir
from nodectl.errors import UsageError
from nodectl.lab.faults import FAULTS, spoiled
from tests.lab.recorded_host import bundled, findings, peer_of

RECORDED = sorted(kind for kind, fault in FAULTS.items() if fault.recorded)
# the gate tries every second kind, `make test-all` all
EDITED = [pytest.param(kind, marks=[pytest.mark.slow] if number % 2 else []) for number, kind in enumerate(RECORDED)]
RECORDINGS = sorted(path.name for path in recordings_dir().iterdir())
# what other probes than health give
PROBES = {"tcp", "memory"}


def test_there_are_many_kinds_of_both_ways() -> None:
    real = [each for each in FAULTS.values() if not each.recorded]
    assert len(FAULTS) >= 280 and len(real) >= 11
    assert {each.name for each in FAULTS.values() if each.load} == {"loss", "slow-link", "mtu-hole", "slow-cpu"}


def test_what_has_to_find_it_exists() -> None:
    missing = {kind: set(fault.checks) - (PROBES if fault.load else set(checks())) for kind, fault in FAULTS.items()}
    assert {kind: names for kind, names in missing.items() if names} == {}


def test_the_page_has_a_row_for_each_kind() -> None:
    """The first columns are the declarations': `scripts/faults.py --write-docs KIND` tries a kind and adds its row."""
    page = (Path(__file__).parents[2] / "docs" / "faults.md").read_text()
    rows = [line.split(" | ")[:3] for line in page.splitlines() if line.startswith("| `")]
    assert rows == [[f"| `{fault.name}`", fault.about, fault.way] for fault in FAULTS.values()]


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_healthy_fleet_has_no_finding(name: str) -> None:
    assert findings(name, {}) == []


@pytest.mark.parametrize("kind", EDITED)
def test_each_kind_is_found_on_its_host_and_nowhere_else(kind: str) -> None:
    found = findings("dgx-a100", {"node03": [kind]})
    others = {each.host for each in found if not FAULTS[kind].takes_two or each.check not in FAULTS[kind].checks}
    assert others <= {"node03"} and "node03" in {each.host for each in found}
    assert {each.check for each in found} & set(FAULTS[kind].checks), sorted({each.check for each in found})
    assert all(each.remedy for each in found if each.check in FAULTS[kind].checks)


@pytest.mark.parametrize("name", RECORDINGS)
def test_an_edit_changes_the_recording_or_says_why_it_cannot(name: str) -> None:
    outputs, peer = bundled(name), peer_of(name, "node01")
    for kind in RECORDED:
        try:
            changed = spoiled(outputs, (kind,), peer)
        except UsageError as error:
            assert name == "rtx4090-3" and kind in error.message and error.remedy
        else:
            assert changed.keys() == outputs.keys() and changed != outputs, kind


def test_several_kinds_stand_side_by_side() -> None:
    both = findings("dgx-a100", {"node02": ["xid-79", "remap-failure"], "node04": ["ib-down"]})
    seen = {(each.host, each.check) for each in both}
    assert {("node02", "xid"), ("node02", "gpu_remap_failure"), ("node04", "ib_state")} <= seen
    assert {host for host, _ in seen} == {"node02", "node04"}


def test_the_order_does_not_matter_for_what_is_left() -> None:
    outputs = bundled("dgx-a100")
    kinds = ("wrong-driver", "xid-48", "gpu-missing")
    assert spoiled(outputs, kinds) == spoiled(outputs, (kinds[1], kinds[0], kinds[2]))
    assert spoiled(outputs, ()) == outputs


@pytest.mark.parametrize(("kind", "why"), [("nvlink-down", "nvidia-smi-nvlink"), ("ib-down", "ib-sysfs")])
def test_what_a_machine_has_not_cannot_fail(kind: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        spoiled(bundled("rtx4090-3"), (kind,))
