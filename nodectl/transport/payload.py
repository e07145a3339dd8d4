"""Programs of nodectl/payload on hosts: copied once a version, found again by their hash, run under python3."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from time import monotonic

from nodectl.common.node_paths import STATE_FOLDER
from nodectl.common.resources import payload_dir
from nodectl.model.host import Host
from nodectl.model.result import CommandResult, Outcome
from nodectl.transport.base import OnOutput, Transport

_ABSENT, _NO_PYTHON = 93, 94
# what the programs of nodectl/payload need
LEAST_PYTHON = (3, 8)
INSTALL_PYTHON = f"install Python {'.'.join(map(str, LEAST_PYTHON))}+"
# other files in the folder, such as an editor's, are not copied
_PROGRAMS = (".py", ".sh", ".c", ".json")
_MARK = "nodectl-payload: "
_FOLDER = f'd="{STATE_FOLDER}/payload/$1"; '
_RUN = (
    _FOLDER + f'[ -d "$d" ] || {{ echo "{_MARK}no payload" >&2; exit {_ABSENT}; }}; '
    f'command -v "$2" >/dev/null || {{ echo "{_MARK}no $2" >&2; exit {_NO_PYTHON}; }}; '
    'p=$2; shift 2; exec "$p" "$d/run.py" "$@"'
)
# two operators may copy at the same time: the first rename wins, and the second finds the same bytes
_COPY = (
    "umask 077; " + _FOLDER + 'mkdir -p -- "${d%/*}" && t=$(mktemp -d "$d.XXXXXX") || exit; '
    'trap \'rm -rf -- "$t"\' EXIT; mkdir "$t/new" && tar -xf - -C "$t/new" || exit; '
    'mv -T -- "$t/new" "$d" || [ -d "$d" ]'
)


def run_payload(
    transport: Transport,
    host: Host,
    module: str,
    args: Sequence[str],
    *,
    timeout_s: float | None,
    stdin: bytes | None = None,
    python: str | None = None,
    bare: bool = False,
    on_output: OnOutput | None = None,
) -> CommandResult:
    """Run a program of nodectl/payload on `host` (`module` probes.tcp is probes/tcp.py).

    It takes one round trip, three if the payload must be copied first.
    """
    argv = payload_argv(module, args, python, bare=bare)
    filtered = None if on_output is None else _OutputFilter(on_output)
    started = monotonic()
    done = transport.run(host, argv, timeout_s=timeout_s, stdin=stdin, on_output=filtered)
    if done.outcome is Outcome.RAN and lacks_payload(done.exit_status, _stderr(done, filtered)):
        copied = copy_payload(transport, host, timeout_s=timeout_s)
        if not copied.ok:
            return copied
        left_s = None if timeout_s is None else max(1.0, timeout_s - (monotonic() - started))
        done = transport.run(host, argv, timeout_s=left_s, stdin=stdin, on_output=filtered)
    if done.outcome is Outcome.RAN and lacks_python(done.exit_status, _stderr(done, filtered)):
        return replace(done, exit_status=127, error=f"the host has no {python or 'python3'}", remedy=INSTALL_PYTHON)
    return done


def payload_argv(module: str, args: Sequence[str], python: str | None = None, *, bare: bool = False) -> tuple[str, ...]:
    """Return the argv for a program of nodectl/payload; `lacks_payload` interprets its exit status.

    `bare`: without site-packages, whose search can take longer than the program. Python's variables of the login
    (PYTHONPATH, PYTHONINSPECT) are ignored, unless `python` names the login's interpreter.
    """
    _, digest = _packed()
    options = " -E" * (python is None) + " -S" * bare
    run = _RUN.replace('exec "$p"', f'exec "$p"{options}')
    return "sh", "-c", run, "sh", digest, python or "python3", module, *args


def copy_payload(transport: Transport, host: Host, *, timeout_s: float | None) -> CommandResult:
    """Copy the payload to the folder from which `payload_argv` runs it."""
    packed, digest = _packed()
    copied = transport.run(host, ["sh", "-c", _COPY, "sh", digest], timeout_s=timeout_s, stdin=packed)
    if copied.ok:
        return copied
    return replace(copied, error=copied.error or f"cannot copy the payload: {copied.stderr.strip()}")


def lacks_payload(exit_status: int | None, stderr: str) -> bool:
    """Return whether the host lacks the payload, so that it must be copied before the program runs again."""
    return exit_status == _ABSENT and _MARK in stderr


def lacks_python(exit_status: int | None, stderr: str) -> bool:
    """Return whether the host has no Python to run the payload."""
    return exit_status == _NO_PYTHON and _MARK in stderr


class _OutputFilter:
    def __init__(self, on_output: OnOutput) -> None:
        self._on_output = on_output
        self.refusal = ""

    def __call__(self, stream: str, data: bytes) -> None:
        if stream == "stderr" and _MARK.encode() in data:
            self.refusal = data.decode(errors="replace")
        else:
            self._on_output(stream, data)


def _stderr(done: CommandResult, filtered: _OutputFilter | None) -> str:
    return done.stderr if filtered is None else filtered.refusal


@lru_cache(maxsize=1)
def _packed() -> tuple[bytes, str]:
    """Return the payload folder as a tar file, and its name on hosts: a hash of names, modes and bytes."""
    packed, digest = io.BytesIO(), hashlib.sha256()
    folder = payload_dir()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT, dereference=True) as archive:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            if "__pycache__" in path.parts or not (path.is_dir() or (path.is_file() and path.suffix in _PROGRAMS)):
                continue
            member = archive.gettarinfo(path, name)
            member.uid = member.gid = member.mtime = 0
            member.uname = member.gname = ""
            data = path.read_bytes() if member.isfile() else b""
            digest.update(f"{name} {member.mode:o} {member.size}\n".encode() + data)
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue(), digest.hexdigest()[:16]
