"""Versions of torch and of the libraries that come with it, read without importing any of them."""

import re
from pathlib import Path
from typing import Optional

_CUDA = re.compile(r"^cuda\b[^=\n]*=\s*(?:['\"](\d[\d.]*)['\"]|None)", re.MULTILINE)


def installed(venv: Path, name: str) -> str:
    """Return the version of a distribution by the name of its metadata folder; empty if it is not there."""
    wanted = re.compile(r"%s-(\d[^-]*)\.dist-info" % name, re.IGNORECASE)
    for folder in (
        *venv.glob("lib*/python3*/site-packages/*.dist-info"),
        *venv.glob("lib/python3*/dist-packages/*.dist-info"),
    ):
        match = wanted.fullmatch(folder.name)
        if match:
            return match.group(1)
    return ""


def cuda_of_torch(venv: Path) -> str:
    """Return the CUDA that its torch is built for, "none" for a build without; empty if it does not say."""
    for folder in ("lib*/python3*/site-packages", "lib/python3*/dist-packages"):
        for file in venv.glob(folder + "/torch/version.py"):
            said = _CUDA.search(file.read_text(encoding="utf-8", errors="replace"))
            return (said.group(1) or "none") if said else ""
    return ""


def loaded_nccl() -> Optional[str]:
    """Return the version of the NCCL that this process has loaded; torch's own may be that of its build."""
    import ctypes  # a host's look at its files need not wait for it

    with Path("/proc/self/maps").open() as maps:
        paths = sorted({line.split()[-1] for line in maps if "libnccl.so" in line})
    for path in paths:
        number = ctypes.c_int()
        if ctypes.CDLL(path).ncclGetVersion(ctypes.byref(number)) == 0:
            scale = 10000 if number.value >= 10000 else 1000
            return "%d.%d.%d" % (number.value // scale, number.value % scale // 100, number.value % 100)
    return None
