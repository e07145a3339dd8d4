"""Who is tried against whom, and what is refused before any host is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodectl.errors import ProfileError
from nodectl.model.host import Host
from nodectl.model.trial import Side
from nodectl.trials.sides import (
    OWN,
    overruled,
    refuse_impossible,
    side_of,
    sides_of_profiles,
)

VARIABLES = {"nodectl_hardware": "lab-cpu", "nodectl_stack": "cpu", "nodectl_tuning": "stock"}


def host(name: str = "a", **more: object) -> Host:
    return Host(name, "192.0.2.1", 22, "root", variables={**VARIABLES, **more})


@pytest.mark.parametrize(
    ("names", "baseline", "against", "candidates"),
    [
        ("stock,article-20g", None, "stock", ["article-20g"]),
        ("stock,article-20g,roce", None, "stock", ["article-20g", "roce"]),
        ("article-20g", "stock", "stock", ["article-20g"]),
        ("article-20g,stock", "stock", "stock", ["article-20g"]),
        # a profile against itself, in each way that can be said
        ("stock,stock", None, "stock", ["stock"]),
        ("stock", "stock", "stock", ["stock"]),
        ("roce,roce", "stock", "stock", ["roce"]),
        (" stock , roce ", None, "stock", ["roce"]),
    ],
)
def test_of_profiles(names: str, baseline: str | None, against: str, candidates: list[str]) -> None:
    first, others = sides_of_profiles(names.split(","), baseline)
    assert (first.label, first.profile) == (against, against)
    assert [each.label for each in others] == candidates


@pytest.mark.parametrize(
    ("side", "told"),
    [
        (Side("nosuch", "nosuch"), "nosuch on a: there is no tuning profile 'nosuch'"),
        (Side("x", None, {"sysctl": {"tcp_rmem": 1}}), "x on a: "),
        (Side("x", None, {"gpu": {"power_limit_w": 300}}), "a CUDA stack"),
        (Side("x", None, {"nccl": {"NCCL_ALGO": "Ring"}}), "allow_debug_variables"),
    ],
)
def test_what_a_host_cannot_have(side: Side, told: str) -> None:
    with pytest.raises(ProfileError) as refused:
        refuse_impossible(side, [host()], ())
    assert told in refused.value.message


def test_a_value_that_the_inventory_pins_is_not_said_to_be_tried(tmp_path: Path) -> None:
    pins = host(nodectl_nccl_env={"NCCL_IB_TIMEOUT": 20})
    other = Side("x", "article-20g", {"nccl": {"NCCL_IB_TIMEOUT": 22}})
    with pytest.raises(ProfileError, match="x on a: NCCL_IB_TIMEOUT cannot be tried: nodectl_nccl_env sets it there"):
        refuse_impossible(other, [pins], ())
    refuse_impossible(other, [host()], ())
    refuse_impossible(Side("x", "article-20g", {"nccl": {"NCCL_IB_TIMEOUT": 20}}), [pins], ())
    (tmp_path / "tuning").mkdir()
    (tmp_path / "tuning" / "mine.yml").write_text(
        "description: mine\nnccl:\n  NCCL_IB_TIMEOUT: {value: 22, why: because}\n"
    )
    refuse_impossible(Side("mine", "mine"), [pins], [tmp_path])
    assert overruled(Side("mine", "mine"), [pins, host("b")], [tmp_path]) == [
        "mine: NCCL_IB_TIMEOUT is not tried on a: nodectl_nccl_env sets it there, and goes before a profile"
    ]
    assert overruled(side_of(OWN), [pins], [tmp_path]) == []
