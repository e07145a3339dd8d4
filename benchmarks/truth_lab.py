"""A lab for a benchmark: brought up, asked by nodectl and by plain ssh, taken down."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Lab:
    """Hosts that are up."""

    name: str
    environment: dict[str, str]
    inventory: str
    ssh_config: str
    addresses: dict[str, str]
    # other work on this machine disturbs what runs in the hosts as little as may be
    real_time: bool = False

    @property
    def hosts(self) -> list[str]:
        """In their order."""
        return list(self.addresses)

    def probe(self, *args: str, limit: Sequence[str] = ()) -> dict[str, Any]:
        """What `nodectl probe` says as JSON; findings do not stop it."""
        limited = ["-l", ",".join(limit)] if limit else []
        argv = ["-i", self.inventory, *limited, "--output", "json", "probe", *args]
        done = _run(self.environment, argv)
        if not done.stdout.startswith("{"):
            sys.exit(f"nodectl {' '.join(argv)} ended with {done.returncode}\n{done.stderr}")
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def ssh(self, host: str, command: str, stdin: bytes = b"") -> str:
        """What a shell command there printed; the benchmark ends where it fails."""
        done = subprocess.run(self.argv(host, command), input=stdin, capture_output=True, check=False)
        if done.returncode:
            sys.exit(f"{host}: {command}: ended with {done.returncode}\n{done.stderr.decode(errors='replace')}")
        return done.stdout.decode()

    def argv(self, host: str, command: str) -> list[str]:
        """To run a shell command there by hand."""
        return ["ssh", "-F", self.ssh_config, host, command]


@contextmanager
def lab(name: str, *shape: str) -> Iterator[Lab]:
    """`shape` are options of `nodectl lab up`; its state lies in a folder that goes with it."""
    if os.geteuid() != 0:
        sys.exit("a lab needs root")
    with tempfile.TemporaryDirectory(prefix="nodectl-truth-") as folder:
        environment = {**os.environ, "XDG_STATE_HOME": folder, "PYTHONPATH": str(_ROOT)}
        up = _run(environment, ["lab", "up", "--name", name, *shape])
        if up.returncode:
            sys.exit(f"no lab: {up.stderr}")
        try:
            status = json.loads(_run(environment, ["lab", "status", "--name", name, "--output", "json"]).stdout)
            addresses = {each["name"]: each["address"] for each in status["hosts"]}
            preferred = [_prefer(each["pid"]) for each in status["hosts"]]
            yield Lab(name, environment, up.stdout.strip(), status["ssh_config"], addresses, all(preferred))
        finally:
            _run(environment, ["lab", "down", "--name", name])


def _prefer(pid: int) -> bool:
    """Real-time priority for a host's sshd and so for all that is started there, probe and rival alike."""
    if shutil.which("chrt") is None:
        return False
    return subprocess.run(["chrt", "-r", "-p", "1", str(pid)], capture_output=True, check=False).returncode == 0


def _run(environment: dict[str, str], args: Sequence[str]) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "nodectl", *args]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)


def furthest(ratios: Sequence[float]) -> float:
    """The one that is furthest from 1."""
    return max(ratios, key=lambda each: abs(each - 1))
