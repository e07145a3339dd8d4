"""All that nodectl needs on a node, as a folder of wheels that the booted distribution's own Python can install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nodectl.provision.self_wheel import build
from nodectl.provision.wheels import HOST_PYTHON

_DOWNLOAD_S = 600


def tool_wheelhouse(folder: Path) -> Path:
    """Wheels of what nodectl depends on, from wherever pip's settings point; where there are none, skips and says why.

    nodectl's own wheel is not among them: the role brings it.
    """
    pip = pip_of_the_hosts_python()
    own, wheels = build(folder), folder / "wheels"
    argv = [*pip, "wheel", "--quiet", "--disable-pip-version-check", "--wheel-dir", str(wheels), str(own)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_DOWNLOAD_S, check=False)
    if done.returncode != 0:
        reasons = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or [done.stderr.strip()]
        pytest.skip(f"pip gives no wheels of what nodectl needs: {reasons[-1]}")
    (wheels / own.name).unlink()
    wheels.chmod(0o755)
    return wheels


def pip_of_the_hosts_python() -> list[str]:
    """A pip of the version of Python that booted systems have: theirs is this machine's distribution's."""
    wanted = version_of(HOST_PYTHON)
    for python in (sys.executable, HOST_PYTHON):
        has_pip = subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0
        if has_pip and version_of(python) == wanted:
            return [python, "-m", "pip"]
    pytest.skip(f"no pip of Python {wanted}, for which booted systems need wheels: install python3-pip")


def version_of(python: str) -> str:
    """As `major.minor`."""
    script = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([python, "-c", script], capture_output=True, text=True, check=True).stdout.strip()
