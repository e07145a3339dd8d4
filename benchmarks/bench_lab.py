"""A benchmark's own lab: an environment without the operator's settings, hosts that go with it, what a run costs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn

ROOT = Path(__file__).resolve().parent.parent
NODECTL = [sys.executable, "-m", "nodectl"]
_SAMPLE_S = 0.1
# a command that looks, ends so, too: something failed, or could not be told
_LOOKED = (0, 1, 3)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one run."""

    wall_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Watched(Cost):
    """And the most that the command and its children held at one time: memory (shared pages once), files, threads."""

    memory_mb: float = 0.0
    handles: int = 0
    threads: int = 0


@dataclass(frozen=True, slots=True)
class Lab:
    """Hosts that are up; `folder` is the benchmark's own."""

    folder: Path
    environment: Mapping[str, str]
    inventory: str
    ssh_config: str
    addresses: Mapping[str, str]
    # the hosts' first processes have real-time priority
    real_time: bool = False

    @property
    def hosts(self) -> list[str]:
        """Return their names, in their order."""
        return list(self.addresses)

    def nodectl(self, *args: str) -> str:
        """Return what a command printed; findings do not end the benchmark, failures do."""
        return _asked(["-i", self.inventory, *args], self.environment)

    def probe(self, *args: str, limit: Sequence[str] = ()) -> dict[str, Any]:
        """Return the document of `nodectl probe`."""
        limited = ["-l", ",".join(limit)] if limit else []
        document: dict[str, Any] = json.loads(self.nodectl(*limited, "--output", "json", "probe", *args))
        return document

    def argv(self, host: str, command: str) -> list[str]:
        """Return the words that run a shell command there by hand."""
        return ["ssh", "-F", self.ssh_config, host, command]

    def ssh(self, host: str, command: str, stdin: bytes = b"") -> str:
        """Return what a shell command there printed; the benchmark ends if it fails."""
        done = subprocess.run(self.argv(host, command), input=stdin, capture_output=True, check=False)
        if done.returncode:
            sys.exit(f"{host}: {command}: ended with {done.returncode}\n{done.stderr.decode(errors='replace')}")
        return done.stdout.decode()

    def end_masters(self) -> None:
        """End the connections that Ansible leaves: the next run is to begin as this one did."""
        folder = self.folder / "cp"
        for socket in folder.glob("*") if folder.exists() else []:
            subprocess.run(["ssh", "-o", f"ControlPath={socket}", "-O", "exit", "x"], capture_output=True, check=False)


@contextmanager
def own_folder(variables: Mapping[str, str] = {}) -> Iterator[tuple[Path, dict[str, str]]]:
    """Yield a folder that goes, and an environment that writes into it; {folder} in a variable stands for it."""
    signal.signal(signal.SIGTERM, _interrupt)
    # an installed nodectl has its modules compiled; a first round, which counts for nothing, does it here
    unwanted = ("ANSIBLE_", "NODECTL_", "PYTHONDONTWRITEBYTECODE")
    with tempfile.TemporaryDirectory(prefix="nodectl-bench-") as name:
        Path(name, "ansible.cfg").touch()
        own = {
            "XDG_STATE_HOME": "{folder}/state",
            "PYTHONPATH": str(ROOT),
            "ANSIBLE_CONFIG": "{folder}/ansible.cfg",
            "ANSIBLE_HOME": "{folder}/ansible",
            "ANSIBLE_SSH_CONTROL_PATH_DIR": "{folder}/cp",
            **variables,
        }
        kept = {key: value for key, value in os.environ.items() if not key.startswith(unwanted)}
        yield Path(name), {**kept, **{key: value.replace("{folder}", name) for key, value in own.items()}}


@contextmanager
def lab(
    hosts: int,
    *shape: str,
    within: tuple[Path, dict[str, str]] | None = None,
    real_time: bool = False,
    name: str = "bench",
) -> Iterator[Lab]:
    """Yield a lab with these options of `nodectl lab up`, in its own folder or `within` one; it always goes down.

    With `real_time` other work on this machine disturbs what runs in the hosts as little as may be.
    """
    if os.geteuid() != 0:
        sys.exit("a lab needs root")
    if within is None:
        with own_folder() as made, lab(hosts, *shape, within=made, real_time=real_time, name=name) as one:
            yield one
        return
    folder, environment = within
    named = ["--name", f"{name}-{os.getpid()}"]
    try:
        inventory = _asked(["lab", "up", "-n", str(hosts), *shape, *named], environment).strip()
        status = json.loads(_asked(["--output", "json", "lab", "status", *named], environment))
        addresses = {host["name"]: host["address"] for host in status["hosts"]}
        preferred = [_prefer(host["pid"]) for host in status["hosts"] if real_time]
        yield Lab(folder, environment, inventory, status["ssh_config"], addresses, real_time and all(preferred))
    finally:
        _asked(["lab", "down", *named], environment)


def cost(command: Sequence[str], environment: Mapping[str, str]) -> Cost:
    """Return what a command takes, its children included; the benchmark ends if it fails."""
    started = time.monotonic()
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd="/")
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.monotonic() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command[:4])} … ended with {process.returncode}: nothing to compare")
    return Cost(wall_s, usage.ru_utime + usage.ru_stime)


def watched(
    command: Sequence[str], environment: Mapping[str, str], *, output: int | IO[bytes] | None = subprocess.DEVNULL
) -> Watched:
    """Return what a command that looks takes and holds; the benchmark ends if it fails."""
    started, held = time.monotonic(), [(0.0, 0, 0)]
    errors = subprocess.DEVNULL if output is not None else None
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, cwd="/"
    )
    status, usage = None, None
    while status is None:
        sizes = [_held(pid) for pid in _family(process.pid)]
        held.append((sum(size[0] for size in sizes), sum(size[1] for size in sizes), sum(size[2] for size in sizes)))
        pid, code, used = os.wait4(process.pid, os.WNOHANG)
        if pid:
            status, usage = os.waitstatus_to_exitcode(code), used
        else:
            time.sleep(_SAMPLE_S)
    wall_s = time.monotonic() - started
    process.returncode = status
    if usage is None or status not in _LOOKED:
        raise SystemExit(f"{' '.join(command[-4:])} ended with {status}: nothing to compare")
    memory_mb, handles, threads = (max(column) for column in zip(*held, strict=True))
    cpu_s = usage.ru_utime + usage.ru_stime
    return Watched(wall_s, cpu_s, max(memory_mb, usage.ru_maxrss / 1024), int(handles), int(threads))


def _family(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *(each for child in children for each in _family(int(child)))]


def _held(pid: int) -> tuple[float, int, int]:
    """Return a process's memory in MB, its open files and its threads; nothing of one that has ended."""
    folder = Path(f"/proc/{pid}")
    try:
        rows = (folder / "smaps_rollup").read_text().splitlines()
        files, threads = (sum(1 for _ in (folder / kind).iterdir()) for kind in ("fd", "task"))
    except OSError:
        return 0.0, 0, 0
    return next((int(row.split()[1]) / 1024 for row in rows if row.startswith("Pss:")), 0.0), files, threads


def _asked(args: Sequence[str], environment: Mapping[str, str]) -> str:
    done = subprocess.run([*NODECTL, *args], env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in _LOOKED or (done.returncode and not done.stdout):
        raise SystemExit(f"nodectl {' '.join(args)} ended with {done.returncode}")
    return done.stdout


def _prefer(pid: int) -> bool:
    """Give a host's sshd real-time priority, and so all that is started there, probe and rival alike."""
    if shutil.which("chrt") is None:
        return False
    return subprocess.run(["chrt", "-r", "-p", "1", str(pid)], capture_output=True, check=False).returncode == 0


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt
