"""What a rank of the training measurement needs before it can train: modules, environment, a process a GPU."""

import argparse
import ctypes
import importlib.abc
import importlib.machinery
import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, Optional

# of the transformer: 4 of attention, 8 of the feed-forward part
MATRICES, STATES, VALUE_BYTES = 12, 4, 4
MEMORY_PART = 0.5


class Sources(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports modules from their texts."""

    def __init__(self, texts: Dict[str, str]) -> None:
        self.texts = texts

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Optional[importlib.machinery.ModuleSpec]:
        return importlib.util.spec_from_loader(fullname, self) if fullname in self.texts else None

    def get_source(self, fullname: str) -> str:
        return self.texts[fullname]


def nccl_settings() -> Dict[str, str]:
    """The values in force, read as NCCL reads them: environment, the user's file, the system's; the first counts."""
    values = {name: value for name, value in os.environ.items() if name.startswith("NCCL_")}
    home = os.environ.get("HOME", "/nonexistent") + "/.nccl.conf"
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


def set_environment(options: argparse.Namespace) -> Dict[str, str]:
    """As nodectl-launch does before it starts ranks; the NCCL values in force."""
    values = nccl_settings()
    if options.interface:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", options.interface)
        # '=' asks for this very name; what was asked for goes before what the files say
        if options.interface_asked or "NCCL_SOCKET_IFNAME" not in values:
            os.environ["NCCL_SOCKET_IFNAME"] = values["NCCL_SOCKET_IFNAME"] = "=" + options.interface
    if options.interface_asked:
        os.environ["GLOO_SOCKET_IFNAME"] = options.interface
    threads = max(1, len(os.sched_getaffinity(0)) // options.nproc)
    if Path("/etc/nodectl-lab").exists():  # its hosts share their cores
        threads = 1
    # as the workload itself does: threads that wait by spinning take the cores from other ranks
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    return values


def check_memory(options: argparse.Namespace, free_bytes: Optional[int]) -> None:
    """MemoryError where a rank would take more than its part of what is free."""
    # a layer's matrices; each value with its gradient and the optimizer's two
    values = MATRICES * options.layers * options.d_model**2
    wanted = STATES * VALUE_BYTES * values
    if free_bytes is not None and wanted > MEMORY_PART * free_bytes:
        raise MemoryError(
            "its training takes %.1f GiB, and %.1f GiB are free; it gets half of that: take a smaller --gradient"
            % (wanted / 2**30, free_bytes / 2**30)
        )


def loaded_nccl() -> Optional[str]:
    """The version of the library that is loaded; torch's own word may be that of its build."""
    with Path("/proc/self/maps").open() as maps:
        paths = sorted({line.split()[-1] for line in maps if "libnccl.so" in line})
    for path in paths:
        number = ctypes.c_int()
        if ctypes.CDLL(path).ncclGetVersion(ctypes.byref(number)) == 0:
            scale = 10000 if number.value >= 10000 else 1000
            return "%d.%d.%d" % (number.value // scale, number.value % scale // 100, number.value % 100)
    return None


def spawn_ranks(options: argparse.Namespace, given: bytes) -> int:
    """A process a GPU; the first that fails ends the others."""
    children = []
    for index in range(options.nproc):
        argv = [sys.executable, *sys.argv, "--local-rank", str(index)]
        child = subprocess.Popen(argv, stdin=subprocess.PIPE)
        children.append(child)
        if child.stdin:
            child.stdin.write(given)
            child.stdin.close()

    def stop(*_: Any) -> None:
        for child in children:
            child.kill()

    signal.signal(signal.SIGTERM, stop)
    while True:
        states = [child.poll() for child in children]
        failed = [state for state in states if state]
        if failed or None not in states:
            stop()
            return abs(failed[0]) if failed else 0
        time.sleep(0.05)
