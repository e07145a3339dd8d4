"""`nodectl provision`, `health` and `rollback` on booted Debian 13, from this machine's own sources of Debian."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.common.node_paths import LAB_SHARE
from tests.booted import snapshot
from tests.booted.conftest import STATE, Nodectl
from tests.booted.fleet import Fleet
from tests.booted.needs import CONTAINER_PROGRAMS, skip_unless_possible
from tests.booted.sessions import containers
from tests.booted.sources import distribution

pytestmark = [pytest.mark.booted, pytest.mark.slow, pytest.mark.timeout(1500)]

NAME = "box13"
# a container has this machine's hard limits, so what is asked for lies below them
LIMITS = {"memlock": {"value": "4096"}, "nofile": {"value": "12000"}}


@pytest.fixture(scope="module")
def trixie(booted_cache: None, lab_share: Path) -> Iterator[Fleet]:
    """One container."""
    skip_unless_possible(CONTAINER_PROGRAMS, "booted containers")
    if distribution() != "debian":
        pytest.skip(f"Debian 13 is made from apt sources of Debian, this machine has those of {distribution()}")
    with containers(STATE / "booted", (NAME,), {lab_share: LAB_SHARE}, "trixie") as fleet:
        yield fleet


def test_it_is_provisioned_once_judged_and_rolled_back_to_the_byte(trixie: Fleet, run_nodectl: Nodectl) -> None:
    assert trixie[NAME].out(". /etc/os-release; echo $ID $VERSION_ID").split() == ["debian", "13"]
    before = snapshot.take(trixie[NAME])
    inventory = trixie.inventory(nodectl_tuning="article-20g", nodectl_overrides={"limits": LIMITS})
    # the lab's wheels are for the Python of this machine's release, so nothing of PyTorch
    left_out = [word for role in ("pytorch", "deepspeed", "launcher") for word in ("--skip-tags", role)]
    run = ("provision", "--yes", *left_out)
    first = run_nodectl(inventory, *run)
    assert first.status == 0 and first.changed[NAME] > 5, str(first)
    second = run_nodectl(inventory, *run)
    assert second.status == 0 and second.changed == {NAME: 0}, str(second)

    health = run_nodectl(inventory, "health")
    assert health.status in (0, 1) and health.document["findings"], str(health)
    units = {row["subject"]: row["status"] for row in health.document["findings"] if row["check"] == "unit_limits"}
    assert units == {"memlock": "ok", "nofile": "ok"}, (
        "systemd gives a unit 1024 files by itself, and lets it raise them"
    )

    assert len(snapshot.differences(before, snapshot.take(trixie[NAME]))) > 5
    back = run_nodectl(inventory, "rollback", "--to", "start", "--yes")
    assert back.status == 0, str(back)
    assert snapshot.differences(before, snapshot.take(trixie[NAME])) == []
