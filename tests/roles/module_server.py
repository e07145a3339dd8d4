"""Runs modules as processes that start with what every module imports: a fork of this one costs a tenth of a start.

Its standard input is held open by the tests' process, and it ends with it. The first line of its output is the
address of its socket, in hexadecimal; a request is a JSON document on a connection of its own, and so is the answer.
"""

import io
import json
import os
import runpy
import select
import signal
import socket
import sys
import time
from contextlib import suppress
from typing import Any

from ansible.module_utils import basic

WITHIN_S = 120


def serve() -> None:
    """Each connection is answered by a process of its own."""
    # the children that answer are reaped as soon as they end
    signal.signal(signal.SIGCHLD, lambda *_: _reap())
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("")
        listener.listen()
        sys.stdout.write(listener.getsockname().hex() + "\n")
        sys.stdout.flush()
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            connection, _ = listener.accept()
            with connection:
                if os.fork() == 0:
                    listener.close()
                    _answer(connection)


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _answer(connection: socket.socket) -> None:
    """Run the module, tell what it printed, and end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request = json.loads(connection.makefile("rb").read())
    errors = os.memfd_create("stderr")
    reading, writing = os.pipe()
    module = os.fork()
    if module == 0:
        connection.close()
        os.close(reading)
        _become(request, writing, errors)
    os.close(writing)
    out = _read_to_end(reading, module)
    os.waitpid(module, 0)
    os.lseek(errors, 0, os.SEEK_SET)
    said = os.read(errors, 1_000_000).decode(errors="replace")
    connection.sendall(json.dumps({"stdout": out.decode(errors="replace"), "stderr": said}).encode())
    os._exit(0)


def _read_to_end(pipe: int, module: int) -> bytes:
    """What the module and all that it started print; a module that takes too long is killed."""
    ends = time.monotonic() + WITHIN_S
    parts: list[bytes] = []
    while select.select([pipe], [], [], max(0.0, ends - time.monotonic()))[0]:
        part = os.read(pipe, 65536)
        if not part:
            return b"".join(parts)
        parts.append(part)
    os.kill(module, signal.SIGKILL)
    return json.dumps({"failed": True, "msg": f"not ended within {WITHIN_S} s: {parts!r}"}).encode()


def _become(request: dict[str, Any], out: int, errors: int) -> None:
    """This process is the module from here on: its output, its environment, its name."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(errors, 2)
    os.closerange(3, 1024)
    sys.stdin, sys.stdout, sys.stderr = (io.TextIOWrapper(open(fd, mode, closefd=False)) for fd, mode in _STREAMS)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.argv = ["-c", request["path"]]
    basic._ANSIBLE_ARGS, basic._ANSIBLE_PROFILE = request["arguments"].encode(), "legacy"
    status = 1
    try:
        runpy.run_path(request["path"], run_name="__main__")
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


_STREAMS = ((0, "rb"), (1, "wb"), (2, "wb"))

if __name__ == "__main__":
    serve()
