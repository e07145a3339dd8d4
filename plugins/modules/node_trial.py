#!/usr/bin/python
# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: arm a node for a trial, so that its former values return by themselves, and disarm it."""

from __future__ import annotations

import os
import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils.undo.store import RUN_NAME
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.trials import ROOT, Trial, others, restored


def main() -> None:
    """Restore what another trial left, then arm; or restore the trial's own former values."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["armed", "off"], "required": True},
            "trial": {"type": "str", "required": True},
            "by": {"type": "str", "default": ""},
            "lease_s": {"type": "float", "default": 60.0},
            "folder": {"type": "path", "default": ROOT},
        },
    )
    wanted, run = module.params, module.run_command
    if not RUN_NAME.fullmatch(wanted["trial"]):
        module.fail_json(msg="%r is no name for a trial: letters, digits and ._- are" % wanted["trial"])
    trial = Trial(wanted["trial"], wanted["folder"])
    over = others(trial) if wanted["state"] == "armed" else [trial] if trial.exists() else []
    notes = restored(module, over)
    if wanted["state"] == "off":
        module.exit_json(changed=bool(over), trial={"state": "off" if over else "gone", "notes": []}, findings=[])
    about = {"operator": wanted["by"], "what": "tune trial " + trial.name, "since": time.time()}
    # sudo names the login that renews; without it that is root
    reason = trial.arm(run, about, int(os.environ.get("SUDO_UID", "0")), wanted["lease_s"])
    if reason:
        module.fail_json(msg="no timer can restore this host: " + reason)
    module.exit_json(changed=False, trial={"state": "armed", "notes": notes}, findings=[])


if __name__ == "__main__":
    main()
