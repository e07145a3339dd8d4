"""Attempts of a job on lab hosts with a real torchrun over gloo: after which ends another follows, and on which hosts.

`tests/payload/test_job_attempts.py` decides for all ends; `scripts/chaos` compares the losses of restarted jobs.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.jobs.deaths import DMESG, LAUNCHER, VENV, Case, Lab

pytestmark = [pytest.mark.lab, pytest.mark.slow]

_SLEEP = 'os.environ["NODECTL_ATTEMPT"] == "1" and time.sleep(600)'
_GPU_GONE = """
if os.environ["NODECTL_ATTEMPT"] == "1":
    while not os.path.exists("/tmp/eat"):
        time.sleep(0.1)
    raise RuntimeError("CUDA error: unspecified launch failure")
"""


def _end_supervisor(lab: Lab, job_id: str) -> None:
    """What a machine of a cloud does that is taken away in good order: its processes get SIGTERM."""
    state = f"~/.local/state/nodectl/jobs/{job_id}/state.json"
    lab.lab.ssh(lab.hosts[1], f"""kill -TERM $(grep -o '"pid": [0-9]*' {state} | head -1 | cut -d ' ' -f 2)""")


def _kill_all(lab: Lab, job_id: str) -> None:
    """The death of a host's container: ranks, launcher, supervisor and guard at once."""
    lab.lab.ssh(lab.hosts[1], "pkill -KILL python")


def _xid(lab: Lab, job_id: str) -> None:
    line = f"NVRM: Xid (PCI:0000:10:1c): 79, pid={lab.pid(job_id, 1)}, name=python, GPU has fallen off the bus."
    script = f'#!/bin/sh\\necho "[$(cut -d " " -f 1 /proc/uptime)] {line}"\\n'
    lab.lab.ssh(lab.hosts[1], f"printf '{script}' > {DMESG} && chmod 755 {DMESG} && touch /tmp/eat")


@pytest.mark.parametrize(
    ("body", "act", "spare", "starts", "why"),
    [
        ("import no_such_module", None, False, 1, "import_error"),
        ('os.environ["NODECTL_ATTEMPT"] == "1" and sys.exit(1)', None, False, 2, ""),
        (_SLEEP, lambda lab, job_id: lab.signal(job_id, 1, "KILL"), False, 2, ""),
        (_SLEEP, _end_supervisor, True, 2, ""),
        (_SLEEP, _kill_all, True, 2, ""),
        (_GPU_GONE, _xid, True, 2, ""),
    ],
    ids=["mistake", "flaky first start", "sigkill", "preemption", "host lost", "gpu off the bus, recorded"],
)
def test_an_end_is_followed_by_as_many_starts_as_may_help(
    lab: Lab, body: str, act: Callable[[Lab, str], None] | None, spare: bool, starts: int, why: str
) -> None:
    lab.hosts = lab.hosts[: 3 if spare else 2]
    options = ("--restarts", "5", "--lease", "5", *(("--spares", "1") if spare else ()))
    job_id = lab.begin(Case("", "", body, after="dist.all_reduce(one)", options=options))
    if act is not None:
        lab.wait_up(job_id)
        act(lab, job_id)
    job = lab.wait_ended(job_id)
    assert (job["state"], job["attempt"]) == ("failed" if why else "finished", starts), job
    assert why in job["no_restart"], job["no_restart"]
    if spare:
        assert job["nodes"] == [lab.hosts[0], lab.hosts[2]], job["nodes"]


def test_a_host_that_fails_preflight_is_left_out_and_a_spare_starts_in_its_place(lab: Lab) -> None:
    (lab.folder / "train.py").write_text("import os\nos.write(1, b'was here\\n')\nraise SystemExit(3)\n")
    argv = ("launch", "-e", f"launcher_path={LAUNCHER}", "--venv", VENV, "--nproc-per-node", "1")
    broken, script = lab.hosts[0], str(lab.folder / "train.py")
    lab.lab.ssh(broken, f"chmod -x {LAUNCHER}")
    try:
        refused = lab.run(*argv, script)
        assert (refused.returncode, "not launched" in refused.stderr) == (1, True), refused.stderr
        done = lab.run(*argv, "--spares", "1", script)
    finally:
        lab.lab.ssh(broken, f"chmod +x {LAUNCHER}")
    assert f"left out, a spare takes the place: {broken}" in done.stderr
    assert lab.job("last")["nodes"] == list(lab.hosts[1:3])
    assert done.stdout.count("was here\n") == 2
