"""How the playbooks are run: ansible-runner, its events as values, and its artifacts below the state folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nodectl.errors import ProvisionError
from nodectl.paths import state_dir
from nodectl.resources import share_dir

KEPT_RUNS = 20
_LAST_LINES = 12
# Ansible says first through which of its parts the message came
_PROFILE_ERROR = "The lookup plugin 'fleet_profile' failed: "


@dataclass(frozen=True, slots=True)
class ProvisionRequest:
    """What to run on which hosts; `become_password` is handed over on Ansible's prompt and written nowhere."""

    playbook: str
    inventory: tuple[str, ...]
    limit: str | None = None
    check: bool = False
    diff: bool = False
    tags: tuple[str, ...] = ()
    skip_tags: tuple[str, ...] = ()
    forks: int = 20
    become_password: str | None = None


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """What became of one task on one host: ok, changed, failed, unreachable, skipped, its start, or a diff."""

    host: str
    task: str
    outcome: str
    text: str = ""
    diff: str = ""


@dataclass(frozen=True, slots=True)
class HostTally:
    """Tasks of one host by outcome."""

    ok: int
    changed: int
    failed: int
    unreachable: int


@dataclass(frozen=True, slots=True)
class ProvisionRun:
    """A finished run: its name below the state folder, each host's tally, and what went wrong or was worth saying."""

    run: str
    hosts: Mapping[str, HostTally]
    problems: tuple[TaskEvent, ...]
    reports: tuple[TaskEvent, ...]

    @property
    def exit_status(self) -> int:
        """1 if a task failed on any host, else 3 if any was unreachable, else 0."""
        if any(tally.failed for tally in self.hosts.values()):
            return 1
        return 3 if any(tally.unreachable for tally in self.hosts.values()) else 0


def provision(request: ProvisionRequest, on_event: Callable[[TaskEvent], None]) -> ProvisionRun:
    """Run the playbook to its end; ProvisionError where Ansible itself could not, KeyboardInterrupt where cancelled."""
    import ansible_runner

    name = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{os.getpid()}"
    listener = _Listener(on_event)
    with _control_sockets() as sockets:
        runner = ansible_runner.run(
            private_data_dir=str(_runs_dir()),
            ident=name,
            project_dir=str(Path.cwd()),
            playbook=str(share_dir() / "playbooks" / f"{request.playbook}.yml"),
            limit=request.limit,
            cmdline=_command_line(request),
            envvars=_environment(sockets),
            passwords={r"^BECOME password.*:\s*?$": request.become_password} if request.become_password else None,
            forks=request.forks,
            event_handler=listener.hear,
            status_handler=_forget_environment,
            # else the password would be written into a file of the run
            suppress_env_files=True,
            quiet=True,
        )
    _prune()
    if runner.status == "canceled":
        raise KeyboardInterrupt
    if not listener.tallies:
        raise ProvisionError(f"Ansible ended with {runner.rc}: {listener.tail()}", f"see {_artifacts(name) / 'stdout'}")
    return ProvisionRun(name, listener.tallies, tuple(listener.problems), tuple(listener.reports))


def _runs_dir() -> Path:
    path = state_dir() / "runs"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def _artifacts(name: str) -> Path:
    return state_dir() / "runs" / "artifacts" / name


def _command_line(request: ProvisionRequest) -> str:
    import shlex

    words = [word for source in request.inventory for word in ("-i", source)]
    words += ["--check"] * request.check + ["--diff"] * request.diff
    for option, tags in (("--tags", request.tags), ("--skip-tags", request.skip_tags)):
        words += [option, ",".join(tags)] if tags else []
    words += ["--ask-become-pass"] if request.become_password else []
    return shlex.join(words)


def _environment(sockets: Path) -> dict[str, str]:
    """Our own settings over the operator's ansible.cfg, and Ansible's files inside the state folder."""
    home = state_dir() / "ansible"
    return {
        # ansible-playbook stands beside the interpreter, also where the environment is not activated
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        "ANSIBLE_HOME": str(home),
        "ANSIBLE_LOCAL_TEMP": str(home / "tmp"),
        "ANSIBLE_ROLES_PATH": str(share_dir() / "roles"),
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(sockets),
        "ANSIBLE_PIPELINING": "True",
        "ANSIBLE_HOST_KEY_CHECKING": "True",
        "ANSIBLE_GATHERING": "explicit",
        "ANSIBLE_INTERPRETER_PYTHON": "auto_silent",
        "ANSIBLE_RETRY_FILES_ENABLED": "False",
        "ANSIBLE_NOCOWS": "True",
        "ANSIBLE_FORCE_COLOR": "False",
        "ANSIBLE_NOCOLOR": "True",
        "ANSIBLE_DEPRECATION_WARNINGS": "False",
    }


@contextmanager
def _control_sockets() -> Iterator[Path]:
    """A folder with a path short enough for a socket; the connections that ssh keeps there end with the run."""
    folder = Path(tempfile.mkdtemp(prefix="nodectl-"))
    try:
        yield folder
    finally:
        for socket in folder.iterdir():
            argv = ["ssh", "-o", f"ControlPath={socket}", "-O", "exit", "nodectl"]
            with suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(argv, capture_output=True, timeout=5, check=False)
        shutil.rmtree(folder, ignore_errors=True)


def _forget_environment(status: Mapping[str, Any], runner_config: Any) -> None:
    """ansible-runner notes its whole environment, with whatever secrets the operator's shell holds: not kept."""
    if status["status"] != "starting":
        (Path(runner_config.artifact_dir) / "command").unlink(missing_ok=True)


def _prune() -> None:
    """Keep the last runs only."""
    runs = sorted((state_dir() / "runs" / "artifacts").glob("*/"), key=lambda path: path.stat().st_mtime)
    for old in runs[:-KEPT_RUNS]:
        shutil.rmtree(old, ignore_errors=True)


@dataclass(slots=True)
class _Listener:
    """Turns ansible-runner's events into ours, and keeps those that the summary shows."""

    on_event: Callable[[TaskEvent], None]
    tallies: dict[str, HostTally] = field(default_factory=dict)
    problems: list[TaskEvent] = field(default_factory=list)
    reports: list[TaskEvent] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def hear(self, raw: Mapping[str, Any]) -> bool:
        """False: ansible-runner need not keep the event as a file; its text is in the run's stdout."""
        data = raw.get("event_data") or {}
        self.lines = [*self.lines, *str(raw.get("stdout", "")).splitlines()][-_LAST_LINES:]
        if raw["event"] == "playbook_on_stats":
            self.tallies = read_tallies(data)
        event = read_event(str(raw["event"]), data, str(raw.get("stdout", "")))
        if event is not None:
            if event.outcome in ("failed", "unreachable"):
                self.problems.append(event)
            elif event.outcome == "ok" and event.text:
                self.reports.append(event)
            self.on_event(event)
        return False

    def tail(self) -> str:
        """The last lines that Ansible printed."""
        return "\n".join(line for line in self.lines if line.strip())


def read_tallies(stats: Mapping[str, Any]) -> dict[str, HostTally]:
    """The hosts' tallies of Ansible's closing event."""
    names = sorted({host for key in ("processed", "dark", "failures", "ok") for host in stats.get(key, {})})
    fields = ("ok", "changed", "failures", "dark")
    return {name: HostTally(*(int(stats.get(key, {}).get(name, 0)) for key in fields)) for name in names}


def read_event(kind: str, data: Mapping[str, Any], shown: str) -> TaskEvent | None:
    """One of Ansible's events as ours; None for those that say nothing about a task."""
    host, role = str(data.get("host", "")), data.get("role")
    task = f"{role}: {data.get('task', '')}" if role else str(data.get("task", ""))
    result = data.get("res") or {}
    if kind == "playbook_on_task_start":
        return TaskEvent("", task, "start")
    if kind == "runner_on_unreachable":
        return TaskEvent(host, task, "unreachable", failure_text(result))
    if kind == "runner_on_failed" and not data.get("ignore_errors"):
        return TaskEvent(host, task, "failed", failure_text(result))
    if kind == "runner_on_skipped":
        return TaskEvent(host, task, "skipped")
    if kind == "runner_on_ok":
        changed = bool(result.get("changed"))
        text = "" if changed else report_text(str(data.get("task_action", "")), result)
        return TaskEvent(host, task, "changed" if changed else "ok", text)
    if kind == "runner_on_file_diff" and shown.strip():
        return TaskEvent(host, task, "diff", diff=shown.strip())
    return None


def report_text(action: str, result: Mapping[str, Any]) -> str:
    """What a debug task says; empty for all other tasks."""
    said = result.get("msg", "") if action.rpartition(".")[2] == "debug" else ""
    return "\n".join(map(str, said)) if isinstance(said, list) else str(said)


def failure_text(result: Mapping[str, Any]) -> str:
    """Why a task failed, from whichever fields its module filled."""
    items = [item for item in result.get("results", ()) if item.get("failed") or item.get("unreachable")]
    if items:
        reasons = {str(item.get("item", "")): failure_text(item) for item in items}
        if len(reasons) > 1 and len(set(reasons.values())) == 1:
            return next(iter(reasons.values()))
        return "\n".join(f"{item}: {reason}" for item, reason in reasons.items())
    parts = [str(result.get(key, "")).strip() for key in ("msg", "stderr", "module_stderr")]
    seen = list(dict.fromkeys(part for part in parts if part))
    text = "\n".join(seen) or str(result.get("stdout", "")).strip() or "no reason given"
    return text.rpartition(_PROFILE_ERROR)[2]
