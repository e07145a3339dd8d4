"""The files of nodectl's roles are looked for where a run of nodectl stands, and nowhere else."""

import subprocess
from pathlib import Path

import pytest

from nodectl.facts.packages import RECORDS, ROLE_FILES_FACT
from nodectl.model.host import Host

ABSENT = 3


def looked(records: Path) -> subprocess.CompletedProcess[str]:
    """The collected script, with the folder of the records elsewhere."""
    (command,) = ROLE_FILES_FACT.commands_on(Host("gpu01", "gpu01"))
    words = [word.replace(RECORDS, str(records)) for word in command.argv]
    return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("made", "status"),
    [
        ([], ABSENT),
        # a rollback and a trial leave the folder with its lock
        (["runs", "undone/20261123T125534Z-29880", "trials"], ABSENT),
        (["runs/20261123T125534Z-29880"], 0),
    ],
)
def test_only_a_run_that_stands_had_files_put_there(tmp_path: Path, made: list[str], status: int) -> None:
    for name in made:
        (tmp_path / name).mkdir(parents=True)
    if made:
        (tmp_path / "runs" / ".lock").touch()
        (tmp_path / "gpu_settings.json").touch()
    found = looked(tmp_path)
    assert found.returncode == status, found.stderr
    assert (str(tmp_path / "gpu_settings.json") in found.stdout) == (status == 0)
