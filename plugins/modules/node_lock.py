#!/usr/bin/python
# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: hold a node for one run, so that nobody else changes or measures it meanwhile."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils import host_lock

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Callable


def main() -> None:
    """Take it or let go of it; never `changed`."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["held", "free"], "required": True},
            "run": {"type": "str", "required": True},
            "by": {"type": "str", "default": ""},
            "what": {"type": "str", "default": "ansible-playbook"},
            "force": {"type": "bool", "default": False},
            "folder": {"type": "path", "default": ""},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    path = host_lock.lock_path(wanted["folder"])
    if path is None:
        module.exit_json(changed=False, held=False)
    if module.check_mode:
        judged(module, lambda: host_lock.refuse_other(path))
        module.exit_json(changed=False, held=False)
    if wanted["state"] == "free":
        host_lock.let_go(wanted["run"])
        module.exit_json(changed=False, held=False)
    for job, login in host_lock.running_jobs().items():
        advice = "wait for it, leave the host out with --limit, or end it: nodectl jobs stop %s" % job
        module.fail_json(msg="this host runs nodectl's job %s of %s: %s" % (job, login, advice), held=False)
    mine = {"token": wanted["run"], "operator": wanted["by"], "what": wanted["what"]}
    holder = judged(module, lambda: host_lock.hold(path, mine))
    if not holder:
        module.exit_json(changed=False, held=True)
    text = "this host is held by %s" % told(holder)
    if wanted["force"]:
        module.exit_json(changed=False, held=False, holder=holder, warnings=[text])
    advice = "wait until it is free, leave it out with --limit, or go on with -e nodectl_force=true"
    if holder.get("unknown"):
        advice = "as root there, `fuser -v %s` names it" % holder["unknown"]
    module.fail_json(msg="%s: %s" % (text, advice), held=False, holder=holder)


def judged(module: AnsibleModule, taking: Callable[[], dict[str, Any] | None]) -> dict[str, Any] | None:
    """Return what `taking` returns; the module fails where there can be no lock."""
    try:
        return taking()
    except host_lock.NoLockError as error:
        module.fail_json(msg="this host cannot be locked: %s; %s" % (error, error.remedy))
    except OSError as error:
        module.fail_json(msg="this host cannot be locked: %s" % error)
    return None


def told(holder: dict[str, Any]) -> str:
    """Return who holds the host, as the holder says."""
    if holder.get("unknown"):
        return "a process that is no nodectl's"
    since = holder.get("since")
    at = time.strftime(" since %Y-%m-%d %H:%M:%S UTC", time.gmtime(since)) if isinstance(since, (int, float)) else ""
    who, what = (host_lock.one_line(holder.get(name) or "") for name in ("operator", "what"))
    return "%s for '%s'%s" % (who or "another nodectl", what, at)


if __name__ == "__main__":
    main()
