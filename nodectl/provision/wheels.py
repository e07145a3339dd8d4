"""How the lab's hosts get PyTorch without a download each: one folder of wheels, uv, and an environment to link to."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nodectl.common.counting import counted
from nodectl.common.paths import cache_dir
from nodectl.errors import ProvisionError
from nodectl.profiles.addresses import addresses
from nodectl.profiles.resolve import load_profile
from nodectl.profiles.schema import Stack

LAB_STACK = "cpu"
HOST_PYTHON = "/usr/bin/python3"
_OF_TRAINING = "torch, torch.distributed.run, torch._dynamo"
_PROBE_S = 5
_DOWNLOAD_S = 3600

Note = Callable[[str], None]


def ensure_lab_share(note: Note, others: Iterable[Sequence[str]] = ()) -> Path:
    """Fill the share, and return it.

    Downloads what is missing, says what and how much, and keeps it for the next run.

    `others`: requirements of hosts whose stack is not the lab's own; their wheels come too, if there are any.
    """
    stack = load_profile("stack", LAB_STACK)
    if not isinstance(stack, Stack):
        raise TypeError(stack)
    share = cache_dir() / "lab-share"
    share.mkdir(exist_ok=True)
    with _alone(share):
        wanted = {"requirements": list(stack.requirements), "python": _host_python_version(), "format": 2}
        stamp = share / "ready.json"
        if not _is(stamp, wanted) or not (share / "uv").is_file():
            stamp.unlink(missing_ok=True)
            # from the stack's index, else where pip's settings say
            partial = _downloaded(share / "wheels", stack, stack.requirements, [], str(wanted["python"]), note)
            shutil.rmtree(share / "wheels", ignore_errors=True)
            partial.rename(share / "wheels")
            staged = share / "uv.partial"
            shutil.copyfile(_uv(), staged)
            staged.chmod(0o755)
            staged.rename(share / "uv")
            _make_environment(share, stack, note)
            stamp.write_text(json.dumps(wanted))
        for requirements in others:
            _add_wheels(share / "wheels", stack, requirements, str(wanted["python"]), note)
    return share


@contextmanager
def _alone(share: Path) -> Iterator[None]:
    with (share / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is(stamp: Path, wanted: dict[str, Any]) -> bool:
    try:
        return bool(json.loads(stamp.read_text()) == wanted)
    except (OSError, ValueError):
        return False


def _host_python_version() -> str:
    script = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([HOST_PYTHON, "-c", script], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ProvisionError(f"{HOST_PYTHON} does not run: {done.stderr.strip()}", "install the package python3")
    return done.stdout.strip()


def _add_wheels(wheels: Path, stack: Stack, requirements: Sequence[str], python: str, note: Note) -> None:
    """Put what these requirements need beside what is there; if there is none, the hosts say which is missing."""
    stamp = wheels / "others.json"  # in the folder that it tells of, so that it goes with it
    had = json.loads(stamp.read_text()) if stamp.is_file() else []
    if list(requirements) in had or set(requirements) <= set(stack.requirements):
        return
    try:
        partial = _downloaded(wheels, stack, requirements, ["--find-links", str(wheels)], python, note)
    except ProvisionError as error:
        note(f"{error.message}; {error.remedy}")
        return
    for wheel in partial.iterdir():
        wheel.replace(wheels / wheel.name)
    partial.rmdir()
    stamp.write_text(json.dumps([*had, list(requirements)]))


def _downloaded(
    wheels: Path, stack: Stack, requirements: Sequence[str], beside: Sequence[str], python: str, note: Note
) -> Path:
    """Return a folder beside `wheels` with wheels of these requirements and all that they need.

    ProvisionError without.
    """
    pip = [*_pip(), "--disable-pip-version-check"]
    # --target is needed beside --python-version, and nothing is put there
    tags = ["--only-binary", ":all:", "--python-version", python, *beside]
    index = addresses().index(stack.index or "cpu")
    # beside pip's own: the stack's index may lack a package, and its build of torch (+cpu) goes before that of PyPI
    for source in ([["--index-url", index], ["--extra-index-url", index]] if _answers(index) else []) + [[]]:
        report = _dry_run(pip, [*tags, *source], requirements)
        if report is not None:
            break
    else:
        raise ProvisionError(
            f"neither {index} nor pip's own settings give wheels of {' '.join(requirements)} for Python {python}",
            f"put the wheels into {wheels}, or set pip's index-url or find-links",
        )
    packages = {item["metadata"]["name"]: item["download_info"]["url"] for item in report["install"]}
    fetched = {name: url for name, url in packages.items() if not url.startswith("file:")}
    _refuse_cuda(fetched, source)
    note(f"downloading {counted(len(fetched), 'package')} to {wheels}, kept for the next run")
    partial = wheels.with_name("wheels.partial")
    shutil.rmtree(partial, ignore_errors=True)
    _run([*pip, "download", "--quiet", "--dest", str(partial), *tags, *source, *requirements])
    return partial


def _pip() -> list[str]:
    for python in (sys.executable, HOST_PYTHON):
        if subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0:
            return [python, "-m", "pip"]
    return [_uv(), "tool", "run", "pip"]


def _uv() -> str:
    from uv import find_uv_bin

    return find_uv_bin()


def _answers(index: str) -> bool:
    try:
        with urllib.request.urlopen(f"{index}/torch/", timeout=_PROBE_S) as answer:  # noqa: S310  # a profile's https
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError, ValueError):
        return False


def _dry_run(pip: Sequence[str], options: Sequence[str], requirements: Sequence[str]) -> dict[str, Any] | None:
    command = [*pip, "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-"]
    done = subprocess.run(
        [*command, "--target", os.devnull + ".none", *options, *requirements],
        capture_output=True,
        text=True,
        timeout=_DOWNLOAD_S,
        check=False,
    )
    if done.returncode != 0:
        return None
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _refuse_cuda(packages: dict[str, str], source: Sequence[str]) -> None:
    cuda = sorted(name for name in packages if name.startswith(("nvidia-", "triton", "cuda-")))
    if cuda and "--index-url" not in source and not os.environ.get("NODECTL_ALLOW_CUDA_WHEELS"):
        raise ProvisionError(
            f"pip's settings give a CUDA build of torch: {len(cuda)} packages of several GB ({', '.join(cuda[:3])} …)",
            "make PyTorch's CPU index reachable, or put a CPU wheel where pip finds it (find-links), "
            "or set NODECTL_ALLOW_CUDA_WHEELS=1",
        )


def _make_environment(share: Path, stack: Stack, note: Note) -> None:
    """Unpack the wheels once; a host's environment then needs a link a package, not 20,000 files."""
    note("unpacking them once for all hosts")
    staged = share / "venv.partial"
    shutil.rmtree(staged, ignore_errors=True)
    shutil.rmtree(share / "venv", ignore_errors=True)
    uv = [str(share / "uv"), "--no-config", "--no-cache", "--no-python-downloads", "--quiet"]
    _run([*uv, "venv", "--clear", "--python", HOST_PYTHON, str(staged)])
    source = ["--no-index", "--find-links", str(share / "wheels")]
    _run([*uv, "pip", "install", "--python", str(staged / "bin" / "python"), *source, *stack.requirements])
    _keep_bytecode(staged / "bin" / "python")
    for path in (staged / "bin").iterdir():  # the first line of a script names its interpreter
        if path.is_file() and not path.is_symlink() and (text := path.read_bytes()).startswith(b"#!"):
            path.write_bytes(text.replace(bytes(staged / "bin"), bytes(share / "venv" / "bin"), 1))
    staged.rename(share / "venv")


def _keep_bytecode(python: Path) -> None:
    """Hosts see the share read-only. What a training imports, a third of all, takes a tenth of the time of all."""
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    # a torch that cannot be imported is told by whoever needs it
    subprocess.run([python, "-c", f"import {_OF_TRAINING}"], capture_output=True, env=env, check=False)
    # not by an import: PyPI's build is for CUDA, and its import fails beside torch for CPUs unless it is helped
    vision = sorted(python.parent.parent.glob("lib/python*/site-packages/torchvision"))
    subprocess.run([python, "-m", "compileall", "-q", *vision], capture_output=True, env=env, check=False)


def _run(argv: Sequence[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_DOWNLOAD_S, check=False)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "ERROR" in line] or done.stderr.splitlines()
        raise ProvisionError(f"{Path(argv[0]).name} ended with {done.returncode}: {' '.join(lines[-3:])}", "try again")


if __name__ == "__main__":
    from nodectl.errors import NodectlError

    try:
        ensure_lab_share(
            lambda text: print(f"nodectl: {text}", file=sys.stderr),  # noqa: T201  # a program of its own
            json.loads(sys.argv[1]) if len(sys.argv) > 1 else (),
        )
    except NodectlError as error:
        sys.exit(f"nodectl: {error.message}\n  try: {error.remedy}")
