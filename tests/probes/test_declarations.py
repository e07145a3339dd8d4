"""A probe's declaration: errors are reported on load, and it agrees with the rest of the project."""

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nodectl.cli.options import Seconds
from nodectl.errors import DeclarationError
from nodectl.model.host import Host
from nodectl.model.measurement import MeasurementKind, Unit
from nodectl.probes import registry
from nodectl.probes.base import ProbeOptions
from nodectl.probes.floors import refuse_wrong_floors
from nodectl.probes.options import option
from nodectl.probes.registry import AnyProbe, declarations
from nodectl.probes.series import run_probes
from nodectl.profiles.load import find_profiles
from nodectl.profiles.resolve import load_profile
from nodectl.profiles.schema import Hardware
from tests.probes.declared import probe_of


def nothing(*_: object) -> Any:
    raise AssertionError("nothing is measured here")


@dataclass(frozen=True)
class TextForKind(ProbeOptions):
    program: str = option("", "PATH", "A program.")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": "my-probe"}, "'my-probe' is not a word"),
        ({"name": "quick"}, "'quick' is the name of a group"),
        ({"results": MeasurementKind()}, "results: a unit is needed"),
        ({"groups": ("fast",)}, "groups: known are quick, network, gpu, all"),
        ({"results": MeasurementKind(units=Unit("x"))}, "results.units is no tuple"),  # type: ignore[arg-type]
        ({"feels": ("sysctl.vm", "sysctls.net")}, "feels: 'sysctls.net' is a part of none of sysctl, nccl, limits"),
        ({"options": TextForKind}, "option --program: its kind is none of Text, Whole, Seconds and Choice: 'PATH'"),
    ],
)
def test_a_declaration_that_is_wrong_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        probe_of(**{"name": "mine", "run": nothing, **wrong})


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """A file beside nodectl's own probes."""
    import nodectl.probes

    monkeypatch.setattr(nodectl.probes, "__path__", [*nodectl.probes.__path__, str(tmp_path)])
    registry.declarations.cache_clear()

    def write(text: str) -> None:
        (tmp_path / "added_by_a_test.py").write_text(text)
        importlib.invalidate_caches()

    return write


@pytest.fixture(autouse=True)
def as_before() -> Any:
    yield
    registry.declarations.cache_clear()
    sys.modules.pop("nodectl.probes.added_by_a_test", None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "from nodectl.probes.base import Probe\nPROBE = Probe(\n    name='mine', feles=('sysctl',))\n",
            "added_by_a_test.py, line 2: .*unexpected keyword argument 'feles'; did you mean 'feels'",
        ),
        ("import json\nPROBE = (\n", "added_by_a_test.py, line 2: SyntaxError: .*never closed"),
        (
            (
                "import dataclasses\nfrom nodectl.probes.tcp import PROBE as TCP\n"
                "PROBE = dataclasses.replace(TCP, summary='Another.')\n"
            ),
            "two probes tcp: nodectl.probes.tcp, nodectl.probes.added_by_a_test",
        ),
    ],
)
def test_a_file_with_a_wrong_declaration_is_named(beside: Callable[[str], None], text: str, message: str) -> None:
    beside(text)
    with pytest.raises(DeclarationError, match=message):
        declarations()


MISSPELT = """\
from nodectl.model.measurement import Measurement, MeasurementKind, Unit
from nodectl.probes.base import Amount, Probe, ProbeOptions, ProbeResult

def measure(transport, hosts, options, note):
    return ProbeResult((Measurement("mine", ("a",), 1.0, "files/s", conditions={"program": "x", "runs": 1}),))

PROBE = Probe(
    name="mine", summary="Mine.", run=measure, options=ProbeOptions, usual=Amount(1, 1.0), least=Amount(1, 1.0),
    results=MeasurementKind(units=(Unit("files/s"),), identity=("program", "path"), shown="{program}"),
    cost_s=lambda amount: 1.0,
)
"""


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ('"mine", ("a",)', '"mein", ("a",)', "it measures as 'mein'"),
        ('=("program"', '=("progam"', "results.identity names 'progam', .*did you mean 'program'"),
    ],
)
def test_what_is_measured_and_not_declared_is_refused(
    beside: Callable[[str], None], right: str, wrong: str, message: str
) -> None:
    beside(MISSPELT.replace(right, wrong))
    wanted = [(declarations()["mine"], ProbeOptions())]
    said = f"nodectl.probes.added_by_a_test: probe mine: {message}"
    nowhere: Any = None
    with pytest.raises(DeclarationError, match=said):
        run_probes(nowhere, (Host("a", "a"),), wanted, None, lambda _: None)


@pytest.mark.parametrize("probe", declarations().values(), ids=lambda probe: probe.name)
def test_what_a_trial_measures_is_no_more_than_usual(probe: AnyProbe) -> None:
    shorter = probe.trial_options
    assert shorter.repetitions is not None and shorter.repetitions <= probe.usual.repetitions
    assert 0 < probe.cost_s(probe.least) < probe.cost_s(probe.usual)


@pytest.mark.parametrize("name", find_profiles("hardware"))
def test_a_floor_is_of_a_probe_and_names_its_conditions_and_units(name: str) -> None:
    hardware = load_profile("hardware", name)
    assert isinstance(hardware, Hardware)
    refuse_wrong_floors(hardware, name)
    for floor in hardware.floors:
        assert set(floor.conditions) <= {"size", *declarations()[floor.probe].floor_conditions}


@pytest.mark.parametrize(
    ("text", "time_s"), [("0.5", 0.5), ("500ms", 0.5), ("30s", 30.0), ("2 m", 120.0), ("1h", 3600.0), (7, 7.0)]
)
def test_a_time_is_written_with_its_unit_or_in_seconds(text: object, time_s: float) -> None:
    assert Seconds(0.001, 3600).convert(text, None, None) == time_s
