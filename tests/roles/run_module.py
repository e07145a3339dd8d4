"""Runs an Ansible module as Ansible does: its own process, its arguments as it reads them, its answer in JSON.

Each process is a fork of one that has imported what every module imports: that costs a tenth of a start.
"""

import io
import json
import multiprocessing
import os
import runpy
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils import basic

from nodectl.common.resources import share_dir

WITHIN_S = 120
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["__main__", __name__])


def run_module(
    path: str | Path,
    arguments: Mapping[str, object],
    *,
    folder: Path,
    check: bool = False,
    env: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The answer of the module at `path` below the share; `folder` is for its temporary files."""
    internal = {"_ansible_check_mode": check, "_ansible_diff": True, "_ansible_tmpdir": str(folder)}
    given = json.dumps({"ANSIBLE_MODULE_ARGS": {**arguments, **internal}})
    with tempfile.TemporaryDirectory(prefix="module-") as place:
        request = (str(share_dir() / path), given, {**os.environ, **(env or {})}, str(Path.cwd()), place)
        process = _FORKS.Process(target=_become, args=request)
        process.start()
        process.join(WITHIN_S)
        process.kill()
        out, errors = (Path(place, name).read_text(errors="replace") for name in ("out", "err"))
    answer: dict[str, Any] = json.loads(out or json.dumps({"msg": errors, "failed": True}))
    return answer


def _become(path: str, arguments: str, env: dict[str, str], cwd: str, place: str) -> None:
    """This process is the module from here on: its output, its environment, its name."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for descriptor, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{place}/{name}", os.O_WRONLY | os.O_CREAT, 0o600), descriptor)
    os.closerange(3, 1024)
    modes = ((0, "rb"), (1, "wb"), (2, "wb"))
    sys.stdin, sys.stdout, sys.stderr = (io.TextIOWrapper(open(each, mode, closefd=False)) for each, mode in modes)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv = ["-c", path]
    basic._ANSIBLE_ARGS, basic._ANSIBLE_PROFILE = arguments.encode(), "legacy"
    try:
        runpy.run_path(path, run_name="__main__")
    except SystemExit:
        pass
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
