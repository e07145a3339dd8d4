"""Ways in which an attempt ends, each with what a job with `--restarts 5` makes of it.

Bodies and acts are those of `deaths.py` where it has them. NCCL's and CUDA's own texts need GPUs: they are recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from textwrap import indent

from tests.jobs import deaths
from tests.jobs.deaths import Lab
from tests.jobs.test_restarts_lab import TRAIN

STEPS, AT_STEP = 12, 5
_DIES = """    if dies_at == int(done) and rank == 1 and os.environ.get("NODECTL_ATTEMPT") == "1":
        os.kill(os.getpid(), signal.SIGKILL)
"""
_FAILS = """    if {when}:
        os.write(1, b"victim up\\n")
"""


@dataclass(frozen=True)
class End:
    """Rank 1 runs `body` after step 5 of its first `times` attempts (0: of all), and `act` is done once from outside.

    The job starts `starts` times, and stops, where all attempts end, with a reason that holds `why`. With `spare` a
    third host stands by, and takes the place of the host of rank 1.
    """

    name: str
    starts: int
    why: str = ""
    body: str = "pass"
    times: int = 0
    act: Callable[[Lab, str], None] | None = None
    spare: bool = False
    script: str = ""
    args: tuple[str, ...] = (str(STEPS), "-1", "0.2")

    def text(self) -> str:
        """Return the whole script."""
        when = f"int(done) == {AT_STEP} and rank == 1"
        if self.times:
            when += f" and int(os.environ['NODECTL_ATTEMPT']) <= {self.times}"
        assert _DIES in TRAIN
        body = _FAILS.format(when=when) + indent(self.body, " " * 8) + "\n"
        beside = "import traceback\nfrom datetime import timedelta\none = torch.ones(4)\n"
        return self.script or TRAIN.replace("steps, dies_at", f"{beside}steps, dies_at", 1).replace(_DIES, body)


_SURE, _GOES_ON = 1, 2
_BY_NAME = {case.name: case for case in deaths.DEATHS}


def _as(name: str, death: str, starts: int, why: str, times: int = 0) -> End:
    """Return an end whose body and act are those of a death."""
    case = _BY_NAME[death]
    return End(name, starts, why, case.body, times, case.act, script=case.script, args=case.args or End.args)


_FLAKY = "import os, sys\nif os.environ['NODECTL_ATTEMPT'] == '1' and os.environ['RANK'] == '1':\n    sys.exit(1)\n"


def _end_supervisor(lab: Lab, job_id: str) -> None:
    """What a machine of a cloud does that is taken away in good order: its processes get SIGTERM."""
    state = f"~/.local/state/nodectl/jobs/{job_id}/state.json"
    lab.lab.ssh(lab.hosts[1], f"""kill -TERM $(grep -o '"pid": [0-9]*' {state} | head -1 | cut -d ' ' -f 2)""")


def _kill_all(lab: Lab, job_id: str) -> None:
    """The death of a host's container: ranks, launcher, supervisor and guard at once."""
    lab.lab.ssh(lab.hosts[1], "pkill -KILL python")


def _xid(number: int, text: str) -> Callable[[Lab, str], None]:
    def act(lab: Lab, job_id: str) -> None:
        line = f"NVRM: Xid (PCI:0000:10:1c): {number}, pid={lab.pid(job_id, 1)}, name=python, {text}"
        script = f'#!/bin/sh\\necho "[$(cut -d " " -f 1 /proc/uptime)] {line}"\\n'
        make = f"printf '{script}' > {deaths.DMESG} && chmod 755 {deaths.DMESG} && touch /tmp/eat"
        lab.lab.ssh(lab.hosts[1], make)

    return act


_GPU_GONE = _BY_NAME["an_xid_recorded"].body
_SIGKILL = _BY_NAME["sigkill_from_outside"].act
_LINK = _BY_NAME["a_host_gone"].act

STOPS = [
    _as("import_error", "a_missing_module", _SURE, "import_error"),
    End("syntax_error", _SURE, "SyntaxError", script="def broken(:\n"),
    _as("disk_full", "a_full_disk", _SURE, "disk_full"),
    _as("bad_argument", "a_bad_argument", _SURE, "argument"),
]
GOES_ON = [
    End("host_lost", _GOES_ON, act=_kill_all, spare=True, times=1, body="time.sleep(600)"),
    End("link_dropped", _GOES_ON, act=_LINK, spare=True, times=1, body="time.sleep(600)"),
    End("sigkill_from_outside", _GOES_ON, act=_SIGKILL, times=1, body="time.sleep(600)"),
    End("gpu_off_the_bus_recorded", _GOES_ON, "", _GPU_GONE, 1, _xid(79, "GPU has fallen off the bus."), spare=True),
    End("preemption", _GOES_ON, act=_end_supervisor, spare=True, times=1, body="time.sleep(600)"),
    End("flaky_first_start", _GOES_ON, script=_FLAKY + TRAIN),
]
