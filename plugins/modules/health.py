#!/usr/bin/python
# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: the node's half of `health`, which runs the collector's script and hands on what it printed."""

from __future__ import annotations

DOCUMENTATION = r"""
module: health
short_description: Judge a host as nodectl health does
description:
  - Collects what the host is in one round trip, and judges it on the controller by nodectl's own checks.
  - Fails where a check failed; what could not be told, warns or is not to be had here is said. Changes nothing.
  - Needs the nodectl package in Ansible's Python on the controller, and nothing on the node.
  - What the host should be comes from its variables (nodectl_hardware, nodectl_stack, nodectl_tuning and others).
author: The nodectl authors (!UNKNOWN)
options:
  roles:
    description: Only checks of what these roles set; without it those of the roles that the run's tags name, or all.
    type: list
    elements: str
  compare:
    description:
      - The name under which the play's hosts registered this module's results.
      - Nothing is collected then. What they brought is compared, as nodectl health compares a fleet.
    type: str
  script: {description: Made by the controller., type: str}
"""
EXAMPLES = r"""
- nodectl.fleet.health:

- nodectl.fleet.health:
    roles: [kernel_settings]

- nodectl.fleet.health:
    compare: judged
  run_once: true
"""
RETURN = r"""
findings:
  description: Each with check, subject, status, action, expected, actual, remedy and evidence.
  type: list
  elements: dict
  returned: always
wrong: {description: Lines on the checks that failed., type: list, elements: str, returned: always}
of: {description: "By host, the lines wrong and told of the comparison.", type: dict, returned: with compare}
told: {description: "Lines on what is unknown, warns or is skipped.", type: list, elements: str, returned: always}
"""

import base64
import signal
import subprocess
import time

from ansible.module_utils.basic import AnsibleModule


def _clock() -> float:
    """Return the seconds since 1970 by the tool that the script asks, too: the two must not disagree."""
    try:
        return float(subprocess.run(["date", "+%s.%N"], stdout=subprocess.PIPE, check=False).stdout)  # pylint: disable=ansible-bad-function
    except (OSError, ValueError):  # a date without %N
        return time.time()


def main() -> None:
    """Run the script; its output is whatever it is, also where it ended badly."""
    module = AnsibleModule(
        argument_spec={
            "roles": {"type": "list", "elements": "str"},
            "compare": {"type": "str"},
            # 60 KB that nobody wants in a log
            "script": {"type": "str", "no_log": True},
        },
        supports_check_mode=True,
    )
    if not module.params["script"]:
        module.fail_json(msg="the controller's half of this module did not run: call it as nodectl.fleet.health")
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD):
        if signal.getsignal(number) is signal.SIG_IGN:
            # a shell that is started deaf to them stays so
            signal.signal(number, signal.SIG_DFL)
    # run_command writes the whole script before it reads: each would wait for the other
    script = module.params["script"].encode()
    done = subprocess.run(["/bin/sh", "-s"], input=script, capture_output=True, check=False)  # pylint: disable=ansible-bad-function
    ended = _clock()
    errors = done.stderr[-1000:].decode(errors="replace")
    module.exit_json(changed=False, output=base64.b64encode(done.stdout).decode(), ended=ended, errors=errors)


if __name__ == "__main__":
    main()
