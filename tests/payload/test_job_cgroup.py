"""A job's control group goes with the job."""

from __future__ import annotations

import threading
from pathlib import Path

from nodectl.payload.jobs import cgroup


def test_a_group_whose_processes_are_still_ending_is_waited_for(tmp_path: Path) -> None:
    group = tmp_path / "nodectl" / "job"
    below = group / "ranks"
    below.mkdir(parents=True)
    ending = below / "ending"  # a folder that is not empty cannot be removed either
    ending.touch()
    threading.Timer(0.1, ending.unlink).start()
    cgroup.remove(str(group))
    assert list(tmp_path.iterdir()) == []


def test_a_group_that_stays_in_use_stays_with_those_above_it(tmp_path: Path) -> None:
    group = tmp_path / "nodectl" / "job"
    group.mkdir(parents=True)
    (group / "used").touch()
    cgroup.remove(str(group))
    assert (group / "used").exists()
