"""A remedy that would write a lost part off yields to the remedy of what lost it."""

import pytest

from nodectl.checks.catalogue import checks
from tests.lab.recorded_host import findings

# words by which a remedy would make the machine's state the expected one
CEMENTING = (
    "slurm.conf",
    "nodectl_hardware",
    "nodectl_nics",
    "group of their own",
    "its own group",
    "correct the profile",
)


@pytest.mark.parametrize("kind", ["memory-missing", "cpu-missing", "gpu-missing", "gpu-lost"])
def test_no_remedy_for_a_lost_part_begins_with_what_would_hide_it(kind: str) -> None:
    found = findings("dgx-a100", {"node02": [kind]})
    assert found
    for each in found:
        first = each.remedy.partition(";")[0]
        assert not any(word in first for word in CEMENTING), (each.check, each.remedy)


def test_each_cause_is_a_check() -> None:
    assert {name for check in checks().values() for name in check.follows} <= set(checks())
