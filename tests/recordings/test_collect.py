"""The collector, run by the machine's own shells, and the frames in which it answers."""

import shutil
import subprocess
import time

import pytest

from nodectl.errors import ParseError
from nodectl.model.host import Host
from nodectl.model.recording import Command, Recording
from nodectl.model.result import CommandResult, Outcome
from nodectl.recording import collect, read_frames, script
from nodectl.transport.local import LocalTransport

SHELLS = [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell)]
HERE = Host("here", "127.0.0.1", connection="local")


def gather(shell: str, *commands: Command) -> Recording:
    argv = [shell, "sh", "-s"] if shell == "busybox" else [shell, "-s"]
    done = subprocess.run(argv, input=script(commands), capture_output=True, timeout=60, check=True)
    now = time.time()
    return read_frames("gpu01", done.stdout, commands, asked=now, heard=now)


@pytest.mark.parametrize("shell", SHELLS)
class TestCollector:
    def test_output_comes_back_byte_for_byte(self, shell: str) -> None:
        text = "a|b\n'\"$(touch /tmp/x)`\\ é\n\n\n"
        entry = gather(shell, Command("text", ("printf", "%s", text))).entries["text"]
        assert (entry.stdout, entry.exit_status, entry.cut) == (text, 0, False)

    def test_a_missing_tool_a_failure_and_silence_are_three_things(self, shell: str) -> None:
        found = gather(
            shell,
            Command("missing", ("no-such-tool", "-v")),
            Command("failed", ("sh", "-c", "echo oops >&2; exit 3")),
            Command("silent", ("true",)),
        ).entries
        assert [found[key].exit_status for key in ("missing", "failed", "silent")] == [127, 3, 0]
        assert found["failed"].stderr.strip() == "oops"
        assert found["silent"].stdout == ""

    def test_a_tool_that_hangs_is_ended(self, shell: str) -> None:
        entry = gather(shell, Command("slow", ("sleep", "30"), deadline_s=1)).entries["slow"]
        assert entry.exit_status == 124
        assert 0.9 <= entry.duration_s < 20

    def test_output_beyond_the_cap_is_marked(self, shell: str) -> None:
        entry = gather(shell, Command("much", ("sh", "-c", "yes | head -c 17000000"))).entries["much"]
        assert (entry.cut, entry.exit_status, len(entry.stdout)) == (True, None, 16 << 20)

    def test_output_that_looks_like_a_frame_is_output(self, shell: str) -> None:
        forged = "out text 0 3\nabc\nerr text 0 0\n\nend\n"
        found = gather(shell, Command("text", ("printf", "%s", forged)), Command("last", ("echo", "x"))).entries
        assert (found["text"].stdout, found["last"].stdout) == (forged, "x\n")

    def test_bytes_that_are_no_text_do_not_shift_the_frames(self, shell: str) -> None:
        found = gather(shell, Command("odd", ("printf", r"\377\000z")), Command("last", ("echo", "x"))).entries
        assert (found["odd"].stdout, found["last"].stdout) == ("\ufffdz", "x\n")


def test_a_tool_cannot_eat_the_program_that_is_still_to_come() -> None:
    assert gather("sh", Command("eater", ("cat",)), Command("last", ("echo", "x"))).entries["last"].stdout == "x\n"


def test_the_clock_is_compared_within_the_round_trip() -> None:
    found = collect(LocalTransport(), HERE, [Command("a", ("true",))])
    assert isinstance(found, Recording)
    assert found.clock_offset_s is not None
    assert found.clock_error_s is not None
    assert -found.clock_error_s - 0.05 <= found.clock_offset_s <= 0.05


@pytest.mark.parametrize(
    "data", [b"", b"Welcome!\n", b"nodectl-collect/1 1.0\nout a 0 9\nab", b"nodectl-collect/1 1\n"]
)
def test_output_that_breaks_off_is_refused(data: bytes) -> None:
    with pytest.raises(ParseError):
        read_frames("gpu01", data, [Command("a", ("true",))], asked=0, heard=0)


def test_a_login_banner_before_the_first_frame_is_passed_over() -> None:
    data = b"Welcome!\n\nnodectl-collect/1 %N\nout a 0 1\nx\nerr a 250 0\n\nend\n"
    found = read_frames("gpu01", data, [Command("a", ("echo",))], asked=0, heard=0)
    assert found.clock_offset_s is None
    assert (found.entries["a"].stdout, found.entries["a"].duration_s) == ("x", 2.5)


class Silent:
    """A host that cannot be asked."""

    def run(self, host: Host, argv: object, **_: object) -> CommandResult:
        return CommandResult(host.name, ("sh", "-s"), Outcome.UNREACHABLE, None, "", "", 0.0, "no route", "plug it in")

    def close(self) -> None:
        """Nothing is open."""


def test_a_host_that_cannot_be_asked_is_a_result() -> None:
    found = collect(Silent(), HERE, [])
    assert isinstance(found, CommandResult)
    assert (found.error, found.remedy) == ("no route", "plug it in")
