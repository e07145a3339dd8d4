"""What two measurements must agree in to be of the same thing."""

import pytest

from nodectl.ledger.history.store import identity_of
from nodectl.model.measurement import Measurement
from nodectl.probes.registry import declarations


@pytest.mark.parametrize("name", declarations())
def test_chosen_conditions_tell_measurements_apart_and_what_was_found_does_not(name: str) -> None:
    results = declarations()[name].results
    one = Measurement(name, ("a", "b"), 1.0, results.units[0].name, conditions=dict.fromkeys(results.identity, "one"))
    assert identity_of(one.with_conditions(repetitions=9, trimmed=["x"])).key == identity_of(one).key
    for condition in results.identity:
        assert identity_of(one.with_conditions(**{condition: "another"})).key != identity_of(one).key
