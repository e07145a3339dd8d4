"""Before hosts change: what is shown, what counts as an answer, and where nobody is asked."""

import io
import os
import sys
from collections.abc import Sequence

import pytest

from nodectl.cli.terminal import DeclinedError, ask, result
from nodectl.errors import UsageError
from nodectl.model.host import Host
from nodectl.provision.outlook import described

LAB = {"nodectl_lab": True, "nodectl_hardware": "lab-cpu", "nodectl_stack": "cpu", "nodectl_tuning": "stock"}


def fleet(count: int, **variables: object) -> Sequence[Host]:
    return [
        Host(f"n{number}", f"192.0.2.{number}", 22, "root", variables=dict(variables)) for number in range(1, count + 1)
    ]


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> "Pipe":
    return Pipe(monkeypatch)


class Pipe:
    """A pipe as standard input: `says` what already waits on it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        reading, self.writing = os.pipe()
        monkeypatch.setattr(sys, "stdin", os.fdopen(reading))

    def says(self, text: str) -> None:
        os.write(self.writing, text.encode())


def test_a_lab_goes_on_without_an_answer_and_says_so(stdin: Pipe, capsys: pytest.CaptureFixture[str]) -> None:
    ask(fleet(2, nodectl_lab=True), "change 2 hosts?", ["n[1-2]: shown"], yes=False)
    said = capsys.readouterr().err
    assert "n[1-2]: shown" in said and "lab's hosts: going on without an answer" in said


@pytest.mark.parametrize("variables", [{}, {"nodectl_lab": False}])
def test_any_other_fleet_is_refused_without_an_answer(stdin: Pipe, variables: dict[str, object]) -> None:
    with pytest.raises(UsageError) as refused:
        ask(fleet(2, **variables), "change 2 hosts?", [], yes=False)
    assert refused.value.exit_status == 2 and "--yes" in refused.value.remedy


@pytest.mark.parametrize("answer", ["n\n", "maybe\n"])
def test_a_waiting_no_counts_also_in_a_lab(stdin: Pipe, answer: str) -> None:
    stdin.says(answer)
    with pytest.raises(DeclinedError) as declined:
        ask(fleet(2, nodectl_lab=True), "change?", [], yes=False)
    assert declined.value.exit_status == 1 and "nothing was changed" in declined.value.message


@pytest.mark.parametrize("answer", ["y\n", "YES\n"])
def test_a_waiting_yes_counts_on_any_fleet(stdin: Pipe, answer: str) -> None:
    stdin.says(answer)
    ask(fleet(2), "change?", [], yes=False)


class Terminal(io.StringIO):
    """Standard input of somebody who types."""

    def isatty(self) -> bool:
        return True


def test_whoever_sits_at_a_terminal_is_asked_whatever_the_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    for variables in ({}, {"nodectl_lab": True}):
        monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
        ask(fleet(2, **variables), "change?", [], yes=False)
        monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
        with pytest.raises(DeclinedError):
            ask(fleet(2, **variables), "change?", [], yes=False)


def test_hosts_are_shown_together_by_profiles_with_those_that_may_reboot() -> None:
    hosts = [*fleet(3, **LAB), Host("x1", "192.0.2.9", 22, "root", variables={**LAB, "nodectl_tuning": "article-20g"})]
    lines = described(hosts, ["limits"], allow_reboot=False)
    assert lines[0] == "n[1-3]: hardware lab-cpu, stack cpu, tuning stock"
    assert lines[1] == "x1: hardware lab-cpu, stack cpu, tuning article-20g"
    assert "roles: limits" in lines and not any("reboot" in line for line in lines)
    assert any(line.endswith(": n[1-3],x1") for line in described(hosts, [], allow_reboot=True) if "reboot" in line)
    allowed = described([*hosts, *fleet(1, nodectl_allow_reboot="yes")], [], allow_reboot=False)
    assert any(line.endswith(": n1") for line in allowed if "reboot" in line)


def test_a_long_line_of_a_host_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    result("a\n" + "x" * 5000)
    assert capsys.readouterr().out == f"a\n{'x' * 4096}… (904 more characters)\n"
