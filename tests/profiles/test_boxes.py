"""Boxes of public outputs: the cards are recognised, a healthy one raises no alarm, and a lost card is found."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nodectl.errors import ProfileError
from nodectl.facts.catalogue import facts_named, read_facts
from nodectl.facts.gpus import Gpus
from nodectl.health.host import REPLAYED, judge_answer, order_of
from nodectl.lab.composed import Box, Card, recording
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.recording import Recording
from nodectl.model.status import Status
from nodectl.profiles.gpus import apart, composed, floors_of, is_same, model_of, products_of, short_form
from nodectl.topology.look import look
from tests.facts.parsers.tool_outputs import SAMPLES
from tests.facts.recorded import fact
from tests.profiles.boxes import box_of, boxes

# one card each, of which the catalogue has no figures: the sources, and what the note on it says
APART = [
    (Card("GRID P4-1Q", "1bb3", 1024), "a vGPU of P4", "influxdata/telegraf tesla_p4.xml"),
    (Card("GRID V100D-8C", "1db6", 8192), "a vGPU of V100D", "535.216.01: counts `Attached vGPUs`"),
    (Card("Orin (nvgpu)", "0000"), "Jetson", "anduril/jetpack-nixos#371"),
    (Card("NVIDIA GeForce GTX 970", "13c2"), "older than Pascal", "DualCoder/vgpu_unlock#16"),
    (Card("Quadro M2200", "1436"), "older than Pascal", "NVIDIA/nvidia-docker#925"),
    (Card("Tesla M40", "17fd"), "older than Pascal", "oobabooga/textgen#1948"),
]
each_box = pytest.mark.parametrize(
    "box", boxes(), ids=lambda box: f"{len(box.cards)} x {' + '.join(dict.fromkeys(card.name for card in box.cards))}"
)


def judged(host: Recording, hardware: str) -> tuple[Finding, ...]:
    """What health says of a host."""
    names = {"hardware": hardware, "stack": "none", "tuning": "stock"}
    return judge_answer(order_of(Host("n1", "n1"), names, (), occasions=REPLAYED), host).findings


def alarms(box: Box, hardware: str) -> list[Finding]:
    """What health warns of, fails for or cannot tell, on a host that wears the box."""
    findings = judged(recording(box), hardware)
    # where no public output prints the memory, health cannot tell it
    untold = {"gpu_memory"} if any(card.mib is None for card in box.cards) else set()
    told = (each for each in findings if each.check not in untold or each.status is not Status.UNKNOWN)
    return [each for each in told if each.status not in (Status.OK, Status.SKIPPED)]


def samples(start: str) -> list[Path]:
    """Real outputs whose names begin so; none where they are not beside this checkout."""
    return sorted(SAMPLES.glob(f"{start}*")) if SAMPLES.is_dir() else []


without_samples = pytest.mark.skipif(not samples("nvidia-smi-"), reason="the samples of real machines are not here")


@without_samples
def test_each_gpu_of_a_real_report_is_one_of_the_catalogue() -> None:
    unknown, seen = [], 0
    # a report of one section has no names
    whole = [path for path in samples("nvidia-smi-q-") if "-q-d-" not in path.name]
    for path in whole:
        gpus = fact("gpus", nvidia_smi_q=path.read_text(errors="replace"))
        for gpu in gpus.devices if isinstance(gpus, Gpus) else ():
            seen += 1
            if gpu.name is None or not (short_form([gpu.name]) or apart(gpu.name)):
                unknown.append((path.name, gpu.name))
    assert unknown == [] and seen > 60


@each_box
def test_a_healthy_box_is_recognised_and_raises_no_alarm(box: Box) -> None:
    gpus = read_facts(recording(box), facts_named("gpus"))["gpus"]
    assert isinstance(gpus, Gpus) and [gpu.name for gpu in gpus.devices] == [card.name for card in box.cards]
    assert gpus.confirmed and not gpus.disputed
    assert alarms(box, "auto") == [] and not any(map(apart, (card.name for card in box.cards)))
    for card, row in zip(box.cards, box.links, strict=True):
        product, model = products_of(f"0x{card.id}"), model_of(card.name)
        assert any(is_same(card.name, one.name) for one in product)
        lanes = [int(word[2:]) for word in row if word.startswith("NV")]
        links = max(lanes) if box.switched else sum(lanes)
        assert not lanes or (model and model.nvlink and (links == model.nvlink[1] or "SXM2" in card.name))


@pytest.mark.parametrize(("card", "said"), [row[:2] for row in APART], ids=[card.name for card, *_ in APART])
def test_a_card_without_figures_is_named_and_raises_no_alarm(card: Card, said: str) -> None:
    box = Box((card,), (("X",),), [0])
    assert alarms(box, "auto") == [] and list(floors_of(card.name)) == []
    (note,) = [each for each in judged(recording(box), "auto") if each.check == "gpu_model"]
    assert (note.status, note.subject) == (Status.SKIPPED, card.name) and said in note.actual


@pytest.mark.parametrize(
    ("gpus", "links", "count", "active"),
    [
        ({"NVIDIA B200": 3}, "NV18 NODE NODE", Status.OK, ["GPU 2"]),  # vllm-project/vllm#16336
        ({"NVIDIA L40S": 1, "NVIDIA GeForce RTX 3090": 2, "NVIDIA GeForce RTX 2080 Ti": 2},
         "PHB PHB PHB PHB   NV4 PHB PHB   PHB PHB   NV2", Status.OK, []),
    ],
)  # fmt: skip
def test_too_few_links_are_those_of_a_kind(gpus: dict[str, int], links: str, count: Status, active: list[str]) -> None:
    found = judged(recording(box_of({"gpus": gpus, "links": links, "switched": "18" in links})), "auto")
    assert [each.status for each in found if each.check == "nvlink_count"] == [count]
    faults = [each for each in found if each.check == "nvlink_active" and each.status is Status.FAILED]
    assert [each.subject for each in faults] == active
    assert all(each.status is Status.OK for each in found if each.check == "nvlink_speed")


@pytest.mark.parametrize("name", ["NVIDIA A40-48Q", "GRID A100D-1-10C", "NVIDIA RTX6000-Ada-48Q", "GRID V100DX-32C"])
def test_a_vgpu_is_no_whole_card(name: str) -> None:
    assert "a vGPU of " in apart(name)
    with pytest.raises(ProfileError, match="a vGPU of "):
        composed(f"1 x {name}")


def test_another_makers_cards_are_named_with_what_works_beside_them() -> None:
    worn = recording(boxes()[0])
    entries = {
        key: replace(one, stdout="", exit_status=127) if "nvidia" in key else one for key, one in worn.entries.items()
    }
    lspci, nvidia = entries["lspci-acs"], re.compile(r"VGA compatible controller: NVIDIA Corporation")
    text = nvidia.sub("Display controller: Advanced Micro Devices, Inc. [AMD/ATI]", lspci.stdout)
    entries["lspci-acs"] = replace(lspci, stdout=text)
    worn = replace(worn, entries=entries)
    host = Host("n1", "n1")
    source: Any = SimpleNamespace(hosts=(host,), recordings=lambda _commands: iter([(host, worn)]))
    (seen,) = look(source, (), fabric=False).findings
    assert seen.status is Status.SKIPPED and "1 x AMD GPU on PCI" in seen.actual
    findings = judged(worn, "auto")
    (gpus,) = [each for each in findings if each.check == "gpus"]
    assert gpus.status is Status.SKIPPED and "1 x AMD GPU on PCI" in gpus.actual and "gloo" in gpus.actual


@each_box
def test_without_one_card_the_named_machine_fails_and_the_card_is_named(box: Box) -> None:
    named = short_form([card.name for card in box.cards])
    assert alarms(box, named) == []
    for number, card in enumerate(box.cards):
        if card in box.cards[:number]:
            continue
        for worn, place in lost(box, number):
            (count,) = [each for each in judged(worn, named) if each.check == "gpus"]
            (model,) = [group.model for group in composed(named).groups if is_same(card.name, group.model)]
            assert (count.status, count.action) == (Status.FAILED, "reboot")
            assert f"1 x {model}" in count.actual if len(box.cards) > 1 else model in count.expected
            assert place in count.actual


def lost(box: Box, number: int) -> Iterator[tuple[Recording, str]]:
    """Yield hosts whose card is gone: fallen off the bus, not taken by the driver, out of its reach; and its place."""
    others = [other for other in range(len(box.cards)) if other != number]
    links = tuple(tuple(box.links[row][column] for column in others) for row in others)
    rest = Box(tuple(box.cards[other] for other in others), links, others, box.switched)
    without, whole = recording(rest), recording(box)
    at = whole.entries["nvidia-smi-query"].stdout.splitlines()[number + 1].split(", ")[3][4:]
    said = without.entries
    if len(box.cards) == 1:
        nothing = {
            key: replace(one, stdout="No devices were found\n", exit_status=6)
            for key, one in said.items()
            if key in ("nvidia-smi-q", "nvidia-smi-query")
        }
        said = {**said, **nothing}
    yield replace(without, entries=said), ""
    bus = {key: whole.entries[key] for key in ("lspci-acs", "pci-tree")}
    yield replace(without, entries={**said, **bus}), at.lower()
    if len(box.cards) > 1:
        reason = f"Unable to determine the device handle for GPU{number}: {at}: Unknown Error\n"
        query = said["nvidia-smi-query"]
        query = replace(query, stdout=query.stdout + reason, exit_status=15)
        yield replace(without, entries={**said, **bus, "nvidia-smi-query": query}), at
