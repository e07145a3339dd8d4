"""What a run is going to need, known before it."""

from typing import Any

import pytest

from nodectl.model.host import Host
from nodectl.provision.outlook import lab_requirements

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
    assert bool(lab_requirements([others, host], roles)) is taken


def test_what_hosts_name_beside_the_labs_stack_is_fetched_once_for_all_of_them() -> None:
    own = {"nodectl_overrides": {"stack": {"packages": {"transformers": "5.23.0"}}}}
    plain = Host("node01", "node01", variables={**LAB, "nodectl_stack": "cpu"})
    more = [Host(name, name, variables={**plain.variables, **own}) for name in ("node02", "node03")]
    first, second = lab_requirements([plain, *more], ["pytorch"])
    assert set(second) - set(first) == {"transformers==5.23.0"} and second[0] == first[0]
