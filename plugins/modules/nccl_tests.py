#!/usr/bin/python
# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: nccl-tests, built against the NCCL that training loads."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nccl_tests
short_description: Build nccl-tests
description:
  - Builds aside and renames when complete; builds again when the NCCL of the environment or the toolkit is another.
  - Uses the NCCL wheel of the environment; where torch has NCCL built in, the system's, and says so.
author: The nodectl authors (!UNKNOWN)
options:
  state: {description: Look or build., type: str, choices: [look, present], default: present}
  version: {description: Tag of the source., type: str, required: true}
  folder: {description: Where builds lie., type: path, required: true}
  venv: {description: The environment whose NCCL is used., type: path, required: true}
  cuda_home: {description: The toolkit., type: path, required: true}
  capability: {description: Compute capability to build for; empty for all known., type: str, default: ""}
  mpi_home: {description: MPI to build with; empty for none., type: str, default: ""}
  source: {description: The source on this host., type: path, required: true}
  jobs: {description: Compilers at once., type: int, default: 4}
"""
EXAMPLES = r"""
- nodectl.fleet.nccl_tests:
    version: v2.13.8
    folder: /opt/nodectl/nccl-tests
    venv: /opt/nodectl/venv
    cuda_home: /usr/local/cuda-11.8
    source: /opt/nodectl/nccl-tests/.partial-source
"""
RETURN = r"""
built: {description: The programs are there for this NCCL and toolkit., type: bool, returned: always}
note: {description: What they were built from., type: dict, returned: always}
"""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils import files, python_env
from ansible_collections.nodectl.fleet.plugins.module_utils.files import difference

PROGRAM = "all_reduce_perf"
NOTE = "nodectl-build.json"


def own_nccl(venv: Path) -> Path | None:
    """Folder of the NCCL wheel in the environment."""
    site = python_env.site_packages(venv)
    folder = site / "nvidia" / "nccl" if site else Path("/nonexistent")
    return folder if (folder / "lib" / "libnccl.so.2").exists() else None


def header_version(include: Path) -> str:
    """Version that nccl.h names; empty where there is none."""
    header = include / "nccl.h"
    text = header.read_text() if header.is_file() else ""
    parts = [re.search(rf"^#define NCCL_{name}\s+(\d+)", text, re.MULTILINE) for name in ("MAJOR", "MINOR", "PATCH")]
    return ".".join(part.group(1) for part in parts if part) if all(parts) else ""


def plan(module: AnsibleModule) -> dict[str, Any]:
    """Return what the programs are, or would be, built from."""
    wanted = module.params
    nvcc = f"{wanted['cuda_home']}/bin/nvcc"
    status, out, _unused = module.run_command([nvcc, "--version"]) if os.access(nvcc, os.X_OK) else (1, "", "")
    release = re.search(r"release ([\d.]+)", out)
    wheel = own_nccl(Path(wanted["venv"]))
    include = wheel / "include" if wheel else Path("/usr/include")
    return {
        "version": wanted["version"],
        "nccl": header_version(include),
        "nccl_home": str(wheel or "/usr"),
        "cuda": release.group(1) if release and status == 0 else "",
        "capability": wanted["capability"],
        "mpi": wanted["mpi_home"],
    }


def is_built(target: Path, note: dict[str, Any]) -> bool:
    """Return whether the programs are there, built from this."""
    try:
        return bool(json.loads((target / NOTE).read_text()) == note) and os.access(target / PROGRAM, os.X_OK)
    except (OSError, ValueError):
        return False


def compile_all(module: AnsibleModule, note: dict[str, Any], aside: Path) -> None:
    """Run the source's own make; fails with its last lines."""
    wanted = module.params
    home = aside / "nccl"
    (home / "lib").mkdir(parents=True)
    own = Path(note["nccl_home"])
    if own != Path("/usr"):
        # the wheel has the library under its version's name only, which the linker does not look for
        (home / "include").symlink_to(own / "include")
        (home / "lib" / "libnccl.so").symlink_to(own / "lib" / "libnccl.so.2")
    command = ["make", "-C", wanted["source"], f"-j{wanted['jobs']}", f"BUILDDIR={aside / 'build'}"]
    command += [f"CUDA_HOME={wanted['cuda_home']}", f"NCCL_HOME={home if own != Path('/usr') else '/usr'}"]
    command += ["MPI=1", f"MPI_HOME={wanted['mpi_home']}"] if wanted["mpi_home"] else ["MPI=0"]
    if wanted["capability"]:
        digits = wanted["capability"].replace(".", "")
        command.append(f"NVCC_GENCODE=-gencode=arch=compute_{digits},code=sm_{digits}")
    # the programs find the same library that training loads, without a search path of the session
    status, out, err = module.run_command(command, environ_update={"LD_RUN_PATH": str(own / "lib"), "LC_ALL": "C"})
    if status != 0:
        text = "\n".join((out + err).strip().splitlines()[-12:])
        module.fail_json(msg=f"nccl-tests could not be built ({' '.join(command)}):\n{text}")


def build(module: AnsibleModule, note: dict[str, Any], target: Path) -> None:
    """Build aside, then put the programs where they belong."""
    wanted = module.params
    if not note["nccl"]:
        module.fail_json(
            msg=f"no NCCL wheel in {wanted['venv']} and no nccl.h in the system: give the stack a system nccl"
        )
    os.umask(0o022)
    aside, done = target.with_name(f".partial-{target.name}"), target.with_name(f".partial-{target.name}-done")
    for left in (aside, done):
        shutil.rmtree(left, ignore_errors=True)
    aside.mkdir(parents=True)
    compile_all(module, note, aside)
    done.mkdir()
    for program in sorted((aside / "build").glob("*_perf")):
        shutil.copy2(program, done / program.name)
    if not (done / PROGRAM).exists():
        module.fail_json(msg=f"make ended well, but made no {PROGRAM}: is {wanted['source']} the source of nccl-tests?")
    (done / NOTE).write_text(json.dumps(note, indent=1, sort_keys=True) + "\n")
    shutil.rmtree(target, ignore_errors=True)
    done.rename(target)
    files.relabel(str(target), below=True)
    for left in (aside, Path(wanted["source"])):
        shutil.rmtree(left, ignore_errors=True)


def main() -> None:
    """Build the programs where they are missing, outdated and a compiler is there."""
    place = {"type": "path", "required": True}
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["look", "present"], "default": "present"},
            "version": {"type": "str", "required": True},
            "folder": place,
            "venv": place,
            "cuda_home": place,
            "capability": {"type": "str", "default": ""},
            "mpi_home": {"type": "str", "default": ""},
            "source": place,
            "jobs": {"type": "int", "default": 4},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    note, target = plan(module), Path(wanted["folder"]) / wanted["version"]
    built = is_built(target, note)
    # without a compiler there is nothing to do; nodectl health says so
    if wanted["state"] == "look" or built or not note["cuda"]:
        module.exit_json(changed=False, built=built, note=note)
    if not module.check_mode:
        build(module, note, target)
    module.exit_json(changed=True, built=True, note=note, diff=difference(str(target), "", f"{json.dumps(note)}\n"))


if __name__ == "__main__":
    main()
