"""nodectl as processes that need not import their modules: forks of one that has imported them and has run nothing."""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_LARGEST = 1 << 17
# what Python reads when it starts
_OF_PYTHON = ("PYTHON", "LANG", "LC_", "LD_")
# Ansible reads its configuration when it is imported; what runs on nodes is never imported here
_NOT_IMPORTED = (
    "nodectl.transport.inventory.read",
    "nodectl.provision.pipelining",
    "nodectl.payload",
    "nodectl.workloads",
)
# what Ansible's settings depend on, beside the ansible.cfg of the folder that it is started in
_OF_ANSIBLE = ("ANSIBLE_", "HOME", "NO_COLOR", "EDITOR", "PAGER")
_ANSIBLE_HOME = str(_ROOT / ".state" / "tests" / "ansible")
_STARTING = threading.Lock()


def can_run(env: Mapping[str, str]) -> bool:
    """Whether Python would start with this environment as the forking process did, and nobody asks for real starts."""
    return "NODECTL_TESTS_START" not in os.environ and _of_python(env) == usual()


def _of_python(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(_OF_PYTHON)}


def usual() -> dict[str, str]:
    """What the environment says to Python and of the locale, if Python is to start as the forking process did."""
    return {**_of_python(os.environ), "PYTHONPATH": str(_ROOT)}


def run(args: Sequence[str], env: Mapping[str, str], given: str | None, timeout_s: float) -> tuple[int, str, str]:
    """(exit status, standard output, standard error) of nodectl; subprocess.TimeoutExpired as of subprocess.run."""
    with _STARTING:
        parent, process = _parent(_folder_of_ansible(env))
    request = json.dumps({"args": args, "env": dict(env), "cwd": str(Path.cwd())}).encode()
    ours, theirs = socket.socketpair()
    (out, out_of), (err, err_of), stdin = os.pipe(), os.pipe(), _stdin(given)
    # one message, whatever other threads send
    socket.send_fds(parent, [request], [stdin, out_of, err_of, theirs.fileno()])
    theirs.close()
    for descriptor in (stdin, out_of, err_of):
        os.close(descriptor)
    with ours, os.fdopen(out), os.fdopen(err):
        pid, _, ended = ours.recv(32).partition(b"\n")
        if not pid:
            raise RuntimeError(f"the process that forks nodectl has ended: {process.communicate()[1].decode()}")
        try:
            status, *texts = _read_all([ours.fileno(), out, err], time.monotonic() + timeout_s)
        except TimeoutError as error:
            os.kill(int(pid), signal.SIGKILL)
            raise subprocess.TimeoutExpired(["nodectl", *args], timeout_s) from error
        except BaseException:
            os.kill(int(pid), signal.SIGKILL)
            raise
    return int(ended + status), _text(texts[0]), _text(texts[1])


def _folder_of_ansible(env: Mapping[str, str]) -> str:
    """Where Ansible, imported beforehand, has the settings that it would read for this request; "" where nowhere."""
    usual = {name: value for name, value in os.environ.items() if name.startswith(_OF_ANSIBLE[1:])}
    if {name: value for name, value in env.items() if name.startswith(_OF_ANSIBLE)} != {
        **usual,
        "ANSIBLE_HOME": _ANSIBLE_HOME,
    }:
        return ""
    here = Path.cwd()
    return str(here) if here == _ROOT else "" if (here / "ansible.cfg").exists() else "/"


def _stdin(given: str | None) -> int:
    """A descriptor from which the text is read; what this process would read where there is none."""
    if given is None:
        return os.dup(0)
    here, there = os.pipe()
    # a pipe holds 64 KiB before anybody reads
    os.write(there, given.encode())
    os.close(there)
    return here


def _read_all(descriptors: Sequence[int], deadline: float) -> list[bytes]:
    """What comes from each until all end; as of subprocess.run, whoever keeps one open is waited for."""
    read = dict.fromkeys(descriptors, b"")
    with selectors.DefaultSelector() as selector:
        for descriptor in descriptors:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready and time.monotonic() > deadline:
                raise TimeoutError
            for key, _ in ready:
                more = os.read(key.fd, 1 << 16)
                read[key.fd] += more
                if not more:
                    selector.unregister(key.fd)
    return list(read.values())


def _text(output: bytes) -> str:
    return output.decode().replace("\r\n", "\n").replace("\r", "\n")


@cache
def _parent(folder: str) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """A process that forks nodectl, and the socket by which it is asked; it ends with this one.

    With a folder it has read an inventory there, so that nobody has to import Ansible again.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    env = {"PATH": os.environ["PATH"], **usual()}
    if folder:
        env |= {name: value for name, value in os.environ.items() if name.startswith(_OF_ANSIBLE[1:])}
        env["ANSIBLE_HOME"] = _ANSIBLE_HOME
    argv = [sys.executable, str(Path(__file__)), str(theirs.fileno()), folder]
    # its streams are pipes, as those of what is forked: whether one can be sought in is asked once
    pipe = subprocess.PIPE
    process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, pass_fds=[theirs.fileno()], env=env)
    theirs.close()

    def end() -> None:
        ours.close()
        process.communicate()

    atexit.register(end)
    return ours, process


def _import_all() -> None:
    package = importlib.import_module("nodectl")
    for module in pkgutil.walk_packages(package.__path__, "nodectl."):
        if not module.name.startswith(_NOT_IMPORTED) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    if "ansible.constants" in sys.modules or threading.active_count() > 1:
        raise RuntimeError("a module of nodectl imports Ansible, or starts a thread: name it in _NOT_IMPORTED")


def _read_an_inventory(folder: str) -> None:
    """Import Ansible with the settings that it reads in this folder, and the plug-ins that read any inventory."""
    os.chdir(folder)
    from nodectl.transport.inventory.read import Inventory

    Inventory.read(["localhost,"]).hosts()
    if threading.active_count() > 1:
        raise RuntimeError("reading an inventory starts a thread, which no fork has")


def _fork_for_each(control: socket.socket) -> Iterator[tuple[bytes, list[int]]]:
    """Yields the request in the process that is made for it; ends where nobody asks any more."""
    woken, wake = socket.socketpair()
    wake.setblocking(False)
    # Ctrl-C ends the tests, and what they take down then needs nodectl
    ours = {signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN), signal.SIGCHLD: signal.SIG_DFL}
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    running: dict[int, socket.socket] = {}
    selector = selectors.DefaultSelector()
    selector.register(control, selectors.EVENT_READ)
    selector.register(woken, selectors.EVENT_READ)
    while True:
        ready = [key.fileobj for key, _ in selector.select()]
        if woken in ready:
            woken.recv(1 << 12)
            _tell_ends(running)
        if control not in ready:
            continue
        request, descriptors, _, _ = socket.recv_fds(control, _LARGEST, 4)
        if not request:
            return
        *standard, reply = descriptors
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            for number, handler in ours.items():
                signal.signal(number, handler)
            selector.close()
            for one in (control, woken, wake, *running.values()):
                one.close()
            os.close(reply)
            yield request, standard
            return
        running[pid] = socket.socket(fileno=reply)
        _tell(running[pid], pid)
        for descriptor in standard:
            os.close(descriptor)


def _tell_ends(running: dict[int, socket.socket]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with running.pop(pid) as reply:
            _tell(reply, os.waitstatus_to_exitcode(status))


def _tell(reply: socket.socket, number: int) -> None:
    # a test that was interrupted waits for nothing
    with suppress(OSError):
        reply.sendall(b"%d\n" % number)


def _become(request: bytes, standard: Sequence[int]) -> None:
    """Have the arguments, environment, folder and standard streams of the process that is asked for."""
    wanted = json.loads(request)
    for number, descriptor in enumerate(standard):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(wanted["env"])
    time.tzset()
    os.chdir(wanted["cwd"])
    sys.path[0] = wanted["cwd"]
    sys.argv = [str(_ROOT / "nodectl" / "__main__.py"), *wanted["args"]]
    # Ansible's temporary folder is that of all that are forked
    if paths := sys.modules.get("ansible.utils.path"):
        atexit.unregister(paths.cleanup_tmp_file)


def _end_as(run: Callable[[], None]) -> None:
    """Run it and end as Python would, but for taking down a million objects, whose pages would be copied for that."""
    status: str | int | None = 0
    try:
        run()
    except SystemExit as stop:
        status = stop.code
    if status is not None and not isinstance(status, int):
        sys.exit(status)
    threading._shutdown()  # type: ignore[attr-defined]  # its end, too, is Python's own
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status or 0)
    # a reader that has gone, a full disk: Python's own end tells it
    sys.exit(status)


if __name__ == "__main__":
    sys.path[0] = str(_ROOT)
    _import_all()
    if sys.argv[2]:
        _read_an_inventory(sys.argv[2])
    gc.freeze()
    for asked in _fork_for_each(socket.socket(fileno=int(sys.argv[1]))):
        _become(*asked)
        from nodectl.__main__ import main

        _end_as(main)
