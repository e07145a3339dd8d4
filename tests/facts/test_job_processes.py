"""Whose job a process is of: read, refused, and asked of this machine's own processes."""

import os
import subprocess

from nodectl.facts.processes import JOB_PROCESSES_FACT, JobProcesses
from tests.facts.recorded import fact


def test_processes_by_owner() -> None:
    found = fact("job_processes", job_processes="slurm 41\nslurm 42\nnodectl 73\n")
    assert found == JobProcesses(frozenset({41, 42}), frozenset({73}))
    assert found.all == {41, 42, 73}
    assert fact("job_processes", job_processes="").all == frozenset()
    assert fact("job_processes", job_processes="slurm x\n").kind == "unknown"


def test_a_process_with_a_job_s_mark_is_found() -> None:
    (command,) = JOB_PROCESSES_FACT.commands if isinstance(JOB_PROCESSES_FACT.commands, tuple) else ()
    with subprocess.Popen(["sleep", "60"], env={**os.environ, "NODECTL_JOB_ID": "20260304-1"}) as job:
        try:
            done = subprocess.run(command.argv, capture_output=True, text=True, check=True)
        finally:
            job.kill()
    assert f"nodectl {job.pid}" in done.stdout.splitlines()
    assert f"nodectl {os.getpid()}" not in done.stdout.splitlines()
