#!/usr/bin/python
"""Ansible module: a virtual environment with pinned packages, made by uv, judged by its own files."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: python_venv
short_description: A virtual environment that holds pinned packages
description:
  - Reads what the environment holds from its dist-info folders and imports nothing; runs uv only where something lacks.
  - Where a complete environment lies beside the wheelhouse folder, the new one links to its packages instead.
author: The nodectl authors
options:
  path: {description: The environment., type: path, required: true}
  python: {description: The interpreter., type: path, required: true}
  python_min: {description: Oldest version allowed., type: str, required: true}
  python_max: {description: Newest version allowed., type: str, required: true}
  requirements: {description: Pins as name==version., type: list, elements: str, required: true}
  uv: {description: The uv program., type: path, required: true}
  index: {description: Package index., type: str, required: true}
  wheelhouse: {description: Folder or address instead of the index., type: str, default: ""}
  state: {description: Only look, or make it so., type: str, choices: [look, present], default: present}
"""
EXAMPLES = r"""
- python_venv:
    path: /opt/nodectl/venv
    python: /usr/bin/python3
    python_min: "3.10"
    python_max: "3.13"
    requirements: [torch==2.13.0]
    uv: /usr/local/bin/uv
    index: https://download.pytorch.org/whl/cpu
"""
RETURN = r"""
complete: {description: The environment holds every requirement., type: bool, returned: always}
missing: {description: Requirements that it lacks., type: list, returned: always}
found: {description: Version of each distribution in it., type: dict, returned: always}
nccl: {description: Version of the NCCL that it brings; empty where none., type: str, returned: always}
interpreter: {description: Version of the host's interpreter., type: str, returned: always}
machine: {description: As uname -m says., type: str, returned: always}
uv_present: {description: The uv program is there., type: bool, returned: always}
"""

VERSION = "import sys; print('%d.%d.%d' % sys.version_info[:3])"


def canonical(name: str) -> str:
    """A distribution's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def key(version: str) -> tuple[int, ...]:
    """`3.11.2` as (3, 11, 2)."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def site_packages(path: Path) -> Path | None:
    """The site-packages folder of an environment."""
    return next(iter(sorted(path.glob("lib/python3*/site-packages"))), None)


def distributions(path: Path) -> dict[str, str]:
    """{canonical name: version} from the dist-info folders of an environment; one that was cut off does not count."""
    found = {}
    for folder in (site_packages(path) or Path("/nonexistent")).glob("*.dist-info"):
        name, _, version = folder.name[: -len(".dist-info")].rpartition("-")
        if (folder / "RECORD").is_file():
            found[canonical(name)] = version
    return found


def lacking(requirements: list[str], found: dict[str, str]) -> list[str]:
    """Requirements that are not met; a pin without a local part (`+cpu`) is met by any."""
    missing = []
    for requirement in requirements:
        name, _, wanted = requirement.partition("==")
        version = found.get(canonical(name), "")
        if wanted not in (version, version.partition("+")[0]):
            missing.append(requirement)
    return missing


def venv_python(path: Path) -> str:
    """Version of the interpreter that the environment was made with; empty where it does not run."""
    try:
        fields = dict(re.findall(r"^(\w+)\s*=\s*(.+)$", (path / "pyvenv.cfg").read_text(), re.MULTILINE))
    except OSError:
        return ""
    version: str = fields.get("version_info", fields.get("version", ""))
    return version.strip() if os.access(path / "bin" / "python", os.X_OK) else ""


def look(module: AnsibleModule) -> dict[str, Any]:
    """Everything that is known without changing anything; fails where the interpreter cannot serve."""
    wanted, path = module.params, Path(module.params["path"])
    python, low, high = wanted["python"], wanted["python_min"], wanted["python_max"]
    status, out, err = module.run_command([python, "-c", VERSION])
    if status != 0:
        module.fail_json(msg=f"{python} does not run: {err.strip()}; set pytorch_python")
    interpreter = out.strip()
    if not key(low) <= key(interpreter)[:2] <= key(high):
        reason = f"{python} is Python {interpreter}, and the stack's wheels exist for {low} to {high}"
        module.fail_json(msg=f"{reason}; set pytorch_python to one of those")
    made_with = venv_python(path)
    usable = key(made_with)[:2] == key(interpreter)[:2]
    found = distributions(path) if made_with else {}
    missing = lacking(wanted["requirements"], found) if usable else list(wanted["requirements"])
    nccl = [version for name, version in found.items() if re.match(r"nvidia-nccl-cu\d+$", name)]
    return {
        "complete": not missing,
        "missing": missing,
        "found": found,
        "nccl": nccl[0] if nccl else "",
        "interpreter": interpreter,
        "machine": platform.machine(),
        "uv_present": os.access(wanted["uv"], os.X_OK),
        "usable": usable,
    }


def run_uv(module: AnsibleModule, arguments: list[str], doing: str) -> None:
    """Run uv; fails with its last lines."""
    own = {"UV_NO_CONFIG": "1", "UV_PYTHON_DOWNLOADS": "never", "UV_NO_PROGRESS": "1", "UV_NO_CACHE": "1"}
    status, out, err = module.run_command([module.params["uv"], *arguments], environ_update=own)
    if status != 0:
        text = "\n".join((out + err).strip().splitlines()[-12:])
        module.fail_json(msg=f"uv could not {doing}:\n{text}")


def ready_beside(module: AnsibleModule, interpreter: str) -> Path | None:
    """A complete environment beside the wheelhouse, for this interpreter."""
    house = module.params["wheelhouse"]
    ready = Path(house.rstrip("/")).parent / "venv"
    if not house.startswith("/") or key(venv_python(ready))[:2] != key(interpreter)[:2]:
        return None
    return None if lacking(module.params["requirements"], distributions(ready)) else ready


def link(ready: Path, path: Path) -> None:
    """Give the environment the packages of another by a link each, and programs that run its own interpreter."""
    source, target = site_packages(ready), site_packages(path)
    if source is None or target is None:
        raise FileNotFoundError(f"no site-packages in {ready} or {path}")
    for entry in sorted(source.iterdir()):
        if entry.name != "__pycache__" and not (target / entry.name).exists():
            (target / entry.name).symlink_to(entry)
    for program in sorted((ready / "bin").iterdir()):
        own = path / "bin" / program.name
        if own.exists() or program.is_symlink():
            continue
        text = program.read_bytes()
        if re.match(rb"#!\S+/bin/python", text):
            own.touch(mode=0o755)
            own.write_bytes(re.sub(rb"\A#!\S+", b"#!" + bytes(path / "bin" / "python"), text))


def make(module: AnsibleModule, state: dict[str, Any]) -> None:
    """Make the environment anew where its interpreter is gone or another, and bring what lacks."""
    wanted, path = module.params, Path(module.params["path"])
    if not state["uv_present"]:
        module.fail_json(msg=f"no uv at {wanted['uv']} on this host; set nodectl_uv to where it is")
    house = wanted["wheelhouse"]
    if house.startswith("/") and not list(Path(house).glob("*.whl")):
        module.fail_json(msg=f"no wheel in {house} on this host; fill it, or unset nodectl_wheelhouse")
    ready = ready_beside(module, state["interpreter"])
    if ready or not state["usable"]:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        run_uv(module, ["venv", "--clear", "--python", wanted["python"], str(path)], f"make {path}")
    if ready:
        link(ready, path)
        return
    source = ["--no-index", "--find-links", house] if house else ["--index-url", wanted["index"]]
    names = wanted["requirements"]
    command = ["pip", "install", "--python", str(path / "bin" / "python"), *source, *names]
    run_uv(module, command, f"install {' '.join(names)} from {house or wanted['index']}")


def pins(held: dict[str, str]) -> str:
    """One name==version a line."""
    return "".join(f"{name}=={held[name]}\n" for name in sorted(held))


def main() -> None:
    """Look; where asked for, make it so, and look again."""
    text, place = {"type": "str", "required": True}, {"type": "path", "required": True}
    module = AnsibleModule(
        argument_spec={
            "path": place,
            "python": place,
            "python_min": text,
            "python_max": text,
            "requirements": {"type": "list", "elements": "str", "required": True},
            "uv": place,
            "index": text,
            "wheelhouse": {"type": "str", "default": ""},
            "state": {"type": "str", "choices": ["look", "present"], "default": "present"},
        },
        supports_check_mode=True,
    )
    before = look(module)
    if module.params["state"] == "look" or before["complete"]:
        module.exit_json(changed=False, **before)
    after, held = before, "".join(f"{requirement}\n" for requirement in before["missing"])
    if not module.check_mode:
        make(module, before)
        after = look(module)
        held = pins(after["found"])
        if after["missing"]:
            module.fail_json(msg=f"uv ended well, but these are missing: {' '.join(after['missing'])}", **after)
    path = module.params["path"]
    diff = {"before_header": path, "after_header": path, "before": pins(before["found"]), "after": held}
    module.exit_json(changed=True, diff=diff, **after)


if __name__ == "__main__":
    main()
