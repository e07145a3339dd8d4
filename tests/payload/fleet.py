"""Several hosts of a job on one machine: a state folder and a loopback address each, and a launcher without torch."""

from __future__ import annotations

import io
import json
import os
import secrets
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodectl.payload.common.frames import texts

RUN = Path(__file__).resolve().parents[2] / "nodectl" / "payload" / "run.py"

_ENVIRONMENT = b'{"TOKEN": "it\'s $SECRET"}'

# what the deployed launch script does, with python in the place of torchrun; the ranks die with it
LAUNCHER = """#!{python}
import ctypes, os, signal, subprocess, sys, time
arguments = sys.argv[1:]
end = arguments.index("--")
options = dict(zip(arguments[:end:2], arguments[1:end:2]))
ranks, first = int(options["--nproc-per-node"]), int(options["--node-rank"]) * int(options["--nproc-per-node"])
children = [
    subprocess.Popen(
        [sys.executable, "-S", *arguments[end + 1:]], env=dict(os.environ, RANK=str(first + n), LOCAL_RANK=str(n)),
        preexec_fn=lambda: ctypes.CDLL(None).prctl(1, 9),
    )
    for n in range(ranks)
]
signal.signal(signal.SIGTERM, lambda *_: [child.terminate() for child in children])
while any(child.poll() is None for child in children) and not any(child.poll() for child in children):
    time.sleep(0.1)
for local_rank, child in enumerate(children):
    if child.poll():
        print(f"failed (exitcode: {{child.poll()}}) local_rank: {{local_rank}} (pid: {{child.pid}})", flush=True)
        [other.terminate() for other in children]
        [other.wait() for other in children]
        sys.exit(1)
"""


def free_port() -> int:
    """A UDP and TCP port below the ephemeral range."""
    for _ in range(100):
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp, socket.socket() as tcp:
            try:
                udp.bind(("", port))  # jobs of other tests have it on addresses of their own
                tcp.bind(("", port))
            except OSError:
                continue
            return port
    raise AssertionError("no free port")


@dataclass
class Fleet:
    """`size` hosts below `root`; every job started here is stopped by `close`.

    `as_user` are words in front of the hosts' programs, and `run` is where those lie.
    """

    root: Path
    size: int
    python: str = sys.executable
    as_user: tuple[str, ...] = ()
    run: Path = RUN
    jobs: dict[str, bytes] = field(default_factory=dict)

    @property
    def launcher(self) -> Path:
        """The launcher's path, written on first use."""
        path = self.root / "launcher"
        if not path.exists():
            path.write_text(LAUNCHER.format(python=sys.executable))
            path.chmod(0o755)
        return path

    def state(self, rank: int) -> Path:
        """nodectl's state folder of a host."""
        return self.root / f"host{rank}" / "nodectl"

    def ctl(
        self, rank: int, *args: str, stdin: bytes | None = None, program: str = "jobs.control"
    ) -> subprocess.CompletedProcess[bytes]:
        """A program of jobs as on that host."""
        # others of this machine that are tested meanwhile do not see its jobs
        own = {"XDG_STATE_HOME": str(self.root / f"host{rank}"), "NODECTL_LOCK_FOLDER": str(self.root)}
        env = {**os.environ, **own}
        argv = [*self.as_user, self.python, "-S", str(self.run), program, *args]
        return subprocess.run(argv, input=stdin, capture_output=True, env=env, timeout=60, check=False)

    def launch(self, script: str, args: Sequence[str] = (), *, start: Sequence[int] | None = None, **plan: Any) -> str:
        """Start on all hosts, or those of `start`; `plan` replaces keys of the plan."""
        job_id = f"job-{secrets.token_hex(4)}"
        self.jobs[job_id] = self.package(job_id, script, args, plan)
        for rank in range(self.size) if start is None else start:
            done = self.start(rank, job_id)
            assert done.returncode == 0, done.stderr
        return job_id

    def start(self, rank: int, job_id: str) -> subprocess.CompletedProcess[bytes]:
        """Start a job on a host."""
        return self.ctl(rank, "start", job_id, str(rank), stdin=self.jobs[job_id])

    def package(self, job_id: str, script: str, args: Sequence[str], more: Mapping[str, Any]) -> bytes:
        """What a start reads."""
        hosts = [
            {"name": f"host{rank}", "address": f"127.0.9.{rank + 1}", "interface": ""} for rank in range(self.size)
        ]
        plan = {
            "version": 1, "id": job_id, "created_at": time.time(), "operator": "test", "script": "script.py",
            "args": list(args), "nproc_per_node": 2, "hosts": hosts, "master_port": 29_999,
            "heartbeat_port": free_port(), "lease_s": 5.0, "beat_s": 0.3, "start_deadline_s": 6.0, "grace_s": 1.0,
            "launcher": str(self.launcher), "venv": "", "env_names": ["TOKEN"], "checkpoint": None,
            "start": more.get("plan_start", {}), **more,
        }  # fmt: skip
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            for name, data in (
                ("plan.json", json.dumps(plan).encode()),
                ("secret", secrets.token_bytes(32)),
                ("code/script.py", script.encode()),
            ):
                entry = tarfile.TarInfo(name)
                entry.size, entry.mode = len(data), 0o600
                archive.addfile(entry, io.BytesIO(data))
        return _ENVIRONMENT + b"\n" + buffer.getvalue()

    def report(self, rank: int, job_id: str) -> dict[str, Any]:
        """What `jobs.control list` says there."""
        done = self.ctl(rank, "list", job_id)
        assert done.returncode == 0, done.stderr
        (row,) = answer(done)
        return row

    def reports(self, job_id: str) -> list[dict[str, Any]]:
        """Of all hosts."""
        return [self.report(rank, job_id) for rank in range(self.size)]

    def output(self, rank: int, job_id: str) -> str:
        """The job's output on a host so far."""
        path = self.state(rank) / "jobs" / job_id / "output.log"
        return path.read_text() if path.exists() else ""

    def wait(self, condition: Callable[[], bool], timeout_s: float = 120.0) -> float:
        """Seconds until `condition` held; one that starts processes is not tried again at once."""
        started = tried = time.monotonic()
        while not condition():
            assert time.monotonic() - started < timeout_s, f"it did not come true:\n{self.told()}"
            time.sleep(min(0.5, max(0.05, 2 * (time.monotonic() - tried))))
            tried = time.monotonic()
        return time.monotonic() - started

    def told(self) -> str:
        """Of every host's jobs, for people: the state, and the end of what its supervisor and its ranks wrote."""
        files = sorted(self.root.glob("host*/nodectl/jobs/*/*.log")) + sorted(self.root.glob("host*/**/state.json"))
        return "\n".join(f"--- {path}\n{path.read_text(errors='replace')[-3000:]}" for path in files)

    def wait_settled(self, job_id: str, ranks: Sequence[int] | None = None, timeout_s: float = 120.0) -> float:
        """Seconds until the supervisors of `ranks` (all) have left."""
        asked = range(self.size) if ranks is None else ranks
        return self.wait(lambda: not any(self.report(rank, job_id)["alive"] for rank in asked), timeout_s)

    def wait_up(self, job_id: str, word: str, count: int) -> None:
        """Until every host's output holds `word` `count` times."""
        self.wait(lambda: all(self.output(rank, job_id).count(word) >= count for rank in range(self.size)))

    def close(self) -> None:
        """Stop every job that has left something."""
        for job_id in filter(_lives, self.jobs):
            for rank in range(self.size):
                self.ctl(rank, "stop", job_id)


def _lives(job_id: str) -> bool:
    for command in Path("/proc").glob("[1-9]*/cmdline"):
        with suppress(OSError):
            if job_id.encode() in command.read_bytes():
                return True
    return bool(processes_of(job_id))


def answer(done: subprocess.CompletedProcess[bytes]) -> list[dict[str, Any]]:
    """The rows that jobs.control answered in its one frame."""
    (text,) = texts(done.stdout)
    rows: list[dict[str, Any]] = json.loads(text)
    return rows


def processes_of(job_id: str) -> list[int]:
    """Living processes that carry the job's mark."""
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if f"NODECTL_JOB_ID={job_id}\0".encode() in (folder / "environ").read_bytes():
                    found.add(int(folder.name))
            except OSError:
                continue
    return sorted(found)
