"""The folder of a site's own checks: what is taken from it, what is refused, and how a host runs it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from nodectl.errors import InventoryError, UsageError
from nodectl.facts.catalogue import read_facts
from nodectl.facts.look import Site, SiteRun
from nodectl.health.site import commands_on, site_checks
from nodectl.model.host import Host
from nodectl.model.recording import Recording
from nodectl.model.result import CommandResult
from nodectl.recordings.collect import collect
from nodectl.transport.base import Transport
from nodectl.transport.inventory import read_inventory
from nodectl.transport.router import LocalTransport

if TYPE_CHECKING:
    from tests.transport.sshd_server import Sshd

SHELLS = [
    pytest.param(shell, marks=pytest.mark.slow if at else ())
    for at, shell in enumerate(shell for shell in ("dash", "bash", "busybox") if shutil.which(shell))
]
HERE = Host("gpu 'one'", "127.0.0.1", connection="local")
Put = Callable[..., Path]


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Writes a file of the folder."""
    folder = tmp_path / "checks.d"
    folder.mkdir(mode=0o755)

    def write(name: str, text: str | bytes = "#!/bin/sh\n", mode: int = 0o755) -> Path:
        path = folder / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        path.chmod(mode)
        return path

    return write


def read(put: Put) -> dict[str, Any]:
    folder = put("README").parent
    return {check.id: check for check in site_checks([str(folder.parent / "hosts.yml")])}


def test_names_make_ids_and_what_is_no_check_is_left_out(put: Put) -> None:
    for name in ("GPU fan's 100%.sh", "disk-free.py", ".hidden", "old~", "readme.md"):
        put(name)
    for name in ("x10", "x9", "a"):
        put(name)
    (put("a").parent / "lib").mkdir()
    assert list(read(put)) == ["site_gpu_fan_s_100", "site_a", "site_disk_free", "site_x9", "site_x10"]
    assert site_checks(["host1,host2", "/no/such/hosts"]) == ()


@pytest.mark.parametrize(
    ("name", "text", "mode", "said"),
    [
        ("a", "#!/bin/sh\n", 0o644, "is not executable"),
        ("a", "echo ok\n", 0o755, "does not begin with #!/"),
        ("a", "#!/bin/sh\n", 0o775, "may be written by its group"),
        ("a", "#!/bin/sh\n# nodectl: timeout=10h\n", 0o755, "line 2: timeout=10h: a time from 1s to 100s"),
        ("a", "#!/bin/sh\n# nodectl: timout=10s\n", 0o755, "no such key: 'timout'; did you mean timeout?"),
        ("проверка", "#!/bin/sh\n", 0o755, "its name makes no id"),
        ("b-1.sh", "#!/bin/sh\n", 0o755, "are both called site_b_1"),
    ],
)
def test_what_cannot_be_a_check_is_refused_by_name(put: Put, name: str, text: str, mode: int, said: str) -> None:
    put("b 1.py")
    put(name, text, mode)
    if "group" in said:
        os.chown(put(name, text, mode), -1, 4_000_000)  # a group of nobody's own
    with pytest.raises(UsageError) as refused:
        read(put)
    assert said in refused.value.message and name in refused.value.message and refused.value.remedy


def test_a_folder_that_everybody_may_write_to_is_refused(put: Put) -> None:
    folder = put("a").parent
    folder.chmod(0o1777)
    with pytest.raises(UsageError, match=r"checks\.d may be written by everybody"):
        read(put)


@pytest.mark.skipif(os.getuid() != 0, reason="makes files of other logins, which takes root")
@pytest.mark.parametrize("whose", ["file", "folder", "above"])
def test_what_another_login_may_change_is_refused(
    put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whose: str
) -> None:
    file = put("a")
    path = {"file": file, "folder": file.parent, "above": tmp_path}[whose]
    os.chown(path, 65534, 65534)
    with pytest.raises(UsageError, match=f"{path} is of login 65534, and what it holds runs on nodes"):
        read(put)
    monkeypatch.setenv("SUDO_UID", "65534")
    assert list(read(put)) == ["site_a"], "sudo nodectl, typed by the login whose files they are"


def test_inside_of_an_inventory_that_is_a_folder_ansible_would_run_it(put: Put, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    put("a", f"#!/bin/sh\ntouch {ran}\necho '{{}}'\n")
    (tmp_path / "hosts").write_text("gpu01\n")
    with pytest.raises(InventoryError, match="executables Ansible runs on this machine"):
        read_inventory([str(tmp_path)])
    assert not ran.exists()


class Counting:
    """This machine, and the argvs that it was given; `full`: nothing can be sent to it."""

    def __init__(self, *, full: bool = False) -> None:
        self.argvs: list[Sequence[str]] = []
        self._transport, self._full = LocalTransport(), full

    def run(self, host: Host, argv: Sequence[str], **given: Any) -> CommandResult:
        self.argvs.append(argv)
        if self._full and len(argv) > 2:
            argv = ["sh", "-c", "echo 'mkdir: No space left on device' >&2; exit 1"]
        return self._transport.run(host, argv, **given)

    def close(self) -> None:
        self._transport.close()


def runs(put: Put, transport: Counting) -> dict[str, SiteRun]:
    answer = collect(transport, HERE, commands_on(HERE, list(read(put).values())))
    assert isinstance(answer, Recording)
    site = read_facts(answer)["site"]
    assert isinstance(site, Site)
    return dict(site.runs)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_host_gets_each_file_once_and_runs_it_within_bounds(
    put: Put, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sh").symlink_to(str(shutil.which(shell)))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state 'of' a login"))
    mark = f"86.{os.getpid()}"
    late = "#!/bin/sh\n# nodectl: timeout=1\n"
    says = 'echo "$NODECTL_HOST,$NODECTL_CHECK,$NODECTL_TIMEOUT_S,$x"'
    put("a b.sh", f"#!/bin/sh\nread -r x || x=closed\n{says}\necho no >&2\nexit 2\n")
    put("late", f"{late}trap '' TERM\nsleep {mark} &\nsleep {mark}; sleep {mark}\n")
    put("left", f"#!/bin/sh\n(sleep {mark} &)\necho fine\n")
    put("flood", "#!/bin/sh\nexec yes\n")
    put("noise", "#!/bin/sh\nyes | head -c 300000 >&2\nhead -c 60000 /dev/zero\nprintf '\\377\\033[2J'\n")
    put("crash", "#!/bin/sh\nkill -SEGV $$\n")
    put("python", f'#!{shutil.which("python3")}\nprint(\'[{{"status": "ok"}}]\')\n')
    put("nothing", "#!/no/such/program\n")
    transport = Counting()
    first = runs(put, transport)
    assert first["site_a_b"] == SiteRun(2, "gpu 'one',site_a_b,20,closed\n", "no")
    assert first["site_python"] == SiteRun(0, '[{"status": "ok"}]\n')
    assert first["site_left"] == SiteRun(0, "fine\n")
    assert first["site_noise"].text == "\ufffd\x1b[2J" and first["site_noise"].why == ""
    assert first["site_late"].why == "it did not end within 1 s"
    assert first["site_flood"].why == "it printed more than 64 KiB"
    assert first["site_crash"].why.startswith("signal 11 (SIGSEGV) ended it")
    assert "its interpreter, or what it runs, is not there" in first["site_nothing"].why
    assert not [path for path in Path("/proc").glob("[1-9]*/cmdline") if mark.encode() in _read(path)]
    folder = tmp_path / "state 'of' a login" / "nodectl" / "checks"
    kept = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert len(kept) == 8 and set(kept.values()) == {0o700} and folder.stat().st_mode & 0o777 == 0o700
    assert len(transport.argvs) == 3, "asked, sent, asked again"
    for path in put("x").parent.glob("[!a]*"):
        path.unlink()
    assert runs(put, transport) == {"site_a_b": first["site_a_b"]}
    assert len(transport.argvs) == 4, "an unchanged file was sent again"
    put("a b.sh", "#!/bin/sh\necho new\n")
    assert runs(put, transport) == {"site_a_b": SiteRun(0, "new\n")}


def test_a_host_behind_ssh_gets_it_too(put: Put, sshd: Sshd, transport: Transport, tmp_path: Path) -> None:
    put("a b", "#!/bin/sh\necho $((6 * 7)) $NODECTL_HOST\nexit 1\n")
    host = sshd.with_start_file(f"export XDG_STATE_HOME='{tmp_path}/its own'", tmp_path)
    commands = commands_on(host, list(read(put).values()))
    for _ in range(2):
        answer = collect(transport, host, commands)
        assert isinstance(answer, Recording)
        assert answer.entries["site_a_b"].stdout == "42 web1\n" and answer.entries["site_a_b"].exit_status == 1
    (kept,) = (tmp_path / "its own" / "nodectl" / "checks").iterdir()
    assert kept.read_bytes() == (put("x").parent / "a b").read_bytes()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
