"""What two measurements must agree in to be of the same thing; histories of an older nodectl are still understood."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nodectl.ledger.history.store import identity_of
from nodectl.model.measurement import Measurement
from nodectl.probes.registry import declarations

# measurements as the probes made them before they declared what identifies them, each with the key that was kept
KEPT = json.loads((Path(__file__).parent / "identities.json").read_text())


def measured(kept: Mapping[str, Any], **conditions: object) -> Measurement:
    given = {**kept["conditions"], **conditions}
    return Measurement(kept["probe"], tuple(kept["hosts"]), 1.0, kept["unit"], kept["direction"], conditions=given)


@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: kept["key"])
def test_the_key_is_what_it_was(kept: Mapping[str, Any]) -> None:
    assert identity_of(measured(kept)).key == kept["key"]


@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: kept["key"])
def test_what_was_found_does_not_tell_measurements_apart(kept: Mapping[str, Any]) -> None:
    assert identity_of(measured(kept, mtu=[9000, 9000], repetitions=9, trimmed=["x"])).key == kept["key"]


@pytest.mark.parametrize("name", declarations())
def test_each_chosen_condition_tells_measurements_apart(name: str) -> None:
    results = declarations()[name].results
    one = Measurement(name, ("a", "b"), 1.0, results.units[0].name, conditions=dict.fromkeys(results.identity, "one"))
    for condition in results.identity:
        assert identity_of(one.with_conditions(**{condition: "another"})).key != identity_of(one).key
