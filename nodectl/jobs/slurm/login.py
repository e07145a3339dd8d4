"""The host that has Slurm's commands, and what nodectl asks of it; one run of `jobs.slurm` a question."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nodectl.common.paths import state_dir
from nodectl.errors import JobError, ParseError, UnreachableError, UsageError
from nodectl.jobs.nodes import NONSENSE, rows_of, why
from nodectl.jobs.rows import CleanRow, SubmittedRow
from nodectl.model.host import Host
from nodectl.model.result import Outcome
from nodectl.transport.base import OnOutput, Transport
from nodectl.transport.payload import run_payload

MODULE = "jobs.slurm"
LOGIN, FOLDER = "nodectl_slurm_login", "nodectl_slurm_folder"
_ASK_S, _SUBMIT_S, _STOP_S = 60.0, 180.0, 150.0
_NO_PROGRAM = 127
_HERE = ("localhost", "local", "127.0.0.1")


@dataclass(frozen=True, slots=True)
class Login:
    """`folder` is where jobs lie there, on a file system of all nodes; empty: the login user's own state folder."""

    transport: Transport
    host: Host
    folder: str = ""

    def ask(
        self, *args: str, timeout_s: float = _ASK_S, stdin: bytes | None = None, kind: Any = dict[str, Any]
    ) -> tuple[Mapping[str, Any], ...]:
        """Return the rows of an answer, each of `kind` (jobs/rows.py); raise JobError where the host said no.

        UnreachableError where it could not be asked.
        """
        verb, *rest = args
        done = run_payload(
            self.transport, self.host, MODULE, [verb, self.folder, *rest], timeout_s=timeout_s, stdin=stdin
        )
        if done.outcome is not Outcome.RAN:
            raise UnreachableError(f"{self.host.name}: {why(done)}", "nodectl runs Slurm's commands on this host")
        if done.exit_status:
            raise JobError(f"{self.host.name}: {why(done)}")
        rows, wrong = rows_of(self.host.name, done.stdout, kind)
        if wrong:
            raise ParseError(f"{self.host.name}: {wrong}")
        return rows

    def scontrol(self, *args: str, remedy: str = "only Slurm's operators may drain a node") -> str:
        """Return what scontrol says on the login host; raise JobError with its words where it says no."""
        done = self.transport.run(self.host, ["scontrol", *args], timeout_s=_ASK_S)
        if done.outcome is not Outcome.RAN:
            raise UnreachableError(f"{self.host.name}: {why(done)}", "nodectl runs Slurm's commands on this host")
        if done.exit_status == _NO_PROGRAM:
            raise UnreachableError(f"{self.host.name} has no scontrol", "put Slurm's commands into PATH")
        if done.exit_status:
            raise JobError(f"scontrol {args[0]} on {self.host.name}: {why(done)}", remedy)
        return done.stdout

    def submit(self, job_id: str, package: bytes, env: Mapping[str, str]) -> Mapping[str, Any]:
        """Hand the job over: Slurm's number of it, and its folder."""
        stdin = json.dumps(dict(env)).encode() + b"\n" + package
        rows = self.ask("submit", job_id, timeout_s=_SUBMIT_S, stdin=stdin, kind=SubmittedRow)
        if not rows:
            raise ParseError(f"{self.host.name}: {NONSENSE}: it says nothing of the job that it took")
        return rows[0]

    def stop(self, job_id: str) -> None:
        """Cancel the job; returns when Slurm says that nothing of it is left."""
        self.ask("stop", job_id, timeout_s=_STOP_S)

    def clean(self, job_ids: Sequence[str]) -> tuple[Mapping[str, Any], ...]:
        """Remove the folders of ended jobs: a row each, with `removed` and the `problem`."""
        return self.ask("clean", *job_ids, kind=CleanRow)

    def stream(self, job_id: str, mode: str, request: Mapping[str, object], on_output: OnOutput) -> str:
        """Pass the frames of `logs` to `on_output`; why the stream ended before its end, else empty."""
        args = ["logs", self.folder, job_id, mode, json.dumps(dict(request))]
        done = run_payload(self.transport, self.host, MODULE, args, timeout_s=None, on_output=on_output)
        return "" if done.outcome is Outcome.RAN and done.exit_status == 0 else why(done)


def find_login(
    transport: Transport, hosts: Sequence[Host], wanted: Sequence[Host], *, submits: bool = False
) -> Login | None:
    """Find the host that Slurm is asked on (`nodectl_slurm_login` of `wanted`), else this machine; None for nowhere.

    `known` are all hosts of the inventory. Here is only asked what was submitted here, unless one `submits` now.
    """
    names = {str(host.variables[LOGIN]) for host in wanted if host.variables.get(LOGIN)}
    folders = {str(host.variables[FOLDER]) for host in wanted if host.variables.get(FOLDER)}
    for name, values in ((LOGIN, names), (FOLDER, folders)):
        if len(values) > 1:
            raise UsageError(f"{name} differs: {', '.join(sorted(values))}", "select hosts of one cluster with --limit")
    folder = next(iter(folders), "")
    if folder and not folder.startswith("/"):
        raise UsageError(
            f"{FOLDER} {folder!r} is not an absolute path", "name a folder that all nodes of the cluster see"
        )
    name = next(iter(names), "")
    by_name = {host.name: host for host in hosts}
    if name in by_name:
        return Login(transport, by_name[name], folder)
    if name and name not in _HERE:
        raise UsageError(f"{LOGIN}: the inventory has no host {name!r}", "name one of its hosts, or localhost")
    here = Path(folder) if folder else state_dir() / "slurm"
    if name or (shutil.which("sbatch") and (submits or here.is_dir())):
        return Login(transport, Host("localhost", "localhost", connection="local"), folder)
    return None


def need_login(login: Login | None) -> Login:
    """Return the login host; raise UsageError where there is none."""
    if login is None:
        raise UsageError(
            "--via slurm: no sbatch on this machine, and the inventory names no login host",
            f"set {LOGIN}: NAME in the inventory (a host of it), for example below all.vars",
        )
    return login
