"""An upgrade's plan, its course over faked steps, what it drains and returns, and which figures count as lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from nodectl.cli.app import App
from nodectl.cli.upgrade import Course, Evidence
from nodectl.errors import NodectlError, UsageError
from nodectl.ledger.history.compare import losses
from nodectl.ledger.store import Ledger
from nodectl.model.acceptance import Acceptance, HostAcceptance, NodeVerdict, Taken
from nodectl.model.host import UPGRADE_SIDE, Host
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.upgrade import roll as rolls
from nodectl.upgrade.roll import HostRoll, Phase, Roll, as_rolled, in_batches, planned, variables_of

FLEET, HOSTS = "hosts.yml", ("a", "b", "c")
ROWS = tuple(HostRoll(name, int(name != "a"), {"nodectl_stack": "new"}) for name in HOSTS)
ROLL = Roll("20261128T090000Z-0001", FLEET, "new", ROWS)


class PowerCutError(BaseException):
    """The operator's machine is dead."""


@dataclass
class World(Course):
    """Hosts as they are, whatever is written down of them; it dies at the step of that number."""

    app: App = field(default_factory=lambda: App((), None, None, "table", 1))
    roll: Roll = ROLL
    stop_jobs: bool = False
    tolerance: float = 5.0
    stacks: dict[str, str] = field(default_factory=lambda: dict.fromkeys(HOSTS, "old"))
    cordoned: set[str] = field(default_factory=set)
    bad: set[str] = field(default_factory=set)
    said: list[str] = field(default_factory=list)
    dies_at: int = 0

    def step(self, name: str, names: Sequence[str]) -> None:
        self.said.append(f"{name} {','.join(names)}")
        if 0 < self.dies_at <= len(self.said):
            raise PowerCutError

    def keep(self, roll: Roll) -> None:
        if 0 < self.dies_at <= len(self.said):
            raise PowerCutError
        super().keep(roll)

    def empty(self, names: Sequence[str]) -> None:
        self.step("drain", names)
        self.cordoned |= set(names)
        self.step("drained", names)

    def known(self, names: Sequence[str]) -> tuple[str, str, Mapping[str, str]]:
        self.step("known", names)
        assert set(names) <= self.cordoned
        return "before", "before-too", dict.fromkeys(names, "run-1")

    def provision(self, names: Sequence[str]) -> Evidence:
        self.step("change", names)
        assert set(names) <= self.cordoned
        self.stacks |= dict.fromkeys(names, self.roll.what)
        self.step("changed", names)
        return {}

    def prove(self, names: Sequence[str]) -> tuple[str, Evidence]:
        self.step("prove", names)
        new = {name for name in names if self.roll.of(name).phase is Phase.CHANGING}
        assert all(self.stacks[name] == (self.roll.what if name in new else "old") for name in names)
        return "after", dict.fromkeys(new & self.bad, ("slower",))

    def put_back(self, names: Sequence[str]) -> Evidence:
        self.step("put-back", names)
        assert all(self.roll.of(name).back_to == "run-1" for name in names)
        self.stacks |= dict.fromkeys(names, "old")
        self.step("is-back", names)
        return {}

    def give_back(self, names: Sequence[str], proof: str = "") -> None:
        self.step("give-back", names)
        self.cordoned -= set(names)
        self.step("given-back", names)


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def carried(world: World, roll: Roll = ROLL) -> Roll:
    """The roll as the disk has it after its course."""
    rolls.save(roll)
    world.roll = roll
    try:
        world.run()
    except PowerCutError:
        world.dies_at = 0
    kept = rolls.latest(FLEET)
    assert kept is not None
    return kept


def test_the_canary_goes_alone_then_the_others_together() -> None:
    world = World()
    done = carried(world)
    assert [said for said in world.said if said.startswith("change ")] == ["change a", "change b,c"]
    assert {row.phase for row in done.hosts} == {Phase.DONE} and done.ended and rolls.under_way(FLEET) is None
    assert (world.cordoned, set(world.stacks.values())) == (set(), {"new"})
    assert {(row.before, row.after) for row in done.hosts} == {("before", "after")}


def test_the_first_rejection_ends_it_and_puts_that_host_back() -> None:
    world = World(bad={"a"})
    stopped = carried(world)
    assert [row.phase for row in stopped.hosts] == [Phase.BACK, Phase.WAITING, Phase.WAITING]
    assert set(world.stacks.values()) == {"old"} and world.cordoned == set()
    assert stopped.of("a").evidence[0] == "slower" and stopped.ended is None
    world.bad = {"c"}
    assert [row.phase for row in carried(world, stopped.again()).hosts] == [Phase.DONE, Phase.DONE, Phase.BACK]
    assert world.stacks == {"a": "new", "b": "new", "c": "old"}


@pytest.mark.parametrize("bad", [set(), {"a"}], ids=["all-good", "canary-bad"])
def test_dead_at_any_step_each_host_is_what_is_told_of_it_and_it_goes_on(bad: set[str]) -> None:
    whole = World(bad=bad)
    whole.run()
    for number in range(1, len(whole.said) + 1):
        world = World(bad=set(bad), dies_at=number)
        roll = carried(world)
        for row in roll.hosts:
            half = row.phase.startswith("half")
            assert row.host in world.cordoned if half else row.phase.startswith(world.stacks[row.host]), (number, row)
            assert row.phase is not Phase.WAITING or row.host not in world.cordoned, (number, row)
        world.bad = set()
        roll = carried(world, roll.again())
        if roll.ended is None:  # what was being put back was put back
            roll = carried(world, roll.again())
        assert ({row.phase for row in roll.hosts}, world.cordoned) == ({Phase.DONE}, set()), number
        assert set(world.stacks.values()) == {"new"}


def test_ctrl_c_before_anything_was_changed_gives_the_host_back(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    monkeypatch.setattr(world, "known", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        world.run()
    assert ({row.phase for row in world.roll.hosts}, world.cordoned) == ({Phase.WAITING}, set())


def test_a_host_bad_with_its_old_stack_too_stays_out_and_keeps_its_first_figures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    back = carried(World(bad={"a"}))
    bad = back.changed(["a"], evidence=("slower", f"{rolls.STILL}slower"))
    world = World(roll=bad.again(), cordoned={"a"})
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(world, "known", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        world.run()
    assert (world.roll.of("a").phase, world.cordoned) == (Phase.BACK, {"a"})
    monkeypatch.setattr(world, "known", lambda names: ("later", "later-too", dict.fromkeys(names, "run-1")))
    assert [row.before for row in carried(world, world.roll.again()).hosts] == ["before", "later", "later"]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Course, Ledger]:
    monkeypatch.setattr(Course, "_work_on", lambda *_: "")
    app = SimpleNamespace(
        ledger=lambda: Ledger(tmp_path / "history.sqlite", "f"),
        inventory=SimpleNamespace(hosts=lambda _: [Host(name, name) for name in HOSTS]),
        of=lambda part: SimpleNamespace(hosts=part),
    )
    return Course(cast("App", app), ROLL, stop_jobs=False, tolerance=5.0), app.ledger()


def test_what_is_cordoned_twice_is_cordoned_once_and_given_back_alone(made: tuple[Course, Ledger]) -> None:
    course, kept = made
    kept.cordon("a", "its fan", "ada")
    with pytest.raises(NodectlError):
        course.empty(["a"])  # since the plan
    course.roll = replace(ROLL, id="20991128T090000Z-0001")
    for _ in range(2):
        course.empty(["a"])
    assert [hold.reason for hold in kept.cordoned(["a"])["a"]] == ["its fan", course.roll.reason]


def test_what_no_acceptance_proves_is_not_given_back(made: tuple[Course, Ledger]) -> None:
    course, kept = made
    course.empty(["a"])
    course.give_back(["a"], "good")
    assert "a" in kept.cordoned(["a"])
    course.give_back(["a"])
    assert "a" not in kept.cordoned(["a"])


def host(name: str, **variables: object) -> Host:
    return Host(name, name, variables={"nodectl_hardware": "rtx4090-3", "nodectl_stack": "cu124", **variables})


def test_the_drivers_branch_joins_what_the_host_says_already() -> None:
    own = {"stack": {"driver": {"flavour": "open"}}, "sysctl": {"vm.swappiness": 1}}
    joined = {**own, "stack": {"driver": {"flavour": "open", "branch": "580"}}}
    given = host("a", nodectl_overrides=own)
    assert variables_of(given, "cu128", "580") == {"nodectl_stack": "cu128", "nodectl_overrides": joined}
    assert given.variables["nodectl_overrides"] == {**own, "stack": {"driver": {"flavour": "open"}}}


def test_the_row_says_from_what_to_what() -> None:
    row = planned(host("a"), host("a", nodectl_stack="cu118"), "cu128", "", {}, ())
    assert row.changes[:2] == ("stack cu118 → cu128", "torch 2.0.1+cu118 → 2.9.1")
    assert "CUDA 11.8 → 12.8" in row.changes and not row.reboots
    plain = Host("b", "b", variables={"nodectl_hardware": "lab-cpu"})
    with pytest.raises(UsageError):
        planned(plain, plain, "cpu", "580", {}, ())


def test_the_canary_is_a_host_without_work() -> None:
    rows = [HostRoll(name, 0, {}) for name in "abcde"]
    batches = [(row.host, row.batch) for row in in_batches(rows, 2, "", {"a": "job"})]
    assert batches == [("b", 0), ("a", 1), ("c", 1), ("d", 2), ("e", 2)]
    assert in_batches(rows, 1, "d", {})[0].host == "d"
    with pytest.raises(UsageError):
        in_batches(rows, 1, "z", {})


def test_health_holds_new_hosts_against_the_new_stack() -> None:
    roll = ROLL.changed(["a"], phase=Phase.DONE)
    seen = [
        (one.variables["nodectl_stack"], one.variables[UPGRADE_SIDE]) for one in as_rolled(roll, [*map(host, "abz")])
    ]
    assert seen == [("new", "new"), ("cu124", "old"), ("cu124", "old")]
    assert roll.progress == "upgrading 1 of 3 hosts to new"


def accepted(tflops: float, spread: float | None, **steps: Status) -> Acceptance:
    one = Measurement("gemm", ("a",), tflops, "TFLOPS", "a CPU", spread=spread, conditions={"precision": "fp32"})
    row = HostAcceptance("a", NodeVerdict.ACCEPTED, steps)
    return Acceptance("i", "quick", "f", 1.0, 2.0, "lab", "0", hosts=(row,), taken=(Taken("gemm", one),))


def test_lost_are_figures_beyond_tolerance_and_spreads_and_steps_that_passed_before() -> None:
    for figure, spread, is_lost in [(80.0, 0.02, True), (80.0, None, True), (80.0, 0.3, False), (97.0, 0.01, False)]:
        assert bool(losses(accepted(100.0, 0.01), accepted(figure, spread), 5.0)) is is_lost, (figure, spread)
    before = accepted(100.0, 0.01, health=Status.FAILED, memory=Status.OK)
    after = accepted(130.0, 0.01, health=Status.FAILED, memory=Status.FAILED)
    assert list(losses(before, after, 5.0)) == [("a", "memory")]
    # as where its GPUs are gone
    assert list(losses(before, accepted(100.0, 0.01, health=Status.FAILED), 5.0)) == [("a", "memory")]


@pytest.mark.parametrize(
    ("befores", "looks", "is_lost"),
    [((100, 99), (80, 81), True), ((100, 79), (80, 81), False), ((100, 120), (90, 90), False)],
)
def test_what_two_looks_of_before_lay_apart_is_noise(
    befores: tuple[float, float], looks: tuple[float, float], is_lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = {"b1": befores[0], "b2": befores[1]}
    monkeypatch.setattr("nodectl.cli.upgrade.store.find", lambda one: accepted(figures[one], None))
    later = iter(looks)
    monkeypatch.setattr("nodectl.cli.upgrade.accepted", lambda _: accepted(next(later), None))
    monkeypatch.setattr(Course, "_of", lambda *_: None)
    course = Course(None, ROLL.changed(["a"], before="b1", before_too="b2"), False, 5.0)  # type: ignore[arg-type]
    assert bool(course.prove(["a"])[1]) is is_lost
