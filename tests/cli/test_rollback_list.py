"""`nodectl rollback --list`: says only what was read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from nodectl.cli.app import App
from nodectl.cli.rollback import _show_runs
from nodectl.provision.events import Answer, ProvisionRun


@pytest.mark.parametrize(
    ("result", "claimed"), [({"msg": "sudo wants a password"}, 0), ({"rollback": {"runs": []}}, 1)]
)
def test_nothing_is_claimed_of_a_host_that_could_not_be_read(
    result: Mapping[str, Any], claimed: int, capfd: pytest.CaptureFixture[str]
) -> None:
    app = App(inventory_sources=(), limit=None, replay=None, output="table", forks=1)
    _show_runs(app, ProvisionRun("r", {}, (), (), (Answer("n1", "List them", result),)))
    told = capfd.readouterr()
    assert (told.out + told.err).count("n1") == claimed and ("nothing" in told.err) == bool(claimed)
