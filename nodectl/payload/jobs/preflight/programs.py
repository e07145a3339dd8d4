"""Which programs a job would run with on this node: launcher, venv, torch, NCCL; read from files, never imported."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path
from typing import Any, Dict, List, Optional

from ...common.libraries import installed
from ..process import login_of

_SMI_DEADLINE_S = 20


def look(request: Dict[str, Any]) -> Dict[str, Any]:
    """Return the facts `launcher`, `job_venv`, `containers`, `gpu_count` and `gpu_users`."""
    launcher = Path(request["launcher"])
    venv = Path(request["venv"]) if request["venv"] else None
    count = gpu_count()
    return {
        "launcher": {"sha256": sha256_of(launcher), "executable": os.access(launcher, os.X_OK)},
        "job_venv": {
            "python": python_version(venv) if venv else "",
            "torch": installed(venv, r"torch") if venv else "",
            "nccl": installed(venv, r"nvidia[-_.]nccl[-_.]cu\d+") if venv else "",
            "engine": installed(venv, re.escape(request["engine"])) if venv and request["engine"] else "",
            "nsys": nsys() if request["nsys"] else "",
            "numa_binding": has_numa_binding(venv) if venv and request["numa_binding"] else False,
        },
        "containers": {"images": {engine: image_of(engine, request["image"]) for engine in _engines(request)}},
        "gpu_count": {"count": count},
        "gpu_users": {"processes": gpu_users() if count else []},
    }


def nsys() -> str:
    """Return where Nsight Systems is; empty where it is not."""
    from ..nsys import find  # of use to few jobs

    return find()


def sha256_of(path: Path) -> str:
    """Empty where there is no such file."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def python_version(prefix: Path) -> str:
    """Return the version of the Python of a venv, a conda environment or a system (`/usr`); "" for none."""
    pythons = [prefix / "bin" / name for name in ("python", "python3")]
    found = next((python for python in pythons if os.access(python, os.X_OK)), None)
    if found is None:
        return ""
    settings = prefix / "pyvenv.cfg"
    if settings.is_file():
        text = settings.read_text(encoding="utf-8", errors="replace")
        match = re.search(r"^version(?:_info)?\s*=\s*(\d+(?:\.\d+)*)", text, re.MULTILINE)
        return match.group(1) if match else ""
    for record in prefix.glob("conda-meta/python-[0-9]*.json"):
        return record.name.split("-")[1]
    match = re.fullmatch(r"python(\d+(?:\.\d+)*)", os.path.basename(os.path.realpath(found)))
    return match.group(1) if match else ""


def has_numa_binding(prefix: Path) -> bool:
    """Its torchrun knows --numa-binding."""
    runs = [
        run for lib in ("lib", "lib64") for run in prefix.glob(f"{lib}/python3*/*-packages/torch/distributed/run.py")
    ]
    return any(b"numa-binding" in run.read_bytes() for run in runs)


def _engines(request: Dict[str, Any]) -> List[str]:
    """Return those of the asked engines that are installed here."""
    folders = os.get_exec_path()
    return [each for each in request["engines"] if any(os.access(Path(folder, each), os.X_OK) for folder in folders)]


def image_of(engine: str, image: str) -> str:
    """Return what the engine knows the image by, the same on all hosts that have the same one; "" without it."""
    if engine == "apptainer":
        return str(os.path.getsize(image)) if os.path.isfile(image) else "folder" if os.path.isdir(image) else ""
    import subprocess  # a host of a job without a container need not wait for it

    words = [engine, "image", "inspect", "--format", "{{.Id}}", image]
    try:
        done = subprocess.run(
            words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, timeout=15, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace").strip().split(":")[-1][:64] if done.returncode == 0 else ""


def gpu_count() -> Optional[int]:
    """GPUs that the driver lists; None where it is there and does not answer."""
    devices = len(list(Path("/dev").glob("nvidia[0-9]*")))
    if not any(os.access(Path(folder, "nvidia-smi"), os.X_OK) for folder in os.get_exec_path()):
        return devices
    said = _smi("-L")
    if said is None or said:
        return None if said is None else sum(line.startswith("GPU ") for line in said.splitlines())
    return None if devices else 0


def gpu_users() -> List[str]:
    """Return what computes on the GPUs now, whoever started it; [] where nothing does, or the driver does not say."""
    said = _smi("--query-compute-apps=pid,used_memory,process_name", "--format=csv,noheader,nounits") or ""
    users = []
    for line in said.splitlines():
        pid, memory, name = [*(word.strip() for word in line.split(",", 2)), "", ""][:3]
        if pid.isdigit():
            used = f", {memory} MiB" if memory.isdigit() else ""
            users.append(f"pid {pid} ({os.path.basename(name)[:40]}, {login_of(int(pid)) or 'login unknown'}){used}")
    return users


def _smi(*words: str) -> Optional[str]:
    """Return what nvidia-smi says; empty where it fails, None where it does not answer."""
    import subprocess  # a host without GPUs need not wait for it

    try:
        done = subprocess.run(
            ["nvidia-smi", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SMI_DEADLINE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else ""
