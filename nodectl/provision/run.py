"""How the playbooks are run: a request as ansible-playbook's words, ansible-runner, its files in the state folder."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nodectl.common.access import Access
from nodectl.common.paths import state_dir
from nodectl.common.process import UTF_8, is_utf_8
from nodectl.common.resources import collections_dir, share_dir
from nodectl.errors import ProvisionError
from nodectl.provision.events import Listener, ProvisionRun, TaskEvent
from nodectl.provision.host_keys import control_sockets

KEPT_RUNS = 20
# every run's name begins with its time, trials' too; `start` is before all of them
RUN_NAME = re.compile(r"[0-9]{8}T[0-9]{6}Z-[A-Za-z0-9._-]{1,80}|start")


@dataclass(frozen=True, slots=True)
class ProvisionRequest:
    """A playbook and its hosts; passwords of `access` are handed over on Ansible's prompts and written nowhere."""

    playbook: str
    inventory: tuple[str, ...]
    limit: str | None = None
    check: bool = False
    diff: bool = False
    tags: tuple[str, ...] = ()
    skip_tags: tuple[str, ...] = ()
    forks: int = 20
    access: Access = field(default_factory=Access)
    variables: Mapping[str, Any] = field(default_factory=dict)
    # the caller holds the hosts' locks; if not, the plays take and release them
    holds: bool = True


def command_line(request: ProvisionRequest) -> str:
    """Return the request as options of ansible-playbook, quoted for a shell."""
    argv = [word for source in request.inventory for word in ("-i", source)]
    argv += ["--check"] * request.check + ["--diff"] * request.diff
    for option, tags in (("--tags", request.tags), ("--skip-tags", request.skip_tags)):
        argv += [option, ",".join(tags)] if tags else []
    argv += request.access.arguments()
    # what nodectl itself asks for comes last, and stands
    argv += ["--extra-vars", json.dumps(dict(request.variables))] if request.variables else []
    return shlex.join(argv)


def environment(run: str, sockets: Path, *, holds: bool = True) -> dict[str, str]:
    """Our own settings over the operator's ansible.cfg; Ansible's temporary files lie in the state folder."""
    from ansible import constants

    return {
        # ansible-playbook stands beside the interpreter, also if the environment is not activated
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        # before the operator's own, which may hold another version of it
        "ANSIBLE_COLLECTIONS_PATH": os.pathsep.join([str(collections_dir()), *constants.COLLECTIONS_PATHS]),
        "ANSIBLE_LOCAL_TEMP": str(state_dir() / "ansible" / "tmp"),
        # groups that the play makes, such as nodectl_cuda, are not there on a fleet that needs none
        "ANSIBLE_HOST_PATTERN_MISMATCH": "ignore",
        # Ansible starts in no other
        **({} if is_utf_8() else {"LC_ALL": UTF_8}),
        # the libraries of a Mac end what is forked beside them, as each of Ansible's workers is
        **({"OBJC_DISABLE_INITIALIZE_FORK_SAFETY": "YES"} if sys.platform == "darwin" else {}),
        # the name under which the nodes record what this run changes
        "NODECTL_RUN": run,
        **({"NODECTL_HOLDS": "1"} if holds else {}),
        "NODECTL_CONTROLLER": f"{socket.gethostname()} {os.getpid()}",
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(sockets),
        "ANSIBLE_PIPELINING": "True",
        "ANSIBLE_HOST_KEY_CHECKING": "True",
        "ANSIBLE_GATHERING": "explicit",
        "ANSIBLE_INTERPRETER_PYTHON": "auto_silent",
        "ANSIBLE_RETRY_FILES_ENABLED": "False",
        "ANSIBLE_NOCOWS": "True",
        "ANSIBLE_FORCE_COLOR": "False",
        "ANSIBLE_NOCOLOR": "True",
    }


def provision(request: ProvisionRequest, on_event: Callable[[TaskEvent], None]) -> ProvisionRun:
    """Run the playbook to its end; ProvisionError where Ansible itself could not, KeyboardInterrupt where cancelled."""
    import ansible_runner

    name = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{os.getpid()}"
    listener, folder = Listener(on_event), state_dir() / "runs"
    folder.mkdir(mode=0o700, exist_ok=True)
    _end_left_over(_is_orphan)
    with control_sockets() as sockets:
        runner = ansible_runner.run(
            private_data_dir=str(folder),
            ident=name,
            project_dir=str(Path.cwd()),
            playbook=str(share_dir() / "playbooks" / f"{request.playbook}.yml"),
            limit=request.limit,
            cmdline=command_line(request),
            envvars=environment(name, sockets, holds=request.holds),
            passwords=dict(request.access.answers()) or None,
            forks=request.forks,
            event_handler=listener.hear,
            status_handler=_forget_environment,
            # else the password would be written into a file of the run
            suppress_env_files=True,
            quiet=True,
        )
    runs = sorted((folder / "artifacts").glob("*/"), key=lambda path: path.stat().st_mtime)
    for old in runs[:-KEPT_RUNS]:
        shutil.rmtree(old, ignore_errors=True)
    if runner.status == "canceled":
        _end_left_over(lambda process: process.environ().get("NODECTL_RUN") == name)
        raise KeyboardInterrupt
    if not listener.tallies:
        stdout = folder / "artifacts" / name / "stdout"
        raise ProvisionError(f"Ansible ended with {runner.rc}: {listener.tail()}", f"see {stdout}")
    return ProvisionRun(
        name, listener.tallies, tuple(listener.problems), tuple(listener.reports), tuple(listener.answers)
    )


def _end_left_over(is_left: Callable[[Any], bool]) -> None:
    import psutil

    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError, ValueError):
            if is_left(process):
                process.kill()


def _is_orphan(process: Any) -> bool:
    """Return whether it is an ansible-playbook whose nodectl was killed: it would change hosts beside the next run."""
    import psutil

    host, pid = process.environ().get("NODECTL_CONTROLLER", "").split()
    ours = any(word.endswith("ansible-playbook") for word in process.cmdline()[:2])
    return ours and host == socket.gethostname() and not psutil.pid_exists(int(pid))


def _forget_environment(status: Mapping[str, Any], runner_config: Any) -> None:
    """ansible-runner notes its whole environment, with whatever secrets the operator's shell holds: not kept."""
    if status["status"] != "starting":
        (Path(runner_config.artifact_dir) / "command").unlink(missing_ok=True)
