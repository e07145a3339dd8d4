"""What is run and with which settings: a request as ansible-playbook's words and environment."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nodectl.common.paths import state_dir
from nodectl.common.resources import collections_dir

# as module_utils/undo/store.py has it on the nodes
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


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
    variables: Mapping[str, Any] = field(default_factory=dict)


def command_line(request: ProvisionRequest) -> str:
    """ansible-playbook's options, quoted once."""
    words = [word for source in request.inventory for word in ("-i", source)]
    words += ["--check"] * request.check + ["--diff"] * request.diff
    for option, tags in (("--tags", request.tags), ("--skip-tags", request.skip_tags)):
        words += [option, ",".join(tags)] if tags else []
    words += ["--extra-vars", json.dumps(dict(request.variables))] if request.variables else []
    words += ["--ask-become-pass"] if request.become_password else []
    return shlex.join(words)


def environment(run: str, sockets: Path) -> dict[str, str]:
    """Our own settings over the operator's ansible.cfg; Ansible's temporary files lie in the state folder."""
    from ansible import constants

    return {
        # ansible-playbook stands beside the interpreter, also where the environment is not activated
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        # before the operator's own, which may hold another version of it
        "ANSIBLE_COLLECTIONS_PATH": os.pathsep.join([str(collections_dir()), *constants.COLLECTIONS_PATHS]),
        "ANSIBLE_LOCAL_TEMP": str(state_dir() / "ansible" / "tmp"),
        "ANSIBLE_STRATEGY": "nodectl.fleet.fleet",
        # groups that the play makes, such as nodectl_cuda, are not there on a fleet that needs none
        "ANSIBLE_HOST_PATTERN_MISMATCH": "ignore",
        # the name under which the nodes record what this run changes
        "NODECTL_RUN": run,
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
