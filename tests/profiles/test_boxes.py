"""Boxes of public outputs: the cards are recognised, a healthy one raises no alarm, and a lost card is found."""

from __future__ import annotations

import pytest

from nodectl.facts.catalogue import facts_named, read_facts
from nodectl.facts.gpus import Gpus
from nodectl.health.host import REPLAYED, judge_answer, order_of
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.profiles.gpus import composed, short_form
from tests.profiles.boxes import Box, boxes, recording

each_box = pytest.mark.parametrize("box", boxes(), ids=str)


def alarms(box: Box, hardware: str) -> list[Finding]:
    """What health warns of, or fails for, on a host that wears the box."""
    order = order_of(Host("node01", "node01"), {"hardware": hardware, "stack": "none", "tuning": "stock"}, (), occasions=REPLAYED)
    findings = judge_answer(order, recording(box)).findings
    return [each for each in findings if each.status in (Status.FAILED, Status.WARNING)]


def test_there_are_sixty() -> None:
    assert len(boxes()) >= 60 and len({box.source for box in boxes()}) == len(boxes())


@each_box
def test_a_healthy_box_is_recognised_and_raises_no_alarm(box: Box) -> None:
    gpus = read_facts(recording(box), facts_named("gpus"))["gpus"]
    assert isinstance(gpus, Gpus) and [gpu.name for gpu in gpus.devices] == [card.name for card in box.cards]
    assert gpus.confirmed and not gpus.disputed
    assert alarms(box, "auto") == []
