"""What a job gets when it imports PyTorch and DeepSpeed; it takes seconds, so only verify asks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, failed_unless, judges, provision, warning_unless
from nodectl.checks.stack.versions import agree, numbers
from nodectl.facts.environment import Imported
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 31

_NAMES = {"cuda": "CUDA", "cudnn": "cuDNN", "nccl": "NCCL"}

TORCH = Check(
    "torch",
    fires="it does not import, lacks a pin, or loads another CUDA, cuDNN or NCCL than the stack's",
    expected="imports",
    remedy="see LD_LIBRARY_PATH and ldconfig -p, then `nodectl provision --tags pytorch`",
    roles=("pytorch",),
    # the interpreter alone is there before any environment is
    roles_of={"python": ("python", "pytorch")},
)
DEEPSPEED = Check(
    "deepspeed",
    fires="it does not import, or is another version",
    remedy=provision("deepspeed"),
    roles=("deepspeed",),
)


@judges(TORCH, reads=("torch_import",))
def torch(host: Subject) -> Iterator[Finding]:
    """Require the stack's pins, that torch imports, and that the libraries which it loads are the stack's own."""
    package = host.facts.get("torch_import")
    if host.wanted is None or not host.has_torch:
        return
    yield from host.lacks(TORCH, package, "import", remedy=provision("pytorch"))
    if not isinstance(package, Imported):
        return
    python = host.wanted.stack.python
    if package.python and python is not None:
        low, high = python.min, python.max
        status = failed_unless(numbers(low)[:2] <= numbers(package.python)[:2] <= numbers(high)[:2])
        expected, remedy = f"{low} to {high}", provision("python")
        yield host.finding(TORCH, status, "python", expected=expected, actual=package.python, remedy=remedy)
    for pin in host.wanted.stack.requirements:
        name, _, wanted = pin.partition("==")
        version, remedy = package.distributions.get(re.sub(r"[-_.]+", "-", name).lower(), ""), provision("pytorch")
        if wanted not in (version, version.partition("+")[0]):
            yield host.finding(TORCH, Status.FAILED, name, expected=pin, actual="not there", remedy=remedy)
    if package.error:
        remedy = "import torch by hand in the environment; then `nodectl provision --tags pytorch`"
        yield host.finding(TORCH, Status.FAILED, "import", actual=package.error, remedy=remedy)
        return
    yield host.finding(TORCH, Status.OK, "import", actual=f"torch {package.version}")
    yield from _versions(host, package)
    yield from _ways(host, package)


def _versions(host: Subject, package: Imported) -> Iterator[Finding]:
    stack = host.wanted.stack if host.wanted else None
    for name, title in _NAMES.items():
        wanted = getattr(stack, name)
        if wanted:
            actual, path = package.libraries.get(name), package.files.get(name)
            shown = f"torch loads {actual}{f' from {path}' if path else ''}" if actual else "torch has none"
            # what no source confirms only warns
            unless = warning_unless if stack is not None and name in stack.unverified else failed_unless
            yield host.finding(TORCH, unless(agree(wanted, actual)), title, expected=wanted, actual=shown)


def _ways(host: Subject, package: Imported) -> Iterator[Finding]:
    for name in ("nccl", "cudnn"):
        title, path = f"{_NAMES[name]} of two", package.files.get(name, "")
        if path and not any(path.startswith(f"{folder}/") for folder in package.own):
            actual = f"torch loads {package.libraries.get(name)} from {path}, not the one of its wheel"
            remedy = "take its folder out of LD_LIBRARY_PATH and /etc/ld.so.conf.d"
            yield host.finding(TORCH, Status.WARNING, title, expected="the wheel's", actual=actual, remedy=remedy)
    for folder, names in package.shadowing.items():
        remedy = "take it out of /etc/environment, /etc/profile.d and the job's own environment"
        title, actual = "LD_LIBRARY_PATH", f"{folder} holds {', '.join(names)}"
        yield host.finding(TORCH, Status.WARNING, title, expected="no second copy", actual=actual, remedy=remedy)


@judges(DEEPSPEED, reads=("deepspeed",))
def deepspeed(host: Subject) -> Iterator[Finding]:
    """Require DeepSpeed where the stack has it."""
    deepspeed = host.facts.get("deepspeed")
    wanted = host.wanted.stack.deepspeed if host.wanted else None
    if not wanted:
        return
    yield from host.lacks(DEEPSPEED, deepspeed, "import", expected="imports")
    if not isinstance(deepspeed, Imported):
        return
    version = (deepspeed.version or "").partition("+")[0]
    if deepspeed.error:
        remedy = f"import deepspeed by hand in the environment; then {DEEPSPEED.remedy}"
        yield host.finding(
            DEEPSPEED, Status.FAILED, "import", expected="imports", actual=deepspeed.error, remedy=remedy
        )
    else:
        yield host.finding(DEEPSPEED, failed_unless(version == wanted), "version", expected=wanted, actual=version)
