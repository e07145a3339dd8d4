"""A host's ranks of a program that runs from memory: environment, modules, the start of each rank.

On standard input: the program's modules as JSON (name: source), so that nothing is written on the host.
"""

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Optional

from ..common import ranks as host_ranks
from ..common.frames import first_line, say
from ..jobs.folder import login_home


class Sources(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports modules from their texts."""

    def __init__(self, texts: Dict[str, str]) -> None:
        self.texts = texts

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Optional[importlib.machinery.ModuleSpec]:
        """Return the specification of a module that was given as text; None of another one."""
        return importlib.util.spec_from_loader(fullname, self) if fullname in self.texts else None

    def get_source(self, fullname: str) -> str:
        """Return the module's text."""
        return self.texts[fullname]


def nccl_settings() -> Dict[str, str]:
    """Return the values in force, as NCCL reads them: environment, user's file, system's file; the first counts."""
    values = {name: value for name, value in os.environ.items() if name.startswith("NCCL_")}
    home = login_home() + "/.nccl.conf"
    for path in (os.environ.get("NCCL_CONF_FILE", home), "/etc/nccl.conf"):
        try:
            lines = Path(path).read_text(errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            name, equals, value = line.partition("=")
            if equals and not line.startswith("#"):
                values.setdefault(name, value)
    return values


def set_environment(options: argparse.Namespace) -> None:
    """Set what nodectl-launch sets before it starts ranks."""
    values = nccl_settings()
    if options.interface:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", options.interface)
        # '=' asks for this very name; what was asked for goes before what the files say
        if options.interface_asked or "NCCL_SOCKET_IFNAME" not in values:
            os.environ["NCCL_SOCKET_IFNAME"] = "=" + options.interface
    if options.interface_asked:
        os.environ["GLOO_SOCKET_IFNAME"] = options.interface
    threads = max(1, len(os.sched_getaffinity(0)) // options.nproc)
    if Path("/etc/nodectl-lab").exists():  # its hosts share their cores
        threads = 1
    # as the workload itself does: threads that wait by spinning take the cores from other ranks
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options by which ranks meet the others, and the network that they take."""
    host_ranks.add_arguments(parser)
    parser.add_argument("--interface-asked", action="store_true")


def main(options: argparse.Namespace, run_rank: Callable[[argparse.Namespace, Dict[str, str]], None]) -> int:
    """All ranks of this host, or one of them; the process ends at once."""
    status = _run(options, run_rank)
    # a thread of torch that wakes up while Python winds down aborts the process now and then
    os._exit(status)


def _run(options: argparse.Namespace, run_rank: Callable[[argparse.Namespace, Dict[str, str]], None]) -> int:
    given = sys.stdin.buffer.read()
    if options.local_rank < 0:
        say(event="started", pid=os.getpid())
        if options.nproc > 1:
            status, ended_by = host_ranks.spawn(options.nproc, given)
            if ended_by:
                say(event="error", text=ended_by.text, remedy=ended_by.remedy, peer=ended_by.peer)
            return status
        options.local_rank = 0
    try:
        run_rank(options, json.loads(given))
    except SystemExit as error:
        if isinstance(error.code, int):  # it has said why on standard error
            return error.code
        say(event="error", text=first_line(error), refused=True)
        return 1
    except Exception as error:
        text = first_line(error)
        say(event="error", text=text, peer=host_ranks.of_peer(text))
        return 1
    return 0
