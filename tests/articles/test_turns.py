"""Turns: who waits is let on once its setting is there, and a setting that fails ends the gang and is raised."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

import pytest

from nodectl.articles.gangs import Turns
from nodectl.common.resources import payload_dir
from nodectl.errors import LabError
from nodectl.model.host import Host
from nodectl.model.result import CommandResult, Outcome
from nodectl.probes.gang import Member

MEMBER = Member(Host("node01", "192.0.2.1"), "retrieval", (), "python3")


class Hosts:
    """Runs `kill` as if there were a host."""

    def __init__(self) -> None:
        self.argv: list[Sequence[str]] = []

    def run(self, host: Host, argv: Sequence[str], **_: Any) -> CommandResult:
        self.argv.append(argv)
        return CommandResult(host.name, tuple(argv), Outcome.RAN, 0, "", "", 0.0)

    def wait(self) -> Sequence[str]:
        until = time.monotonic() + 10
        while not self.argv:
            assert time.monotonic() < until
            time.sleep(0.005)
        return self.argv.pop()


def test_settings_come_in_turn_before_who_waits_goes_on() -> None:
    hosts, done = Hosts(), []
    turns = Turns(hosts, [lambda: done.append("a"), lambda: done.append("b")])  # type: ignore[arg-type]
    turns.on_event(MEMBER, {"event": "ready"})
    for number, so_far in ((0, ["a"]), (1, ["a", "b"]), (2, ["a", "b", "a"])):
        turns.on_event(MEMBER, {"event": "turn", "number": number, "pid": 70 + number})
        assert hosts.wait() == ["kill", "-s", "USR1", str(70 + number)]
        assert done == so_far
    turns.check()


def test_a_setting_that_fails_ends_who_waits_and_is_raised() -> None:
    def fail() -> None:
        raise LabError("the lab is gone")

    hosts = Hosts()
    turns = Turns(hosts, [fail])  # type: ignore[arg-type]
    turns.on_event(MEMBER, {"event": "turn", "number": 0, "pid": 70})
    assert hosts.wait() == ["kill", "-s", "TERM", "70"]
    with pytest.raises(LabError, match="the lab is gone"):
        turns.check()


@pytest.mark.parametrize(("told", "end"), [(True, "went on"), (False, "nobody said within 0 s that turn 3 may begin")])
def test_a_program_waits_for_its_signal(told: bool, end: str) -> None:
    code = f"import os, sys; sys.path.insert(0, {str(payload_dir().parent)!r})\nfrom payload.articles import gang\n"
    code += "gang.expect_turns()\n"
    code += f"gang.TURN_WAIT_S = {60.0 if told else 0.0}\n"
    code += "gang.say = lambda **event: os.write(1, (str(event['pid']) + '\\n').encode())\n"
    code += "try:\n    gang.wait_for_turn(3)\n    print('went on')\nexcept gang.TurnError as error:\n    print(error)\n"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{process.pid}\n"
        if told:
            os.kill(process.pid, signal.SIGUSR1)
        assert process.stdout.read().strip() == end
