"""What a Mac's interpreter is like, in one that Linux runs: `sitecustomize.py` of those that tests/mac starts.

It lacks the names of NO_NAMES, has those that only a Mac has, and lets code of the operator's machine see no /proc.
"""

import importlib
import json
import os
import socket
import sys
import sysconfig
import time

import psutil  # noqa: F401 - of Linux, as are the names that it looks for

vars(socket)["TCP_KEEPALIVE"] = socket.TCP_KEEPIDLE
vars(time)["CLOCK_UPTIME_RAW"] = time.CLOCK_MONOTONIC
for _name in json.loads(os.environ["MAC_LACKS"]):
    _module, _, _attribute = _name.partition(".")
    delattr(importlib.import_module(_module), _attribute)

# these choose by the platform what they import, and Linux has no other half of them
import asyncio  # noqa: E402, F401
import multiprocessing  # noqa: E402, F401
import platform  # noqa: E402, F401
import selectors  # noqa: E402
import urllib.request  # noqa: E402
import uuid  # noqa: E402

_ROOT = os.environ["MAC_ROOT"]
_LIBRARY = sysconfig.get_path("stdlib")
_KERNEL = ("/proc", "/sys", "/dev/shm")
# they run on nodes, and on machines that have a lab
_OF_LINUX = tuple(f"{_ROOT}/nodectl/{name}/" for name in ("payload", "lab", "workloads"))


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if event not in ("open", "os.listdir", "os.scandir") or not str(arguments[0]).startswith(_KERNEL):
        return
    frame = sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith((_LIBRARY, "<")):
        frame = frame.f_back
    caller = frame.f_code.co_filename
    if caller.startswith(f"{_ROOT}/nodectl/") and not caller.startswith(_OF_LINUX):
        raise RuntimeError(f"{caller} line {frame.f_lineno} looks into {arguments[0]!r}: no Mac has that")


for _name in ("getproxies", "proxy_bypass"):
    vars(urllib.request)[_name] = getattr(urllib.request, f"{_name}_environment")
# chosen while it still looked like Linux
vars(selectors)["DefaultSelector"] = selectors.PollSelector
uuid.getnode()
sys.platform = "darwin"
sys.addaudithook(_refuse)
