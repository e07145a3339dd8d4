"""Files that a host's jobs and logins read: machine-id, /etc/hosts, variables of NCCL, CUDA and the loader."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from nodectl.common.counting import counted
from nodectl.common.node_paths import FIND_NCCL_CONF
from nodectl.facts.base import Fact, entry, file_text, listed, script, shell, text_fact
from nodectl.model.recording import Command, Recording

_MACHINE_ID, _HOSTS = "/etc/machine-id", "/etc/hosts"
_NAME = re.compile(r"[A-Z][A-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class Variable:
    """An assignment in a file that logins read; `~` is the login's own home."""

    file: str
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class HostFiles:
    """A host's own files: machine-id, names in /etc/hosts, and variables of NCCL, CUDA and the loader.

    `addresses` are those of each name in /etc/hosts; `machine_id` is None if the host has none. `missing` are files
    that NCCL's files name, and that cannot be read.
    """

    machine_id: str | None
    addresses: Mapping[str, tuple[str, ...]]
    variables: tuple[Variable, ...]
    missing: tuple[str, ...] = ()


def _parse_host_files(text: str) -> HostFiles:
    machine_id = None
    addresses: dict[str, list[str]] = {}
    variables, missing = [], []
    for line in text.splitlines():
        file, _, rest = line.partition("\t")
        name, equals, value = rest.partition("=")
        if file == _MACHINE_ID:
            machine_id = rest.strip() or machine_id
        elif file == _HOSTS:
            address, *names = rest.partition("#")[0].split() or [""]
            for host_name in names:
                addresses.setdefault(host_name, []).append(address)
        elif file == "missing":
            missing.append(rest)
        elif equals and _NAME.fullmatch(name):
            is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
            variables.append(Variable(file, name, value[1:-1] if is_quoted else value))
    addresses_by_name = {name: tuple(of_name) for name, of_name in addresses.items()}
    return HostFiles(machine_id, addresses_by_name, tuple(variables), tuple(missing))


def _host_files_words(files: HostFiles) -> str:
    variables = ", ".join(f"{variable.name}={variable.value} ({variable.file})" for variable in files.variables)
    names = counted(len(files.addresses), "name")
    return f"{names} in /etc/hosts; {variables or 'no variable of NCCL, CUDA or the loader'}"


HOST_FILES_FACT = text_fact(
    "host_files",
    script("host-files", FIND_NCCL_CONF + shell("host-files")),
    _parse_host_files,
    _host_files_words,
    row=845,
)


SYSTEM, HOME = "/etc/nccl.conf", "~/.nccl.conf"
_SYSTEM = Command("nccl-conf", ("cat", SYSTEM))
# no line of NCCL's begins so
_NAMED = "NCCL_CONF_FILE\t"
_USER = script("nccl-conf-user", FIND_NCCL_CONF + shell("nccl-conf-user"), waits=True)


@dataclass(frozen=True, slots=True)
class NcclFiles:
    """NCCL's files: /etc/nccl.conf, and the one that NCCL_CONF_FILE names or the login's ~/.nccl.conf.

    None if there is none. The user's, at `user_path`, goes before the system's.
    """

    system: str | None
    user: str | None
    user_path: str = HOME

    @property
    def texts(self) -> dict[str, str]:
        """The text of each file that is there, the first that NCCL reads first."""
        texts = {self.user_path: self.user, SYSTEM: self.system}
        return {path: text for path, text in texts.items() if text is not None}


def _read_nccl_files(recording: Recording) -> NcclFiles:
    system, user = file_text(recording, _SYSTEM.key), file_text(recording, _USER.key)
    shown = entry(recording, _USER.key).stdout
    if not shown.startswith(_NAMED):
        return NcclFiles(system, user)
    path, _, rest = shown.removeprefix(_NAMED).partition("\n")
    return NcclFiles(system, None if user is None else rest, path)


NCCL_FILES_FACT = Fact(
    "nccl_files", (_SYSTEM, _USER), _read_nccl_files, lambda files: listed(sorted(files.texts), "no file"), row=840
)
