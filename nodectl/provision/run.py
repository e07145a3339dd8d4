"""How the playbooks are run: ansible-runner, its events as values, and its artifacts below the state folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nodectl.common.paths import state_dir
from nodectl.common.resources import share_dir
from nodectl.errors import ProvisionError
from nodectl.provision.command import ProvisionRequest, command_line, environment
from nodectl.provision.events import Listener, ProvisionRun, TaskEvent

KEPT_RUNS = 20


def provision(request: ProvisionRequest, on_event: Callable[[TaskEvent], None]) -> ProvisionRun:
    """Run the playbook to its end; ProvisionError where Ansible itself could not, KeyboardInterrupt where cancelled."""
    import ansible_runner

    name = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{os.getpid()}"
    listener = Listener(on_event)
    with _control_sockets() as sockets:
        runner = ansible_runner.run(
            private_data_dir=str(_runs_dir()),
            ident=name,
            project_dir=str(Path.cwd()),
            playbook=str(share_dir() / "playbooks" / f"{request.playbook}.yml"),
            limit=request.limit,
            cmdline=command_line(request),
            envvars=environment(name, sockets),
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
    kept = (tuple(listener.problems), tuple(listener.reports), tuple(listener.answers))
    return ProvisionRun(name, listener.tallies, *kept)


def _runs_dir() -> Path:
    path = state_dir() / "runs"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def _artifacts(name: str) -> Path:
    return state_dir() / "runs" / "artifacts" / name


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
