"""The power probe: watts of each step, and who gave way at which: a rail, clocks, a card, the host."""

from __future__ import annotations

from typing import Any

import pytest

from nodectl.model.host import Host
from nodectl.model.result import CommandResult, Outcome
from nodectl.probes.base import ProbeOptions, ProbeResult
from nodectl.probes.device.power import PROBE as POWER
from tests.probes.device_answers import devices, look, probe, told
from tests.probes.scripted import Answer, play

SEEN = {"samples": 9, "power_w": 440.0, "clock_mhz": 2500.0, "clock_min_mhz": 2450.0, "throttled": ["power cap"]}
HOSTS = [Host("node01", "node01")]


def begun(cards: int, pulsed: bool = False) -> dict[str, Any]:
    return {"event": "step", "cards": cards, "pulsed": pulsed}


def step(cards: int, pulsed: bool = False, rails: Any = None, **seen: Any) -> list[dict[str, Any]]:
    at = {"cards": cards, "pulsed": pulsed, "began": 10.0 * cards + 5 * pulsed, "ended": 10.0 * cards + 9}
    gpus = [{"event": "loaded", "gpu": gpu, "seen": {**SEEN, **seen}, **at} for gpu in range(cards)]
    return [begun(cards, pulsed), *gpus, {"event": "stepped", "rails": rails or {}, **at}]


def run(monkeypatch: pytest.MonkeyPatch, *events: dict[str, Any], gpus: int = 3) -> ProbeResult:
    result, _ = probe(monkeypatch, POWER, lambda host, number: [devices(gpus), *events], hosts=HOSTS, gpus=gpus)
    return result


WELL = [*step(1), *step(2), *step(3), *step(3, pulsed=True)]


def test_the_cards_watts_are_added_up_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, *WELL)
    assert [each.value for each in result.measurements] == [440, 880, 1320, 1320] and not result.findings
    assert [each.conditions["pulsed"] for each in result.measurements] == [False, False, False, True]
    assert result.measurements[0].direction == "node01 1 card at once"


@pytest.mark.parametrize(
    ("last", "status", "words"),
    [
        (step(2, rails={"+12V": [11.3, 12.0]}), "warning", ("2 cards", "11.30 V")),
        (step(2, rails={"+12V": [10.7, 12.0]}), "failed", ("2 cards", "10.70 V")),
        (step(2, throttled=["power brake"], clock_min_mhz=300.0), "failed", ("2 cards", "power brake", "300")),
        ([*step(2, throttled=[]), *step(3, clock_mhz=1500.0, throttled=[])], "warning", ("3 cards", "2500", "1500")),
        (
            [*step(2), {"event": "lost", "cards": 2, "pulsed": False, "gpu": 1, "text": "CUDA error: unspecified"}],
            "failed",
            ("2 cards", "GPU 1", "CUDA error"),
        ),
        (
            [*step(2), {"event": "lost", "cards": 2, "pulsed": False, "gpu": None, "text": "nvidia-smi shows 1 of 2"}],
            "failed",
            ("2 cards", "1 of 2"),
        ),
    ],
)
def test_what_gives_way_is_told_once_with_its_step(
    monkeypatch: pytest.MonkeyPatch, last: list[dict[str, Any]], status: str, words: tuple[str, ...]
) -> None:
    result = run(monkeypatch, *step(1), *last, gpus=2)
    (finding,) = result.findings
    assert finding.status.value == status and all(word in finding.actual for word in words), finding
    assert "power_limit_w" in finding.remedy and finding.action == ("drain" if status == "failed" else "none")


def test_a_clock_that_the_power_limit_holds_or_a_pause_lets_down_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    paused = step(2, pulsed=True, clock_mhz=300.0, throttled=[])
    assert not run(monkeypatch, *step(1), *step(2, clock_mhz=1500.0), *paused, gpus=2).findings


@pytest.mark.parametrize(
    ("after", "status", "words"),
    [
        (None, "failed", ("at 2 cards at once", "went away", "power supply")),
        ("another-boot", "failed", ("at 2 cards at once", "has restarted", "power supply")),
        ("this-boot", "unknown", ("closed",)),
    ],
)
def test_a_host_that_dies_during_a_step_is_no_error_of_the_connection(
    monkeypatch: pytest.MonkeyPatch, after: str | None, status: str, words: tuple[str, ...]
) -> None:
    def answers(host: str, module: str, args: Any) -> Answer:
        if args[0] == "look":
            return look(3, machine="this-boot")
        return Answer([devices(3), *step(1), begun(2)], status=255)

    fleet = play(monkeypatch, answers)

    def cut(*_: Any, **__: Any) -> CommandResult:
        outcome = Outcome.RAN if after else Outcome.UNREACHABLE
        return CommandResult("node01", (), outcome, 0 if after else None, f"{after}\n", "", 0.1)

    monkeypatch.setattr(fleet, "run", cut, raising=False)
    monkeypatch.setattr("nodectl.probes.device.devices.failure", lambda done, events: ("the connection was closed", ""))
    result = POWER.run(fleet, HOSTS, ProbeOptions(), lambda _: None)
    (finding,) = result.findings
    assert finding.status.value == status and all(word in finding.actual for word in words), finding
    assert [each.value for each in result.measurements] == [440]


def test_a_host_without_gpus_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    result, _ = probe(monkeypatch, POWER, lambda host, number: [], hosts=HOSTS, gpus=0)
    assert told(result) == [("node01", "skipped", "")]
