#!/usr/bin/python
"""Ansible module: what PyTorch on this host really is, imported, with the libraries that it loads."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils import python_env
from ansible_collections.nodectl.fleet.plugins.module_utils.findings import finding

DOCUMENTATION = r"""
module: torch_look
short_description: Import PyTorch and say what it is and what it loads
description:
  - Imports torch in the environment and asks the loaded libraries themselves; changes nothing.
  - The answer is kept, and given again for as long as no package, loader setting or driver has changed.
author: The nodectl authors
options:
  path: {description: The environment., type: path, required: true}
  requirements: {description: Pins that it must hold., type: list, elements: str, required: true}
  expected: {description: Versions of cuda cudnn and nccl that torch must load., type: dict, default: {}}
  unsure: {description: Names in expected that no source confirms., type: list, elements: str, default: []}
  cache: {description: Where the answer is kept., type: path, required: true}
  again: {description: Import even where nothing changed., type: bool, default: false}
"""
EXAMPLES = r"""
- torch_look:
    path: /opt/nodectl/venv
    requirements: [torch==2.13.0]
    cache: /var/lib/nodectl/torch_look.json
"""
RETURN = r"""
findings: {description: What was compared., type: list, elements: dict, returned: always}
torch: {description: Versions and files that torch loads., type: dict, returned: always}
"""

# runs in the environment's interpreter; the libraries tell their own versions, torch's may be those it was built with
IMPORT = r"""
import ctypes, json, os
import torch

def loaded(name):
    lines = [line.split() for line in open("/proc/self/maps")]
    paths = {words[-1] for words in lines if len(words) > 5 and os.path.basename(words[-1]).startswith(name)}
    return sorted(paths)[0] if paths else ""

def dotted(code, old, new):
    big = new if code >= new else old
    return "%d.%d.%d" % (code // big, code % big // 100, code % 100)

found = {"torch": torch.__version__, "cuda": torch.version.cuda or "", "gpus": torch.cuda.device_count()}
path = loaded("libnccl.so")
if path:
    code = ctypes.c_int()
    ctypes.CDLL(path).ncclGetVersion(ctypes.byref(code))
    found["nccl"] = dotted(code.value, 1000, 10000)
elif hasattr(torch._C, "_nccl_version"):
    version = torch.cuda.nccl.version()
    plain = isinstance(version, int)
    found["nccl"] = dotted(version, 1000, 10000) if plain else ".".join(str(part) for part in version[:3])
found["nccl_path"] = path
code = torch.backends.cudnn.version() if found["cuda"] else None
if code:
    found["cudnn"] = dotted(code, 1000, 10000)
    found["cudnn_path"] = loaded("libcudnn.so")
print(json.dumps(found))
"""
NAMES = {"nccl": "NCCL", "cudnn": "cuDNN", "cuda": "CUDA"}


def agree(expected: str, actual: str) -> bool:
    """The parts that both name are the same: 12.1.105 and 12.1 agree, 12.1 and 12.4 do not."""
    pairs = list(zip(python_env.key(expected), python_env.key(actual)))  # noqa: B905  # nodes have Python 3.8
    return bool(pairs) and all(one == other for one, other in pairs)


def judge_packages(missing: list[str], path: str) -> list[dict[str, str]]:
    """The environment's own files against the pins."""
    remedy = "run nodectl provision --tags pytorch"
    return [finding("torch", "failed", path, expected=pin, actual="not there", remedy=remedy) for pin in missing]


def judge_import(live: dict[str, Any], expected: dict[str, str], unsure: list[str]) -> list[dict[str, str]]:
    """What torch says and loads against the profile; a value that no source confirms only warns."""
    if "error" in live:
        remedy = "import torch by hand in the environment; then nodectl provision --tags pytorch"
        return [finding("torch", "failed", "import", expected="imports", actual=live["error"], remedy=remedy)]
    findings = [finding("torch", "ok", "import", expected="imports", actual=f"torch {live['torch']}")]
    remedy = "see LD_LIBRARY_PATH and ldconfig -p, then nodectl provision --tags pytorch"
    for name, wanted in sorted(expected.items()):
        if not wanted:
            continue
        title, actual, path = NAMES[name], live.get(name) or "", live.get(f"{name}_path")
        text = f"torch loads {actual}{f' from {path}' if path else ''}" if actual else "torch has none"
        status = "ok" if agree(wanted, actual) else "warning" if name in unsure else "failed"
        findings.append(finding("torch", status, title, expected=str(wanted), actual=text, remedy=remedy))
    return findings


def judge_system(live: dict[str, Any], system: dict[str, str], own: list[str]) -> list[dict[str, str]]:
    """The system's copies of the libraries: which of the two torch loads, and what gets in its way."""
    findings = []
    for name in ("nccl", "cudnn"):
        title, path = NAMES[name], live.get(f"{name}_path") or ""
        if path and not inside(path, own):
            text = f"torch loads {live.get(name)} from {path}, not the one of its wheel"
            remedy = "take its folder out of LD_LIBRARY_PATH and /etc/ld.so.conf.d"
            expected = "the wheel's"
            findings.append(finding("torch", "warning", title, expected=expected, actual=text, remedy=remedy))
        elif name in system and live.get(name):
            version = system[name].rpartition(".so.")[2] or "?"
            text = f"torch's {live[name]} and the system's {version} ({system[name]}): torch loads the first"
            findings.append(finding("torch", "ok", title, expected="torch loads the wheel's", actual=text))
    return findings


def judge_search_path(folders: list[str], own: list[str]) -> list[dict[str, str]]:
    """Folders of LD_LIBRARY_PATH that hold a library which torch brings itself."""
    findings, remedy = [], "take it out of /etc/environment, /etc/profile.d and the job's own environment"
    for folder in folders:
        names = {path.name.partition(".so")[0] for path in Path(folder).glob("lib*.so*")} & {"libnccl", "libcudnn"}
        if names and not inside(f"{os.path.realpath(folder)}/", own):
            text, expected = f"{folder} holds {', '.join(sorted(names))}", "no second copy"
            findings.append(
                finding("torch", "warning", "LD_LIBRARY_PATH", expected=expected, actual=text, remedy=remedy)
            )
    return findings


def inside(path: str, folders: list[str]) -> bool:
    """The path lies in one of these folders."""
    return any(path.startswith(f"{folder}/") for folder in folders)


def search_path() -> list[str]:
    """Folders of this session's LD_LIBRARY_PATH and of the one in /etc/environment."""
    text = Path("/etc/environment").read_text() if Path("/etc/environment").is_file() else ""
    lines = re.findall(r"^\s*(?:export\s+)?LD_LIBRARY_PATH=(.*)$", text, re.MULTILINE)
    parts = [os.environ.get("LD_LIBRARY_PATH", ""), *(line.strip().strip("\"'") for line in lines)]
    return sorted({folder for part in parts for folder in part.split(":") if folder.startswith("/")})


def system_libraries(module: AnsibleModule) -> dict[str, str]:
    """{name: real file} of the libraries that the loader would find by itself."""
    _, out, _ = module.run_command(["/sbin/ldconfig", "-p"])
    found = {}
    for name, pattern in (("nccl", r"libnccl\.so\.\d+"), ("cudnn", r"libcudnn\.so\.\d+")):
        match = re.search(rf"^\s*{pattern} .*=> (/\S+)$", out, re.MULTILINE)
        if match:
            found[name] = os.path.realpath(match.group(1))
    return found


def own_folders(path: Path) -> list[str]:
    """Where the environment's packages really lie: itself, and what it links to."""
    site = python_env.site_packages(path) or path
    names = ("nvidia", "torch")
    return sorted({os.path.realpath(place) for place in (path, *(site / name for name in names)) if place.exists()})


def look(module: AnsibleModule, path: Path) -> dict[str, Any]:
    """The import's answer, or `error` with its last line."""
    status, out, err = module.run_command([str(path / "bin" / "python"), "-c", IMPORT])
    if status != 0:
        return {"error": (err.strip().splitlines() or [f"ended with {status}"])[-1]}
    answer: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return answer


def main() -> None:
    """Look, compare, report."""
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "requirements": {"type": "list", "elements": "str", "required": True},
            "expected": {"type": "dict", "default": {}},
            "unsure": {"type": "list", "elements": "str", "default": []},
            "cache": {"type": "path", "required": True},
            "again": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    wanted, path = module.params, Path(module.params["path"])
    missing = python_env.lacking(wanted["requirements"], python_env.distributions(path))
    findings, live = judge_packages(missing, str(path)), {}
    if (path / "bin" / "python").exists():
        signature = "" if wanted["again"] else python_env.environment_stamp(path)
        live = python_env.remembered(
            Path(wanted["cache"]), signature, lambda: look(module, path), keep=bool(signature) and not module.check_mode
        )
        own = own_folders(path)
        findings += judge_import(live, wanted["expected"], wanted["unsure"])
        findings += judge_system(live, system_libraries(module), own) + judge_search_path(search_path(), own)
    module.exit_json(changed=False, findings=findings, torch=live)


if __name__ == "__main__":
    main()
