"""Every recorded kind of fault, on a fleet that was never up: seen by its check, on its host, and by nobody else's."""

from pathlib import Path

import pytest

from nodectl.checks.catalogue import checks
from nodectl.common.resources import recordings_dir
from nodectl.lab.faults import FAULTS
from tests.lab.recorded_faults import RECORDED_FAULTS, CannotEditError, spoiled
from tests.lab.recorded_host import bundled, findings, peer_of

KINDS = sorted(RECORDED_FAULTS)
# the gate tries every third kind, `make test-all` all
EDITED = [pytest.param(kind, marks=[pytest.mark.slow] if number % 3 else []) for number, kind in enumerate(KINDS)]
RECORDINGS = sorted(path.name for path in recordings_dir().iterdir())
# what other probes than health give
PROBES = {"tcp", "memory"}


def test_what_has_to_find_it_exists() -> None:
    named = {check for fault in FAULTS.values() for check in fault.checks if not fault.load}
    named |= {check for kind in RECORDED_FAULTS.values() for check in kind.checks}
    assert named <= set(checks())
    assert {check for fault in FAULTS.values() for check in fault.checks if fault.load} <= PROBES


def test_the_page_has_a_row_for_each_kind() -> None:
    """The first columns are the declarations': `scripts/faults.py --write-docs KIND` tries a kind and adds its row."""
    page = (Path(__file__).parents[2] / "docs" / "faults.md").read_text()
    rows = [line.split(" | ")[:2] for line in page.splitlines() if line.startswith("| `")]
    assert rows == [[f"| `{fault.name}`", fault.about] for fault in FAULTS.values()]


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_healthy_fleet_has_no_finding(name: str) -> None:
    assert findings(name, {}) == []


@pytest.mark.parametrize("kind", EDITED)
def test_each_kind_is_found_on_its_host_and_nowhere_else(kind: str) -> None:
    fault, found = RECORDED_FAULTS[kind], findings("dgx-a100", {"node03": [kind]})
    others = {each.host for each in found if not fault.takes_two or each.check not in fault.checks}
    assert others <= {"node03"} and "node03" in {each.host for each in found}
    assert {each.check for each in found} & set(fault.checks), sorted({each.check for each in found})
    assert all(each.remedy for each in found if each.check in fault.checks)


@pytest.mark.parametrize("name", RECORDINGS)
def test_an_edit_changes_the_recording_or_says_why_it_cannot(name: str) -> None:
    outputs, peer = bundled(name), peer_of(name, "node01")
    for kind in KINDS:
        try:
            changed = spoiled(outputs, (kind,), peer)
        except CannotEditError as error:
            assert name == "rtx4090-3" and kind in str(error)
        else:
            assert changed.keys() == outputs.keys() and changed != outputs, kind
