#!/usr/bin/python
# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: modes, clocks, power limit and access control, live and at every boot."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils import boot_service, gpu_hw
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.held import Held
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.live import read_value, systemd_runs, warn_not_settable
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.trials import changing

if TYPE_CHECKING:  # nodes run this from Python 3.8 on, which cannot evaluate these
    from collections.abc import Callable, Mapping

    from ansible_collections.nodectl.fleet.plugins.module_utils.undo.trials import Trial

    Run = Callable[[list[str]], tuple[int, str, str]]
    Gpu = dict[str, str]


def not_settable(gpus: list[Gpu], wanted: Mapping[str, Any], bridges: bool, virtual: bool) -> list[str]:
    """Pure: `SETTING: why` of what was asked for and cannot be set here; `bridges`: lspci and setpci are installed."""
    asked = [name for name in wanted if name != "acs" and wanted[name] is not None]
    reasons = [f"{name}: nvidia-smi is not installed" for name in asked if not gpus]
    for gpu in gpus:
        if asked and gpu["display"] == "Enabled":
            reasons.append(f"{', '.join(asked)} of {gpu['uuid']}: a display uses it")
            continue
        missing = [name for name in asked if name not in gpu_hw.targets(gpu, wanted)]
        reasons += [f"{name} of {gpu['uuid']}: its driver does not offer it" for name in missing]
    if wanted["acs"] == "off" and (virtual or not bridges):
        why = "a virtual machine's host relies on access control" if virtual else "lspci or setpci is not installed"
        reasons.append(f"acs: {why}")
    return reasons


def held_entries(gpus: list[Gpu], wanted: Mapping[str, Any], before: Callable[[str, str], str]) -> dict[str, Any]:
    """{key of `Held`: before and after} of what is wanted; `before(key, now)` is what stood there."""
    entries = {}
    for gpu in gpus:
        for field, after in gpu_hw.targets(gpu, wanted).items():
            key = f"gpu {gpu['uuid']} {field}"
            entries[key] = {"before": before(key, gpu_hw.settings(gpu)[field]), "after": after}
    return entries


def given_back(gpus: list[Gpu], unwanted: Mapping[str, str]) -> list[list[str]]:
    """Pure: commands for what was set before and is no longer wanted; access control comes back with a boot."""
    todo = []
    for gpu in gpus:
        now = gpu_hw.settings(gpu)
        back = {field: unwanted.get(f"gpu {gpu['uuid']} {field}", value) for field, value in now.items()}
        if gpu["display"] != "Enabled":
            todo += gpu_hw.setting_commands(gpu["uuid"], back, now)
    return todo


def former(run: Run, gpus: list[Gpu], todo: list[list[str]]) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return ({file: text}, {name: command}) that undo these commands of nvidia-smi and setpci."""
    commands, fields = {}, {option: field for field, option in gpu_hw.OPTIONS.items()}
    now = {gpu["uuid"]: gpu_hw.settings(gpu) for gpu in gpus}
    for smi, option in ((argv[:3], argv[3]) for argv in todo):
        if smi[0] == "setpci":
            register = option.partition("=")[0]
            commands[f"acs {smi[2]}"] = [*smi, f"{register}={run([*smi, register])[1].strip()}"]
            continue
        uuid, field = smi[2], fields[option.replace("-r", "-l")]
        value = now[uuid][field]
        for argv in gpu_hw.setting_commands(uuid, {field: value}, {field: ""} if value else {field: "locked"}):
            if field == "clocks":  # before Volta a GPU has application clocks alone
                old = shlex.join([*smi, *gpu_hw.application_clocks(run, smi, value)])
                refused = "grep -qi 'not supported'"
                argv = ["sh", "-c", f"{shlex.join(argv)} | {refused} && {old}; true"]
            commands[f"{uuid} {field}"] = argv
    locks = str(gpu_hw.locks_file())
    return {locks: read_value(locks) or "{}"} if commands else {}, commands


def set_all(module: AnsibleModule, gpus: list[Gpu], wanted: dict[str, Any], trial: Trial | None) -> None:
    """Files and live values; the module ends here. A trial writes no file."""
    params, run = module.params, gpu_hw.run_program
    warn_not_settable(
        module, not_settable(gpus, wanted, bool(shutil.which("lspci") and shutil.which("setpci")), gpu_hw.virtual())
    )
    held = Held(trial.record(params["record"]) if trial else params["record"])
    entries = held_entries(gpus, wanted, held.before)
    now = {f"gpu {gpu['uuid']} {field}": value for gpu in gpus for field, value in gpu_hw.settings(gpu).items()}
    given_up = given_back(gpus, held.unwanted(entries, now.get))
    # if neither a GPU answers nor access control is to go, there is nothing that a boot could set
    useful = any(value is not None for value in wanted.values()) and (
        bool(gpus) or (wanted["acs"] == "off" and not gpu_hw.virtual())
    )
    boots = useful and systemd_runs()
    files = {
        params["program"]: (boot_service.program_of(gpu_hw) if boots else "", 0o755),
        params["settings"]: (json.dumps(wanted, indent=2, sort_keys=True) + "\n" if useful else "", 0o644),
        params["unit"]: (params["unit_text"] if boots else "", 0o644),
    }

    todo = given_up + (gpu_hw.commands(run, wanted) if useful else [])
    if trial:
        files = {}
        # what another side of the trial has switched off
        todo += [argv for name, argv in trial.commands().items() if name.startswith("acs ") and wanted["acs"] is None]
        trial.keep(*former(run, gpus, todo))
    diff = boot_service.set_all(module, files, held, entries, todo, lambda argv: gpu_hw.execute(run, argv))
    if todo and not module.check_mode and (reasons := gpu_hw.not_held(run, wanted)):
        module.fail_json(msg="; ".join(reasons))
    for gpu in (gpu_hw.gpus(run) or []) if gpus else []:
        for name in ("ecc", "mig"):
            if wanted[name] is not None and gpu[name] != gpu[f"{name}_now"]:
                module.warn(f"{gpu['uuid']}: {name} is {gpu[name]} only after a reset of the GPU, or a reboot")
    module.exit_json(changed=bool(diff), diff=diff)


def main() -> None:
    """Refuse what a card cannot have; then set it, where that is asked for."""
    options = {
        "persistence": {"type": "bool"},
        "clocks": {"type": "str"},
        "power_limit_w": {"type": "int"},
        "ecc": {"type": "bool"},
        "mig": {"type": "bool"},
        "compute_mode": {"type": "str", "choices": ["Default", "Exclusive_Process", "Prohibited"]},
        "acs": {"type": "str", "choices": ["off"]},
    }
    module = AnsibleModule(
        argument_spec={
            **boot_service.ARGUMENTS,
            "wanted": {"type": "dict", "options": options, "required": True},
            "record": {"type": "path", "default": "/var/lib/nodectl/gpu_settings.json"},
        },
        supports_check_mode=True,
    )
    wanted, run = {name: module.params["wanted"][name] for name in options}, gpu_hw.run_program
    if module.params["trial"]:  # these wait for a reset of the GPU
        wanted = {**wanted, "ecc": None, "mig": None}
    asked = any(value is not None for name, value in wanted.items() if name != "acs")
    try:
        gpus = gpu_hw.gpus(run) or [] if asked or os.path.exists(module.params["record"]) else []
        limit, clocks = wanted["power_limit_w"], wanted["clocks"]
        reasons = [gpu_hw.power_refusal(gpu, limit) for gpu in gpus if limit]
        reasons += [gpu_hw.clock_refusal(run, gpu, clocks) for gpu in gpus if clocks]
        if any(reasons):
            module.fail_json(msg="; ".join(filter(None, reasons)))
        if module.params["state"] == "set":
            with changing(module) as trial:
                set_all(module, gpus, wanted, trial)
    except gpu_hw.UnreadableError as error:
        no_driver = isinstance(error, gpu_hw.NoAnswerError) and not module.params["trial"]
        if module.params["state"] == "set" and not no_driver:
            module.fail_json(msg=str(error))
        # a run may repair the driver, or leave one that waits for a reboot; nothing is set or forgotten before
        module.warn(f"{os.uname().nodename}: settings of GPUs stay as they are: {error}")
    module.exit_json(changed=False)


if __name__ == "__main__":
    main()
