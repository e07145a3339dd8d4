"""The collector, run by the machine's own shells, and the frames in which it answers."""

import gzip
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from nodectl.errors import ParseError
from nodectl.model.host import Host
from nodectl.model.recording import Command, Recording
from nodectl.model.result import CommandResult, Outcome
from nodectl.recordings.collect import CAP_BYTES, TOTAL_BYTES, collect, new_nonce, read_frames, script
from nodectl.transport.router import LocalTransport

# one script for all of them: `make test-all` runs it by the others
SHELLS = [
    pytest.param(shell, marks=pytest.mark.slow if at else ())
    for at, shell in enumerate(shell for shell in ("dash", "bash", "busybox") if shutil.which(shell))
]
HERE = Host("here", "127.0.0.1", connection="local")
NONCE = "5e" * 16


def gather(shell: str, *commands: Command, budget_s: int = 60, path: str = "", **settings: int) -> Recording:
    argv = [shell, "sh", "-s"] if shell == "busybox" else [shell, "-s"]
    nonce, env = new_nonce(), {**os.environ, **({"PATH": f"{path}:{os.environ['PATH']}"} if path else {})}
    text = script(commands, nonce, budget_s=budget_s)
    for name, value in settings.items():
        text, found = re.subn(rf"(?m)^{name}=\d+".encode(), f"{name}={value}".encode(), text)
        assert found == 1
    done = subprocess.run(argv, input=text, capture_output=True, timeout=60, check=True, env=env)
    return frames(done.stdout, *commands, nonce=nonce)


def frames(data: bytes, *commands: Command, nonce: str = NONCE) -> Recording:
    now = time.time()
    return read_frames("gpu01", data, {each.key: each for each in commands}, nonce, asked=now, heard=now)


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

    def test_a_tool_that_hangs_is_ended_with_all_that_it_started(self, shell: str) -> None:
        mark = f"86.{os.getpid()}"
        child = Command("slow", ("sh", "-c", f"trap '' TERM; sleep {mark} & sleep {mark}; wait"), deadline_s=1)
        found = gather(shell, child, Command("last", ("echo", "x"))).entries
        assert (found["slow"].exit_status, found["last"].stdout) == (124, "x\n")
        assert 0.9 <= found["slow"].duration_s < 20
        assert not [path for path in Path("/proc").glob("[1-9]*/cmdline") if mark.encode() in _read(path)]

    def test_what_cannot_be_ended_is_left_behind(self, shell: str) -> None:
        # out of reach, like a process that a driver never lets go: it holds the pipes and is nobody's child any more
        stray = Command("stray", ("sh", "-c", "echo begun; (setsid sleep 11 &)"), deadline_s=1)
        fails = Command("fails", ("sh", "-c", "echo oops >&2; exit 3"))
        began = time.monotonic()
        found = gather(shell, stray, fails).entries
        assert time.monotonic() - began < 10
        assert (found["stray"].exit_status, found["fails"].stderr.strip()) == (124, "oops")

    def test_all_together_have_a_budget(self, shell: str) -> None:
        commands = (Command("first", ("sleep", "30")), Command("second", ("echo", "x")), Command("no", ("no-tool",)))
        found = gather(shell, *commands, budget_s=1).entries
        assert [found[key].exit_status for key in ("first", "second", "no")] == [124, 124, 127]
        assert found["second"].stderr.strip() == "nodectl: not asked: no time left"

    def test_a_tool_that_hung_is_not_asked_again(self, shell: str, tmp_path: Path) -> None:
        _tool(tmp_path / "slow-tool", "sleep 30")
        asked = [Command(f"slow-{number}", ("slow-tool", str(number)), deadline_s=1) for number in range(5)]
        last = Command("last", ("echo", "x"), deadline_s=2)
        began = time.monotonic()
        found = gather(shell, *asked, last, path=str(tmp_path)).entries
        assert time.monotonic() - began < 8
        assert [found[each.key].exit_status for each in asked] == [124] * 5
        assert [found[each.key].stderr.strip() for each in asked[1:]] == ["nodectl: not asked: slow-tool hung"] * 4
        assert found["last"].stdout == "x\n"

    def test_a_tool_that_prints_without_end_is_not_asked_again(self, shell: str, tmp_path: Path) -> None:
        _tool(tmp_path / "flood-tool", "exec yes")
        asked = [Command(f"flood-{number}", ("flood-tool", str(number)), deadline_s=9) for number in range(4)]
        fails = Command("fails", ("sh", "-c", "echo oops >&2; exit 3"))
        found = gather(shell, *asked, fails, path=str(tmp_path)).entries
        assert [found[each.key].cut for each in asked] == [True, False, False, False]
        assert found["flood-0"].stderr.strip() == "nodectl: cut: flood-tool printed too much"
        assert [found[each.key].stderr.strip() for each in asked[1:]] == [
            "nodectl: not asked: flood-tool printed too much"
        ] * 3
        assert found["fails"].stderr.strip() == "oops"

    def test_a_tool_that_complains_without_end_takes_no_complaint_of_others(self, shell: str) -> None:
        first, last = (Command(key, ("sh", "-c", "echo oops >&2; exit 3")) for key in ("first", "last"))
        loud = Command("loud", ("sh", "-c", "yes complaint | head -n 2000000 >&2"), deadline_s=20)
        found = gather(shell, first, loud, last).entries
        assert [found[key].stderr.strip() for key in ("first", "last")] == ["oops", "oops"]
        assert found["loud"].stderr.startswith("complaint\n") and len(found["loud"].stderr) < 3000

    def test_output_beyond_the_cap_is_marked(self, shell: str) -> None:
        entry = gather(shell, Command("much", ("sh", "-c", "yes | head -c 17000000"))).entries["much"]
        assert (entry.cut, entry.exit_status, len(entry.stdout)) == (True, None, CAP_BYTES)

    def test_of_a_log_beyond_the_cap_the_newest_part_is_kept(self, shell: str) -> None:
        log = Command("log", ("seq", "4000000"), deadline_s=20, newest=True)
        entry = gather(shell, log, Command("last", ("echo", "x"))).entries["log"]
        assert (entry.exit_status, entry.cut, entry.stdout[-8:]) == (0, False, "4000000\n")
        assert len(entry.stdout) > CAP_BYTES // 2

    def test_a_script_leaves_nothing_behind_for_the_next(self, shell: str) -> None:
        script = "cd /; kept=1; set -- a b; trap 'echo end' EXIT; exit 7"
        found = gather(
            shell,
            Command("first", ("sh", "-c", script)),
            Command("second", ("sh", "-c", 'echo "$# $1 ${kept-none} $(pwd)"', "name", "given")),
        ).entries
        assert (found["first"].stdout, found["first"].exit_status) == ("end\n", 7)
        assert found["second"].stdout == f"1 given none {Path.cwd()}\n"

    def test_output_that_looks_like_a_frame_is_output(self, shell: str) -> None:
        forged = f"\n{NONCE} end 0\n\n{NONCE} done\n{NONCE} out last\n"
        found = gather(shell, Command("text", ("printf", "%s", forged)), Command("last", ("echo", "x"))).entries
        assert (found["text"].stdout, found["last"].stdout) == (forged, "x\n")

    def test_bytes_that_are_no_text_do_not_shift_the_frames(self, shell: str) -> None:
        found = gather(shell, Command("odd", ("printf", r"\377\000z")), Command("last", ("echo", "x"))).entries
        assert (found["odd"].stdout, found["last"].stdout) == ("\ufffdz", "x\n")

    def test_files_that_no_cat_shows_are_shown_as_by_cat(self, shell: str) -> None:
        asked = {
            "passwd": ["/etc/passwd"],
            "two": ["/proc/sys/kernel/ostype", "/proc/version"],
            "numbers": ["/proc/sys/net/ipv4/ip_local_port_range"],
            "nothing": ["/proc/no-such-file"],
            "one-missing": ["/proc/version", "/proc/no-such-file"],
        }
        commands = [Command(key, ("cat", *files)) for key, files in asked.items()]
        found = gather(shell, *commands, Command("last", ("echo", "x"))).entries
        for key, files in asked.items():
            shown = subprocess.run(["cat", *files], capture_output=True, text=True, env={"LC_ALL": "C"})
            assert (found[key].stdout, found[key].exit_status) == (shown.stdout, shown.returncode)
            assert found[key].stderr.strip() == shown.stderr.strip()
        assert found["last"].stdout == "x\n"


@pytest.mark.slow
def test_groups_that_hang_have_one_deadline_together() -> None:
    hang = [Command(key, ("sleep", "50"), waits=key == "b") for key in ("a", "b")]
    quick = [Command(f"quick-{key.key}", ("echo", key.key), waits=key.waits) for key in hang]
    began = time.monotonic()
    found = gather("sh", *hang, *quick, groups_s=3, together_s=20).entries
    assert time.monotonic() - began < 45  # 3 + 3 + 12; with a deadline each 20 + 20 + 12
    assert [(found[a.key].exit_status, found[b.key].stdout) for a, b in zip(hang, quick, strict=True)] == [
        (124, "a\n"),
        (124, "b\n"),
    ]


def test_root_commands_go_through_sudo_and_its_refusal_is_told(tmp_path: Path) -> None:
    for name, text in (("id", "echo 1000"), ("sudo", 'echo ": $*"; echo "sudo: a password is required" >&2; exit 1')):
        _tool(tmp_path / name, text)
    entry = gather("sh", Command("echo", ("echo", "a b"), root=True), path=str(tmp_path)).entries["echo"]
    assert (entry.stdout, entry.exit_status) == (": -n -- echo a b\n", 1)
    assert entry.stderr.startswith("sudo: a password is required")


def test_the_clock_is_compared_within_the_round_trip() -> None:
    found = collect(LocalTransport(), HERE, [Command("a", ("true",))])
    assert isinstance(found, Recording)
    assert found.clock_offset_s is not None
    assert found.clock_error_s is not None
    assert -found.clock_error_s - 0.05 <= found.clock_offset_s <= 0.05


HEAD = b"nodectl-collect/2 1.0 plain -\n"
MARK = b"\n" + NONCE.encode() + b" "
A = Command("a", ("echo",))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "did not start"),
        (b"Welcome!\n", "did not start"),
        (HEAD + MARK + b"out a\nab", "breaks off after 1 of 1"),
        (HEAD, "breaks off after 0 of 1"),
        (b"nodectl-collect/2 1.0 gzip -\nno gzip at all", "damaged"),
        (b"nodectl-collect/2 1.0 gzip -\n" + gzip.compress(MARK + b"out a\nab", mtime=0)[:-9], "breaks off"),
    ],
)
def test_output_that_breaks_off_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(ParseError, match=said):
        frames(data, A)


def test_a_login_banner_before_the_first_frame_is_passed_over() -> None:
    data = b"Welcome!\n\nnodectl-collect/2 %N plain dgx\n" + MARK + b"out a\nx" + MARK + b"end 0" + MARK
    found = frames(data + b"took 250 recorded\n" + MARK + b"done\n" + MARK + b"err a\noops", A)
    assert (found.clock_offset_s, found.recorded) == (None, "dgx")
    entry = found.entries["a"]
    assert (entry.stdout, entry.stderr, entry.duration_s, entry.recorded) == ("x", "oops", 2.5, True)


def test_a_small_stream_cannot_unpack_to_more_than_fits() -> None:
    bomb = gzip.compress(MARK + b"out a\n" + bytes(2 * TOTAL_BYTES))
    entry = frames(b"nodectl-collect/2 1.0 gzip -\n" + bomb, A).entries["a"]
    assert (entry.cut, entry.exit_status) == (True, None)


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


def _tool(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended meanwhile
        return b""
