"""What a run is going to need, known before it."""

from typing import Any

import pytest

from nodectl.model.host import Host
from nodectl.provision.outlook import takes_lab_wheels

LAB = {"nodectl_hardware": "lab-cpu", "nodectl_wheelhouse": "/srv/nodectl/wheels"}


@pytest.mark.parametrize(
    ("variables", "roles", "taken"),
    [
        ({"nodectl_stack": "cpu"}, ["limits", "pytorch"], True),
        ({"nodectl_stack": "cpu"}, ["python"], True),
        ({"nodectl_stack": "cpu"}, ["limits", "nccl_env"], False),
        ({"nodectl_stack": "none"}, ["limits", "pytorch"], False),
        ({"nodectl_stack": "cpu", "nodectl_wheelhouse": "https://wheels"}, ["pytorch"], False),
        ({"nodectl_stack": "no-such-stack"}, ["pytorch"], False),
    ],
)
def test_the_labs_wheels_are_fetched_for_those_that_take_them(
    variables: dict[str, Any], roles: list[str], taken: bool
) -> None:
    others = Host("bare", "bare", variables={**LAB, "nodectl_stack": "none"})
    host = Host("node01", "node01", variables={**LAB, **variables})
    assert takes_lab_wheels([others, host], roles) is taken
