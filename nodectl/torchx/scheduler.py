"""A scheduler of TorchX over nodectl's command line: each replica of an app's role is a host, and runs its command.

TorchX asks for an app by its id alone, from another process: which inventory has it is noted in the operator's state.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from torchx.schedulers.api import DescribeAppResponse, ListAppResponse, Scheduler, Stream, filter_regex
from torchx.specs import AppDef, AppDryRunInfo, AppState, ReplicaStatus, Role, RoleStatus, macros, runopts

_STATES = {
    "starting": AppState.PENDING,
    "running": AppState.RUNNING,
    "ending": AppState.RUNNING,
    "finished": AppState.SUCCEEDED,
    "failed": AppState.FAILED,
    "stopped": AppState.CANCELLED,
}
_USAGE = 2
_APP, _REPLICA = "@nodectl-app-id@", "@nodectl-replica-id@"
# the job's id and a replica's number are known on the hosts only
_SUBSTITUTE = f"""\
while [[ $1 != -- ]]; do
  value=${{!1//{_APP}/$NODECTL_JOB_ID}}
  export "$1=${{value//{_REPLICA}/$RANK}}"
  shift
done
shift
words=("${{@//{_APP}/$NODECTL_JOB_ID}}")
exec "${{words[@]//{_REPLICA}/$RANK}}"
"""
_PREFIX = re.compile(r"^\S+ +\| (?:\[\d+\] )?")


@dataclass(frozen=True, slots=True)
class Place:
    """Hold which hosts nodectl is to take: an inventory and an Ansible pattern; empty as everywhere in nodectl."""

    inventory: str = ""
    limit: str = ""

    def options(self) -> list[str]:
        """Return nodectl's global options."""
        named = {"--inventory": self.inventory, "--limit": self.limit}
        return [word for option, value in named.items() if value for word in (option, value)]


@dataclass(frozen=True, slots=True)
class Request:
    """Hold what nodectl is called with; the values of `env` go to it in a file of mode 0600."""

    place: Place
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        argv = ["nodectl", *self.place.options(), *self.argv]
        return "\n".join([shlex.join(argv), *(f"  with {name}" for name in sorted(self.env))])


def create_scheduler(session_name: str, **_: object) -> NodectlScheduler:
    """Return what TorchX calls, by the entry point."""
    return NodectlScheduler(session_name)


class NodectlScheduler(Scheduler):  # type: ignore[misc]  # torchx is not installed where types are checked
    """Jobs of nodectl as apps of TorchX."""

    def __init__(self, session_name: str) -> None:
        super().__init__("nodectl", session_name)

    def _run_opts(self) -> runopts:
        options = runopts()
        options.add("inventory", type_=str, default="", help="Ansible inventory; default: as nodectl finds it")
        options.add("limit", type_=str, default="", help="Ansible pattern: which of its hosts")
        options.add("chdir", type_=str, default="", help="folder on the hosts that has the code; nothing is copied")
        options.add("code", type_=str, default="", help="folder here that is copied; default: the one you stand in")
        options.add("launcher", type_=str, default="", help="launch script on the hosts; default: the deployed one")
        return options

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, Any]) -> AppDryRunInfo[Request]:
        if len(app.roles) != 1:
            raise ValueError(f"nodectl runs apps of one role, and this one has {len(app.roles)}")
        given = {name: cfg.get(name) or "" for name in ("inventory", "limit", "chdir", "code", "launcher")}
        values = macros.Values(img_root=".", app_id=_APP, replica_id=_REPLICA, rank0_env="MASTER_ADDR")
        role = values.apply(app.roles[0])
        options = ["launch", "--detach", "--engine", "command", "--nproc-per-node", "1"]
        options += ["--nodes", str(role.num_replicas)]
        if role.max_retries:
            options += ["--restarts", str(role.max_retries)]
        for name in ("chdir", "code", "launcher"):
            options += [f"--{name}", given[name]] if given[name] else []
        argv = (*options, "--", *_command(role))
        return AppDryRunInfo(Request(Place(_path(given["inventory"]), given["limit"]), argv, role.env), str)

    def schedule(self, dryrun_info: AppDryRunInfo[Request]) -> str:
        """Start it; the job's id is the app's."""
        request = dryrun_info.request
        with tempfile.NamedTemporaryFile("w", prefix="nodectl-torchx-") as file:  # made 0600
            for name, value in request.env.items():
                if "\n" in value:
                    raise ValueError(f"the variable {name} has more than one line, which nodectl does not hand over")
                file.write(f"{name}={value}\n")
            file.flush()
            head, *rest = request.argv
            document = _nodectl(request.place, head, "--env-file", file.name, *rest)
        app_id = str(document["jobs"][0]["id"])
        _note(app_id, request.place)
        return app_id

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """State and replicas of a job; None where there is none."""
        try:
            job = _nodectl(_place(app_id), "jobs", "show", app_id)["jobs"][0]
        except LookupError:
            return None
        state, name = _STATES.get(job["state"], AppState.UNKNOWN), Path(job["script"]).name
        failure = job["first_failure"]
        replicas = [ReplicaStatus(number, state, name, host) for number, host in enumerate(job["hosts"])]
        return DescribeAppResponse(
            app_id=str(job["id"]),
            state=state,
            msg=f"{failure['host']}: {failure['message']}" if failure else "",
            roles=[Role(name=name, image="", entrypoint=job["script"], args=job["args"], num_replicas=len(replicas))],
            roles_statuses=[RoleStatus(name, replicas)],
        )

    def list(self) -> list[ListAppResponse]:
        """All jobs of the inventory that nodectl finds by itself, and of those that apps were started on."""
        jobs: dict[str, ListAppResponse] = {}
        for place in dict.fromkeys([Place(), *_noted().values()]):
            try:
                document = _nodectl(place, "jobs", "list")
            except (LookupError, RuntimeError):
                if place == Place():  # there may be none
                    continue
                raise
            for job in document["jobs"]:
                jobs[job["id"]] = ListAppResponse(job["id"], _STATES.get(job["state"], AppState.UNKNOWN))
        return [*jobs.values()]

    def _cancel_existing(self, app_id: str) -> None:
        _nodectl(_place(app_id), "jobs", "stop", app_id)

    def log_iter(
        self,
        app_id: str,
        role_name: str,
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool = False,
        streams: Stream | None = None,
    ) -> Iterable[str]:
        """Return the lines of a replica; both of its streams are one, and times are not told apart."""
        if streams not in (None, Stream.COMBINED):
            raise ValueError("nodectl keeps standard output and error of a rank together: ask for `combined`")
        lines = _lines(_place(app_id), app_id, k, follow=should_tail)
        return filter_regex(regex, lines) if regex else lines


def _command(role: Role) -> list[str]:
    """Return the role's command, below what puts the job's id and the replica's number into its words and variables."""
    names = [name for name, value in role.env.items() if _APP in value or _REPLICA in value]
    return ["bash", "-c", _SUBSTITUTE, "torchx", *names, "--", role.entrypoint, *role.args]


def _lines(place: Place, app_id: str, replica: int, *, follow: bool) -> Iterator[str]:
    arguments = ["jobs", "logs", *(["-f"] if follow else []), "--rank", str(replica), app_id]
    with subprocess.Popen(_argv(place, arguments), stdout=subprocess.PIPE, text=True, errors="replace") as process:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        try:
            for line in process.stdout:
                yield _PREFIX.sub("", line)
        finally:
            process.terminate()


def _nodectl(place: Place, *arguments: str) -> Any:
    """Return nodectl's JSON document; raise LookupError where it knows no such thing, RuntimeError where it failed."""
    done = subprocess.run(
        _argv(place, ["--output", "json", *arguments]),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.stdout.strip() and done.returncode in (0, 3):
        return json.loads(done.stdout)
    message = done.stderr.strip() or f"nodectl ended with {done.returncode}"
    if done.returncode == _USAGE and "there is no job" in message:
        raise LookupError(message)
    raise RuntimeError(message)


def _argv(place: Place, arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "nodectl", *place.options(), *arguments]


def _path(inventory: str) -> str:
    """Return a file's whole path, since it is asked for from other folders later; a list such as `a,b,` as it is."""
    return str(Path(inventory).resolve()) if inventory and Path(inventory).exists() else inventory


def _notes() -> Path:
    base = os.environ.get("XDG_STATE_HOME")
    home = os.environ.get("HOME") or pwd.getpwuid(os.geteuid()).pw_dir
    return Path(base or f"{home}/.local/state", "nodectl", "torchx")


def _note(app_id: str, place: Place) -> None:
    _notes().mkdir(mode=0o700, parents=True, exist_ok=True)
    text = json.dumps({"inventory": place.inventory, "limit": place.limit})
    (_notes() / f"{app_id}.json").write_text(text, encoding="utf-8")


def _noted() -> dict[str, Place]:
    """Return, by app, where it was started."""
    places = {}
    for path in sorted(_notes().glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        places[path.stem] = Place(str(document["inventory"]), str(document["limit"]))
    return places


def _place(app_id: str) -> Place:
    return _noted().get(app_id, Place())
