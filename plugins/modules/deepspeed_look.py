#!/usr/bin/python
"""Ansible module: what DeepSpeed on this host really is, imported, and whether its files hold together."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils import python_env
from ansible_collections.nodectl.fleet.plugins.module_utils.findings import compared, finding

DOCUMENTATION = r"""
module: deepspeed_look
short_description: Import DeepSpeed and read its configuration as it does
description:
  - Imports deepspeed in the environment; the answer is kept until a package, the loader or the driver changes.
  - Compares the batch sizes of the configuration with the ranks of the hostfile; changes nothing.
author: The nodectl authors
options:
  path: {description: The environment., type: path, required: true}
  version: {description: Version that must be there., type: str, required: true}
  config: {description: The configuration., type: path, required: true}
  hostfile: {description: The hostfile., type: path, required: true}
  cache: {description: Where the answer of the import is kept., type: path, required: true}
"""
EXAMPLES = r"""
- deepspeed_look:
    path: /opt/nodectl/venv
    version: 0.12.6
    config: /opt/nodectl/etc/ds_config.json
    hostfile: /opt/nodectl/etc/hostfile
    cache: /var/lib/nodectl/deepspeed_look.json
"""
RETURN = r"""
findings: {description: What was compared., type: list, elements: dict, returned: always}
"""

IMPORT = 'import deepspeed, json; print("NODECTL", json.dumps({"version": deepspeed.__version__}))'
LINE = re.compile(r"^(\S+)\s+slots=(\d+)$")
AGAIN = "run nodectl provision --tags deepspeed"


def ranks(text: str) -> int:
    """Ranks of a hostfile; ValueError with the line that DeepSpeed would not read."""
    hosts: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        found = LINE.match(line.strip())
        if not found:
            raise ValueError(f"line {number} is no 'HOST slots=N': {line}")
        if found.group(1) in hosts:
            raise ValueError(f"line {number} names {found.group(1)} again")
        hosts[found.group(1)] = int(found.group(2))
    if not hosts:
        raise ValueError("no host in it")
    return sum(hosts.values())


def judge_import(live: dict[str, Any], version: str) -> dict[str, str]:
    """It imports, and is the version that the stack says."""
    if "error" in live:
        remedy = "import deepspeed by hand in the environment; then " + AGAIN
        return finding("deepspeed", "failed", "import", expected="imports", actual=live["error"], remedy=remedy)
    return compared("deepspeed", "version", version, live["version"].partition("+")[0], AGAIN)


def judge_files(config: str, hostfile: str) -> list[dict[str, str]]:
    """DeepSpeed's own rule, train = micro x accumulation x ranks, on the text of its two files."""
    try:
        world = ranks(hostfile)
    except ValueError as error:
        return [finding("deepspeed", "failed", "hostfile", expected="HOST slots=N", actual=str(error), remedy=AGAIN)]
    try:
        settings = json.loads(config)
        names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
        train, micro, steps = (int(settings[name]) for name in names)
    except (ValueError, KeyError, TypeError) as error:
        actual = f"cannot be read: {error!r}"
        return [finding("deepspeed", "failed", "configuration", expected="JSON", actual=actual, remedy=AGAIN)]
    expected = f"train_batch_size {micro * steps * world} = {micro} micro x {steps} accumulation x {world} ranks"
    status = "ok" if train == micro * steps * world else "failed"
    actual = f"train_batch_size {train}"
    return [finding("deepspeed", status, "batch", expected=expected, actual=actual, remedy=AGAIN)]


def look(module: AnsibleModule, path: Path) -> dict[str, Any]:
    """The import's answer among what DeepSpeed prints, or `error` with its last line."""
    status, out, err = module.run_command([str(path / "bin" / "python"), "-c", IMPORT], cwd="/")
    found = re.search(r"^NODECTL (.+)$", out, re.MULTILINE)
    if status != 0 or not found:
        return {"error": (err.strip().splitlines() or [f"ended with {status}"])[-1]}
    answer: dict[str, Any] = json.loads(found.group(1))
    return answer


def text_of(path: str) -> str:
    """The file's text; empty where there is none."""
    return Path(path).read_text() if Path(path).is_file() else ""


def main() -> None:
    """Look, compare, report."""
    place = {"type": "path", "required": True}
    module = AnsibleModule(
        argument_spec={
            "path": place,
            "version": {"type": "str", "required": True},
            "config": place,
            "hostfile": place,
            "cache": place,
        },
        supports_check_mode=True,
    )
    wanted, path = module.params, Path(module.params["path"])
    live: dict[str, Any] = {"error": f"no environment at {path}"}
    if (path / "bin" / "python").exists():
        signature = python_env.environment_stamp(path)
        keep = not module.check_mode
        live = python_env.remembered(Path(wanted["cache"]), signature, lambda: look(module, path), keep=keep)
    findings = [judge_import(live, wanted["version"])]
    findings += judge_files(text_of(wanted["config"]), text_of(wanted["hostfile"]))
    module.exit_json(changed=False, findings=findings)


if __name__ == "__main__":
    main()
