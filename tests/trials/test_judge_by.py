"""What decides a trial: speed, or joules a token; the other one is shown, and proposes and refuses nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from nodectl.errors import NodectlError
from nodectl.model.trial import Series
from nodectl.model.verdict import Outcome
from nodectl.probes.registry import declarations
from nodectl.report.trials import verdicts_table
from nodectl.trials.families import judged
from nodectl.trials.propose import Proposal, propose
from nodectl.trials.verdict import JOULE, SPEED
from tests.trials.trials import gaining


def of(gain: float, unit: str) -> Series:
    """A series of the training; of joules a gain is less of them."""
    return replace(gaining(-gain if unit.startswith("J/") else gain), probe="workload", unit=unit, size_bytes=None)


# a lower power limit: slower, and cheaper by the token
LOWER = (of(-10, "tokens/s"), of(30, "J/token"))
OVERRIDES = {"gpu": {"power_limit_w": 300}}


@pytest.mark.parametrize(("judge_by", "outcome"), [(SPEED, Outcome.WORSE), (JOULE, Outcome.BETTER)])
def test_both_are_judged_and_one_decides(judge_by: str, outcome: Outcome, tmp_path: Path) -> None:
    verdicts, (summary,) = judged(LOWER, judge_by)
    assert [each.verdict for each in verdicts] == [Outcome.WORSE, Outcome.BETTER] and summary.verdict is outcome
    table = verdicts_table(verdicts, 200)
    assert "J/token" in table and len(table.splitlines()) == 3
    proposal = Proposal("candidate", "stock", {"gpu01": {}}, verdicts, LOWER, OVERRIDES, judge_by=judge_by)
    if outcome is Outcome.BETTER:
        propose(proposal, tmp_path / "won.yml")
        assert "power_limit_w: 300" in (tmp_path / "won.yml").read_text()
    else:
        with pytest.raises(NodectlError):
            propose(proposal, tmp_path / "won.yml")


def test_a_faster_one_that_draws_more_is_kept_by_speed() -> None:
    more = (of(10, "tokens/s"), of(-30, "J/token"))
    assert judged(more)[1][0].verdict is Outcome.BETTER and judged(more, JOULE)[1][0].verdict is Outcome.WORSE


def test_without_joules_nothing_is_decided_by_them() -> None:
    assert judged((of(10, "tokens/s"),), JOULE)[1][0].verdict is Outcome.UNKNOWN


def test_less_of_it_is_better_wherever_it_is_measured() -> None:
    for name, unit in (("workload", "J/token"), ("workload", "J/sample"), ("training", "J/sample")):
        assert declarations()[name].results.lower_is_better(unit) is True
