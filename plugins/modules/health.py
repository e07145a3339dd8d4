#!/usr/bin/python
# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: the node's half of `health`, which runs the collector's script and hands on what it printed."""

from __future__ import annotations

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
