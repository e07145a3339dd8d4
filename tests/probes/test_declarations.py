"""A probe's declaration: what is wrong with it is told at once, and what it says agrees with the rest of the house."""

import importlib
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click import BadParameter

from nodectl.cli.options import Seconds
from nodectl.cli.probe import _single
from nodectl.errors import DeclarationError
from nodectl.model.host import Host
from nodectl.model.measurement import MeasurementKind, Unit
from nodectl.probes import registry
from nodectl.probes.base import Amount, ProbeOptions
from nodectl.probes.floors import refuse_wrong_floors
from nodectl.probes.options import Choice, Whole, option
from nodectl.probes.registry import AnyProbe, declarations
from nodectl.probes.series import run_probes
from nodectl.profiles.load import find_profiles
from nodectl.profiles.resolve import load_profile
from nodectl.profiles.schema import Hardware
from tests.probes.declared import probe_of

GOOD = Unit("x", lower_is_better=False)


def nothing(*_: object) -> Any:
    raise AssertionError("nothing is measured here")


@dataclass(frozen=True)
class TextForKind(ProbeOptions):
    program: str = option("", "PATH", "A program.")  # type: ignore[arg-type]


@dataclass(frozen=True)
class DefaultOutside(ProbeOptions):
    threads: int = option(0, Whole(1, 9), "Threads.")


@dataclass(frozen=True)
class OtherWord(ProbeOptions):
    kind: str = option("fat", Choice(("flat", "tall")), "The kind.")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": "my-probe"}, "'my-probe' is not a word"),
        ({"name": "quick"}, "'quick' is the name of a group"),
        ({"summary": "no full stop"}, "the summary is not one line"),
        ({"results": MeasurementKind()}, "results: a unit is needed"),
        ({"groups": ("fast",)}, "groups: known are quick, network, gpu, all"),
        ({"in_a_trial": 7}, "in_a_trial is no ProbeOptions"),
        ({"least": Amount(9, 9.0)}, "least is more than usual"),
        ({"run": None}, "run is no function"),
        ({"options": dict}, "options is no class of ProbeOptions"),
        ({"results": MeasurementKind(units=("GB/s",))}, r"results.units is no tuple of Unit: \('GB/s',\)"),  # type: ignore[arg-type]
        (
            {"results": MeasurementKind(units=(Unit("starts"),))},
            "results.units: 'starts' is no known time or rate",
        ),
        ({"results": MeasurementKind(units=Unit("x"))}, "results.units is no tuple"),  # type: ignore[arg-type]
        ({"results": MeasurementKind(units=(GOOD,), identity="size")}, "results.identity is no tuple"),  # type: ignore[arg-type]
        ({"needs": ("fio",)}, r"needs is no tuple of Need: \('fio',\)"),
        ({"floors": "program"}, "floors is no tuple of str: 'program'"),
        ({"feels": "sysctl.vm"}, "feels is no tuple of str: 'sysctl.vm'"),
        ({"feels": ("sysctl.vm", "sysctls.net")}, "feels: 'sysctls.net' is a part of none of sysctl, nccl, limits"),
        ({"usual": 3}, "usual is no Amount: 3"),
        ({"results": MeasurementKind(units=(GOOD,), shown="{program")}, "results.shown '{program': expected '}'"),
        ({"options": TextForKind}, "option --program: its kind is none of Text, Whole, Seconds and Choice: 'PATH'"),
        ({"options": DefaultOutside}, "option --threads: its default 0 is no Whole"),
        ({"options": OtherWord}, "option --kind: its default 'fat' is no Choice"),
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
            (
                "from nodectl.probes.base import Probe, ProbeOptions\n"
                "PROBE = Probe(name='mine', summary='Mine.', run=print, options=ProbeOptions)\n"
            ),
            "added_by_a_test.py, line 2: .* missing .*'results'",
        ),
        (
            "from nodectl.probes.base import Probe\nPROBE = Probe(\n    name='mine', feles=('sysctl',))\n",
            "added_by_a_test.py, line 2: .*unexpected keyword argument 'feles'; did you mean 'feels'",
        ),
        ("import json\nPROBE = (\n", "added_by_a_test.py, line 2: SyntaxError: .*never closed"),
        ("from json import no_such\nPROBE = no_such\n", "added_by_a_test.py, line 1: ImportError"),
        (
            (
                "import dataclasses\nfrom nodectl.model.measurement import MeasurementKind, Unit\n"
                "from nodectl.probes.memory import PROBE as MEMORY\n"
                "PROBE = dataclasses.replace(MEMORY, name='mine', results=MeasurementKind(units=(Unit('starts'),)))\n"
            ),
            "added_by_a_test.py, line 4: .* probe mine: results.units: 'starts' is no known time or rate",
        ),
        ("PROBE = {}['x']\n", "added_by_a_test.py, line 1: KeyError"),
        ("PROBE = print\n", "nodectl.probes.added_by_a_test: PROBE is no nodectl.probes.base.Probe"),
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
        ('Unit("files/s")', 'Unit("file/s")', "it measures in 'files/s', and results.units has 'file/s'"),
        ('=("program"', '=("progam"', "results.identity names 'progam', .*did you mean 'program'"),
        ('"{program}"', '"{progam}"', "results.shown names 'progam', .*did you mean 'program'"),
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


def test_what_a_table_shows_of_conditions() -> None:
    given = {"files": 3, "path": "/x", "list": [1]}
    assert MeasurementKind(shown="{files} files, {gone}").conditions(given) == "3 files, None"
    assert MeasurementKind(shown=lambda told: f"in {told['path']}").conditions(given) == "in /x"
    assert MeasurementKind().conditions(given) == "files 3, path /x"


def test_which_way_a_unit_points() -> None:
    kind = MeasurementKind(units=(Unit("files", lower_is_better=False), Unit("ms"), Unit("things")))
    assert [kind.lower_is_better(name) for name in ("files", "ms", "things", "MB/s")] == [False, True, None, False]


def test_an_option_that_is_called_as_a_common_one_is_refused() -> None:
    @dataclass(frozen=True)
    class Renamed(ProbeOptions):
        spending: int | None = option(None, Whole(1, 9), "Money.", flag="budget")

    with pytest.raises(DeclarationError, match="probe mine: there is another option --budget"):
        _single(probe_of("mine", nothing, options=Renamed))


@pytest.mark.parametrize(
    ("text", "time_s"), [("0.5", 0.5), ("500ms", 0.5), ("30s", 30.0), ("2 m", 120.0), ("1h", 3600.0), (7, 7.0)]
)
def test_a_time_is_written_with_its_unit_or_in_seconds(text: object, time_s: float) -> None:
    assert Seconds(0.001, 3600).convert(text, None, None) == time_s


@pytest.mark.parametrize("text", ["nan", "s", "1..2", "1d", "-1", "2h", ""])
def test_what_is_no_time_or_out_of_range_is_refused(text: str) -> None:
    with pytest.raises(BadParameter):
        Seconds(0.001, 3600).convert(text, None, None)


def test_a_script_of_the_checkout_tells_a_wrong_declaration_without_a_traceback(tmp_path: Path) -> None:
    """The page's first step after a new file is `make docs`: what it says of a mistake is one line."""
    root, script = Path(__file__).resolve().parents[2], "docs"
    told = (
        f"import runpy, sys; sys.argv = ['{script}']\n"
        "from nodectl.common import declarations\n"
        "from nodectl.errors import DeclarationError\n"
        "def wrong(main):\n"
        "    def refuse(): raise DeclarationError('nodectl/probes/mine.py, line 2: no', 'correct it')\n"
        "    return ended(refuse)\n"
        "ended, declarations.ended = declarations.ended, wrong\n"
        f"runpy.run_path({str(root / 'scripts' / f'{script}.py')!r}, run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", told], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "nodectl/probes/mine.py, line 2: no\n  try: correct it\n")
