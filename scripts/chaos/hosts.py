"""The lab of these trials: its hosts from outside, with their processes, files and cables."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment

from nodectl.common.node_paths import LAB_SHARED
from nodectl.lab.faults import break_host, heal_hosts
from nodectl.lab.network import port_name
from nodectl.lab.state import HostRecord, LabFolder, LabState
from nodectl.lab.syscalls import inside_network
from tests import warm_cli

ROOT = Path(__file__).resolve().parents[2]
MARK = "NODECTL_CHAOS"
LAUNCHER, VENV = "/opt/nodectl-chaos/launch", "/opt/nodectl-chaos/venv"
STATE = "root/.local/state/nodectl"
CHECKPOINTS = f"{LAB_SHARED}/run"
ASKED = "tmp/chaos"
_NAME = "chaos"
_RUN_S = 300
# an environment as the pytorch role makes it, over the packages that the lab's share holds
_MAKE_VENV = f"""set -e
test -d /srv/nodectl/venv/lib
mkdir -p {VENV}/bin
cp /srv/nodectl/venv/pyvenv.cfg {VENV}
ln -sfn /srv/nodectl/venv/lib {VENV}/lib
ln -sf $(readlink -f /srv/nodectl/venv/bin/python) {VENV}/bin/python
printf '#!%s/bin/python\\nfrom torch.distributed.run import main\\nmain()\\n' {VENV} > {VENV}/bin/torchrun
cat > {LAUNCHER}
chmod 755 {LAUNCHER} {VENV}/bin/torchrun
"""


class MissingError(Exception):
    """Something that these trials need is not on this machine."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A process of a host: its number here, and the one that the host itself gives it."""

    pid: int
    inner: int
    argv: tuple[str, ...]
    environ: dict[str, str]

    @property
    def rank(self) -> int | None:
        """Return the rank of the training program; None of any other process."""
        is_rank = any(word.endswith("train.py") for word in self.argv) and "LOCAL_RANK" in self.environ
        return int(self.environ["RANK"]) if is_rank else None

    @property
    def is_agent(self) -> bool:
        """Return whether it is torchrun's agent."""
        # on several nodes the launch script starts it by `python -c`
        return len(self.argv) > 2 and (self.argv[1].endswith("/bin/torchrun") or "# torchrun" in self.argv[2])

    def send(self, number: int) -> None:
        """Send a signal; a process that has just ended needs none."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


@dataclass(frozen=True, slots=True)
class LabHost:
    """One host, and its PID 1 as this machine sees it."""

    record: HostRecord

    @property
    def name(self) -> str:
        """Return the host's name."""
        return self.record.name

    @property
    def pid(self) -> int:
        """Return the host's PID 1, as the machine sees it."""
        if self.record.process is None:
            raise MissingError(f"{self.name} has never been up")
        return self.record.process.pid

    @property
    def up(self) -> bool:
        """Return whether the host is up."""
        return self.record.up

    @property
    def root(self) -> Path:
        """Its files."""
        return Path(f"/proc/{self.pid}/root")

    def processes(self) -> list[Seen]:
        """All that live in its network namespace, which no process of a job leaves."""
        if not self.up:
            return []
        own = _network(self.pid)
        return [seen for pid in _pids() if _network(pid) == own and (seen := _seen(pid)) is not None]

    def ask(self, what: str) -> None:
        """Let this host's rank do something (train.py says what)."""
        place = self.root / ASKED
        place.mkdir(exist_ok=True)
        (place / what).touch()

    def run(self, script: str, given: str = "") -> str:
        """Return the output of a shell script that runs as the host's root; CalledProcessError if it fails."""
        ways = ["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd"]
        command = ["nsenter", f"--target={self.pid}", *ways, "--", "sh", "-c", script]
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60, check=True)
        return done.stdout


class Lab:
    """Brought up by nodectl, prepared for torchrun; the same for all trials until one takes it down."""

    @property
    def checkpoints(self) -> Path:
        """Return the folder of the job's checkpoints on the lab's shared storage."""
        return self.folder.shared / "run"

    def __init__(self, count: int) -> None:
        self.count = count
        self.folder = LabFolder.named(_NAME)
        self.hosts: list[LabHost] = []
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "NODECTL_"))},
            **{name: os.environ[name] for name in ("ANSIBLE_HOME",) if name in os.environ},
            "PYTHONPATH": str(ROOT),
            MARK: str(os.getpid()),
        }

    @property
    def state(self) -> LabState:
        """Return the lab's journal."""
        return self.folder.running()

    @property
    def names(self) -> list[str]:
        """Return the hosts' names."""
        return [host.name for host in self.hosts]

    def up(self) -> None:
        """Bring a fresh lab up, each host with the launch script and an environment with torch."""
        self.down()
        done = self.nodectl("lab", "up", "-n", str(self.count), "--name", _NAME)
        if done.returncode:
            raise MissingError(f"no lab: {done.stderr.strip()}")
        self.hosts = [LabHost(record) for record in self.state.hosts]
        text = (ROOT / "roles/launcher/templates/launch.sh.j2").read_text()
        rendered = Environment(autoescape=False).from_string(text).render(profiles="chaos", venv=VENV)  # noqa: S701
        for host in self.hosts:
            try:
                host.run(_MAKE_VENV, rendered + "\n")
            except subprocess.CalledProcessError as error:
                raise MissingError(f"the lab's share holds no torch: `make wheels` ({error.stderr})") from error

    def down(self) -> None:
        """Take the lab down; nothing is left of it."""
        done = self.nodectl("lab", "down", "--name", _NAME)
        if done.returncode:
            raise MissingError(f"the lab does not go down: {done.stderr.strip()}")
        self.hosts = []

    @property
    def whole(self) -> bool:
        """All hosts are up."""
        return bool(self.hosts) and all(host.up for host in self.hosts)

    def argv(self, *args: str) -> list[str]:
        """Return the words of a nodectl command on this lab's hosts."""
        return [sys.executable, "-m", "nodectl", "-i", str(self.folder.inventory), *args]

    def nodectl(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Return a whole run of nodectl."""
        argv = [sys.executable, "-m", "nodectl", *args]
        return subprocess.run(argv, env=self.environment, capture_output=True, text=True, timeout=_RUN_S, check=False)

    def on_hosts(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Run a command with this lab's inventory; without an event to meet, its imports are made once."""
        words = ["-i", str(self.folder.inventory), *args]
        if not warm_cli.can_run(self.environment):
            return self.nodectl(*words)
        return subprocess.CompletedProcess(words, *warm_cli.run(words, self.environment, None, _RUN_S))

    def break_(self, kind: str, host: LabHost) -> None:
        """One of the lab's own faults (`nodectl lab fault --list`)."""
        break_host(self.folder, kind, host.name)

    def heal(self) -> None:
        """All of them."""
        heal_hosts(self.folder, None)

    def deafen(self, host: LabHost) -> None:
        """Cut what comes to the host, and let through what it sends."""
        self._tc(host, "qdisc", "replace", "root", "handle", "1:", "bfifo", "limit", "1")

    def let_hear(self, host: LabHost) -> None:
        """Undo `deafen`; harmless if nothing was done."""
        with suppress(subprocess.CalledProcessError):
            self._tc(host, "qdisc", "del", "root")

    def _tc(self, host: LabHost, kind: str, verb: str, *words: str) -> None:
        port = port_name(self.names.index(host.name))
        with inside_network(self.folder.switch):
            subprocess.run(["tc", kind, verb, "dev", port, *words], check=True, capture_output=True)


def freeze(hosts: Sequence[LabHost], number: int) -> None:
    """SIGSTOP or SIGCONT for everything on these hosts, their sshd last, or first."""
    for host in hosts:
        rest = [seen for seen in host.processes() if seen.pid != host.pid]
        first = [Seen(host.pid, 1, (), {})]
        for seen in (*rest, *first) if number == signal.SIGSTOP else (*first, *rest):
            seen.send(number)


def marked() -> Iterator[Seen]:
    """Yield the processes of this machine that are a nodectl of these trials or were started by one."""
    for pid in _pids():
        seen = _seen(pid)
        if seen is not None and seen.environ.get(MARK) == str(os.getpid()):
            yield seen


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - read four times a second


def _network(pid: int) -> str:
    """Return the network namespace; empty if the process is gone."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")  # noqa: PTH115 - read for all processes, four times a second
    except OSError:
        return ""


def _seen(pid: int) -> Seen | None:
    """Return the process of a number; None if it has ended."""
    folder = Path(f"/proc/{pid}")
    try:
        status = dict(line.split(":\t", 1) for line in (folder / "status").read_text().splitlines() if ":\t" in line)
        if status["State"][0] in "ZX":
            return None
        words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
        pairs = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
    except (OSError, ValueError, KeyError):
        return None
    numbers = status["NSpid"].split()
    environ = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    return Seen(pid, int(numbers[min(1, len(numbers) - 1)]), tuple(words), environ)


def read_json(path: Path) -> dict[str, object] | None:
    """Return a document that is there and whole."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
