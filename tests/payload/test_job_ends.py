"""Ends of ranks on three hosts of one machine whose Python keeps notes: the cause, and what the living were doing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nodectl.payload.jobs.failures import first
from nodectl.payload.jobs.postmortem import Postmortem
from tests.payload.fleet import Fleet

SLEEP = "import os, time\nprint('up', flush=True)\ndef load():\n    time.sleep(1000)\n"


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path, 3)
    text = made.launcher.read_text()
    assert '"-S", ' in text
    made.launcher.write_text(text.replace('"-S", ', ""))  # Python reads its site packages, and so the hook
    yield made
    made.close()


def ended(fleet: Fleet, job_id: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The first failure of all hosts, and their states."""
    fleet.wait_settled(job_id)
    states = [report["state"] for report in fleet.reports(job_id)]
    cause = first(item for state in states for item in state["failures"])
    assert cause is not None
    return cause, states


@pytest.mark.parametrize(("engine", "named"), [("torchrun", "the launcher (torchrun)"), ("command", "the command")])
def test_what_was_killed_is_named_as_it_was_started(engine: str, named: str) -> None:
    unused: Any = None
    postmortem = Postmortem(unused, {"start": {"engine": engine}}, unused, unused, unused, unused, list)
    postmortem._blame_signal(9, 1.0)
    assert postmortem.failures[0]["message"] == f"{named} was killed by signal 9 (SIGKILL)"


def test_an_exception_is_told_whole_and_what_the_others_did(fleet: Fleet) -> None:
    raises = "try: open('data/x.bin')\nexcept OSError as error: raise RuntimeError('shard\\nseven') from error\n"
    fails = f"if os.environ['RANK'] == '4':\n    time.sleep(2)\n    exec({raises!r})\nload()\n"
    cause, states = ended(fleet, fleet.launch(SLEEP + fails, stayed=[["data/", ".gitignore"]]))
    assert "data/x.bin did not travel with the code: .gitignore leaves out data/" in cause["evidence"]
    assert (cause["rank"], cause["class"], cause["message"]) == (4, "data_missing", "RuntimeError: shard\nseven")
    assert any(line.startswith("raised from FileNotFoundError") for line in cause["evidence"])
    assert cause["traceback"].startswith("Traceback (most recent call last):")
    # on a busy machine the launcher may take the exit status away before the supervisor sees it
    unsure = [line for line in cause["evidence"] if "log text only" in line]
    assert all("as its launcher's log has it" in line for line in unsure), unsure
    stacks = {rank["rank"]: rank["stack"] for state in states[:2] for rank in state["living"]}
    assert {number: stack[0].rpartition(" ")[2] for number, stack in stacks.items()} == dict.fromkeys(range(4), "load")
    assert cause["after"] == []
