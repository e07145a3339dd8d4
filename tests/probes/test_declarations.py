"""A probe's declaration: errors are reported on load, and it agrees with the rest of the project."""

import pytest

from nodectl.probes.base import GROUPS
from nodectl.probes.floors import refuse_wrong_floors
from nodectl.probes.registry import AnyProbe, declarations
from nodectl.profiles import SETTINGS
from nodectl.profiles.load import find_profiles
from nodectl.profiles.resolve import load_profile
from nodectl.profiles.schema import Hardware


def test_a_probe_declares_units_with_a_direction_and_known_settings() -> None:
    for probe in declarations().values():
        assert probe.results.units and set(probe.results.places) <= set(probe.results.identity)
        assert all(probe.results.lower_is_better(unit.name) is not None for unit in probe.results.units)
        assert {part.partition(".")[0] for part in probe.feels} <= set(SETTINGS)
        assert set(probe.groups) <= set(GROUPS) and probe.name not in GROUPS


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
