"""Boxes of public outputs: the cards are recognised, a healthy one raises no alarm, and a lost card is found."""

from __future__ import annotations

import pytest

from nodectl.facts.catalogue import facts_named, read_facts
from nodectl.facts.gpus import Gpus
from nodectl.health.host import REPLAYED, judge_answer, order_of
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.profiles.gpus import composed, is_same, short_form
from tests.profiles.boxes import Box, boxes, recording

each_box = pytest.mark.parametrize("box", boxes(), ids=str)


def alarms(box: Box, hardware: str) -> list[Finding]:
    """What health warns of, fails for or cannot tell, on a host that wears the box."""
    order = order_of(
        Host("node01", "node01"), {"hardware": hardware, "stack": "none", "tuning": "stock"}, (), occasions=REPLAYED
    )
    findings = judge_answer(order, recording(box)).findings
    # where no public output prints the memory, health cannot tell it
    untold = {"gpu_memory"} if any(card.mib is None for card in box.cards) else set()
    told = (each for each in findings if each.check not in untold or each.status is not Status.UNKNOWN)
    return [each for each in told if each.status not in (Status.OK, Status.SKIPPED)]


def test_there_are_sixty() -> None:
    assert len(boxes()) >= 60 and len({box.source for box in boxes()}) == len(boxes())


@each_box
def test_a_healthy_box_is_recognised_and_raises_no_alarm(box: Box) -> None:
    gpus = read_facts(recording(box), facts_named("gpus"))["gpus"]
    assert isinstance(gpus, Gpus) and [gpu.name for gpu in gpus.devices] == [card.name for card in box.cards]
    assert gpus.confirmed and not gpus.disputed
    assert alarms(box, "auto") == []


@each_box
def test_without_one_card_the_named_machine_fails_and_the_card_is_named(box: Box) -> None:
    named = short_form([card.name for card in box.cards])
    assert alarms(box, named) == []
    for number, card in enumerate(box.cards):
        if len(box.cards) == 1 or card in box.cards[:number]:
            continue
        (count,) = [each for each in alarms(box.without(number), named) if each.check == "gpus"]
        (model,) = [group.model for group in composed(named).groups if is_same(card.name, group.model)]
        assert (count.status, count.action) == (Status.FAILED, "reboot")
        assert f"1 x {model}" in count.actual
