"""The NICs that a plan gives to NCCL on this host: nothing where the operator, or the host's own files, say them."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Mapping

from .folder import login_home

_NAME = "NCCL_IB_HCA"
_MOST_BYTES = 1 << 20


def environment(host: Mapping[str, Any], env: Mapping[str, str]) -> Dict[str, str]:
    """What is added to the launcher's environment; each rank's own is set in the rank (in_rank/sitecustomize.py)."""
    if _NAME in env:
        return {}
    if host.get("gpu_hcas"):
        return {"NODECTL_GPU_HCAS": json.dumps(host["gpu_hcas"])}
    if not host.get("ib_hca") or _is_in_files(env):
        return {}
    return {_NAME: host["ib_hca"]}


def _is_in_files(env: Mapping[str, str]) -> bool:
    """Return it as NCCL reads them: a variable of the environment would go before the host's own file."""
    return any(_names_it(path) for path in _files(env))


def _files(env: Mapping[str, str]) -> List[str]:
    own = env.get("NCCL_CONF_FILE")
    home = env.get("HOME") or login_home()
    return [own if own is not None else os.path.join(home, ".nccl.conf"), "/etc/nccl.conf"]


def _names_it(path: str) -> bool:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return any(line.startswith(f"{_NAME}=") for line in file.read(_MOST_BYTES).split("\n"))
    except OSError:
        return False
