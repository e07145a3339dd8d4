"""Which programs a job would run with on this node: launcher, venv, torch, NCCL; read from files, never imported."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any, Dict, Optional

from ...common.libraries import installed

_SMI_DEADLINE_S = 20


def look(request: Dict[str, Any]) -> Dict[str, Any]:
    """The facts `launcher`, `job_venv` and `gpu_count`."""
    launcher = Path(request["launcher"])
    venv = Path(request["venv"]) if request["venv"] else None
    return {
        "launcher": {"sha256": sha256_of(launcher), "executable": os.access(launcher, os.X_OK)},
        "job_venv": {
            "python": venv_python(venv) if venv else "",
            "torch": installed(venv, r"torch") if venv else "",
            "nccl": installed(venv, r"nvidia[-_.]nccl[-_.]cu\d+") if venv else "",
        },
        "gpu_count": {"count": gpu_count()},
    }


def sha256_of(path: Path) -> str:
    """Empty where there is no such file."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def venv_python(venv: Path) -> str:
    """The version of its Python; empty where there is no venv with a Python."""
    settings = venv / "pyvenv.cfg"
    if not os.access(venv / "bin" / "python", os.X_OK) or not settings.is_file():
        return ""
    text = settings.read_text(encoding="utf-8", errors="replace")
    match = re.search(r"^version(?:_info)?\s*=\s*(\d+(?:\.\d+)*)", text, re.MULTILINE)
    return match.group(1) if match else ""


def gpu_count() -> Optional[int]:
    """GPUs that the driver lists; None where it is there and does not answer."""
    devices = len(list(Path("/dev").glob("nvidia[0-9]*")))
    if not any(os.access(Path(folder, "nvidia-smi"), os.X_OK) for folder in os.get_exec_path()):
        return devices
    import subprocess  # a host without GPUs need not wait for it

    try:
        done = subprocess.run(
            ["nvidia-smi", "-L"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SMI_DEADLINE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None if devices else 0
    return sum(line.startswith(b"GPU ") for line in done.stdout.splitlines())
