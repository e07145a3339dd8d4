"""What is refused before any host is asked."""

from datetime import UTC, datetime
from typing import Any

from nodectl.common.documents import new_id
from nodectl.common.node_paths import TRIALS
from nodectl.provision.run import RUN_NAME


def test_runs_and_trials_are_named_here_as_on_the_nodes(utils: Any) -> None:
    for name in ("start", f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-4711", new_id(datetime.now(UTC))):
        assert utils("undo.store").RUN_NAME.fullmatch(name) and RUN_NAME.fullmatch(name)
    assert utils("undo.trials").ROOT == TRIALS
