"""What the hosts of a gang have in common: one value as it is, several as a list, none."""

from typing import Any

import pytest

from nodectl.bench.gangs import common


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([1, 1], 1),
        ([2, 1, 2], [1, 2]),
        ([None, 4], 4),
        ([None, None], None),
        (["2.7.0+cpu", "2.7.0+cpu"], "2.7.0+cpu"),
        ([{"NCCL_ALGO": "Ring"}, {"NCCL_ALGO": "Ring"}], {"NCCL_ALGO": "Ring"}),
        ([{}, {}], {}),
        ([{"NCCL_ALGO": "Ring"}, {}], [{"NCCL_ALGO": "Ring"}, {}]),
    ],
)
def test_values_keep_their_kind(values: list[Any], told: object) -> None:
    found = common([{"event": "ready", "value": each} for each in values], "value")
    assert found == told and type(found) is type(told)
