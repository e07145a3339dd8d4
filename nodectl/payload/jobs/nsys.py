"""NVIDIA Nsight Systems on a node: where it is, and how it wraps a rank.

What is recorded is the window that the rank opens and closes (in_rank/nodectl_trace.py), by CUDA's profiler API.
"""

from __future__ import annotations

import glob
import os
import shutil
from typing import Dict

_PLACES = ("/usr/local/cuda/bin/nsys", "/opt/nvidia/nsight-systems*/*/bin/nsys")
_OPTIONS = (
    "--trace=cuda,nvtx",
    "--sample=none",
    "--cpuctxsw=none",
    "--capture-range=cudaProfilerApi",
    "--capture-range-end=stop",
    "--force-overwrite=true",
)


def find() -> str:
    """Its path; empty where it is not installed."""
    there = shutil.which("nsys")
    if there:
        return there
    programs = sorted(path for place in _PLACES for path in glob.glob(place) if os.access(path, os.X_OK))
    return programs[-1] if programs else ""


def environment() -> Dict[str, str]:
    """Return what torchrun's launcher is to know, so that it starts each rank under nsys; empty where there is none."""
    program = find()
    if not program:
        return {}
    wrapper = os.path.join(os.path.dirname(os.path.abspath(__file__)), "with_nsys.sh")
    return {"PYTHON_EXEC": wrapper, "NODECTL_NSYS": program, "NODECTL_NSYS_OPTIONS": " ".join(_OPTIONS)}
