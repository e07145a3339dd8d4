# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible strategy: linear, over mitogen's connections where those can be used; knows if they cannot."""

from __future__ import annotations

DOCUMENTATION = r"""
name: fleet
short_description: Linear, over connections that stay open where mitogen can be used
description:
  - Every task as `linear` runs it, with the same results. One connection a host stays open for the whole run, by
    mitogen; without it each task starts a program over SSH.
  - The environment variable NODECTL_STRATEGY chooses. `auto`, the default, takes mitogen where it is installed, made
    for this ansible-core and able to become root the way that the hosts ask for; else it says why, once, and is
    `linear`. `mitogen` fails instead of saying so. `linear` never looks for it.
  - "A play whose `vars` say `fleet_strategy: linear` is `linear`, whatever the environment chooses."
  - Host keys are checked in each of its connections, whatever variables, options and settings say; a host whose
    rendered variables ask for the contrary is unreachable, with the reason. The Python of Ansible needs nodectl for it.
author: The nodectl authors (!UNKNOWN)
extends_documentation_fragment: []
"""

import contextlib
import functools
import gc
import os
from collections.abc import Mapping
from typing import Any

from ansible import constants
from ansible.errors import AnsibleError
from ansible.plugins import loader
from ansible.plugins.strategy.linear import StrategyModule as LinearStrategy
from ansible.release import __version__ as core_version
from ansible.utils.display import Display

CHOICES = ("auto", "mitogen", "linear")
# what both were run together with; mitogen hooks into parts of ansible-core that change between its releases
TESTED_CORE = ("2.19", "2.20", "2.21")
TESTED_MITOGEN = (0, 3, 54)
BECOME_METHODS = ("sudo", "su", "doas")
# a host that goes silent is given up after a minute, by both kinds of connection (ansible.cfg has it for ssh's own)
CONNECTION_DEFAULTS: Mapping[str, Any] = {
    "mitogen_ssh_keepalive_interval": 15,
    "mitogen_ssh_keepalive_count": 4,
    "mitogen_ssh_compression": False,
}

_display = Display()


def chosen(environment: Mapping[str, str]) -> str:
    """Return the operator's choice; AnsibleError for a word that is none."""
    choice = environment.get("NODECTL_STRATEGY") or "auto"
    if choice not in CHOICES:
        raise AnsibleError(f"NODECTL_STRATEGY is {choice!r}: set it to one of {', '.join(CHOICES)}, or unset it")
    return choice


def not_together(core: str, mitogen: tuple[int, ...]) -> str:
    """Return why these two are not used together; "" if they are."""
    if ".".join(core.split(".")[:2]) not in TESTED_CORE:
        return f"ansible-core {core} was not tested with it (tested: {', '.join(TESTED_CORE)})"
    if mitogen < TESTED_MITOGEN:
        wanted = ".".join(map(str, TESTED_MITOGEN))
        return f"mitogen {'.'.join(map(str, mitogen))} is older than {wanted}, the first that was run with it"
    return ""


def cannot_become(methods: Mapping[str, str]) -> str:
    """Return why mitogen cannot become root on these hosts ({host: become method}); "" if it can."""
    others = sorted({method for method in methods.values() if method not in BECOME_METHODS})
    hosts = sorted(host for host, method in methods.items() if method in others)
    return f"it knows no become method {', '.join(others)} ({hosts[0]} has it)" if hosts else ""


def _mitogen() -> tuple[type | None, str]:
    """(mitogen's part of a strategy, '') or (None, why not)."""
    try:
        import ansible_mitogen.affinity
        import mitogen
        from ansible_mitogen.strategy import StrategyMixin
    except ImportError as error:
        return None, f"{error}; `pip install mitogen` beside Ansible"
    reason = not_together(core_version, mitogen.__version__)
    if not reason:
        # it would pin processes: with two or three CPUs all workers to one
        ansible_mitogen.affinity.policy = ansible_mitogen.affinity.Policy()
    return StrategyMixin, reason


def _base() -> tuple[type, str]:
    """Return (what StrategyModule is made of, why mitogen is not in it)."""
    choice = chosen(os.environ)
    if choice == "linear":
        return LinearStrategy, ""
    mixin, reason = _mitogen()
    if choice == "mitogen" and mixin is None:
        raise AnsibleError(f"NODECTL_STRATEGY is mitogen: {reason}")
    if mixin is None or (reason and choice == "auto"):
        return LinearStrategy, reason
    return type("MitogenStrategy", (mixin, LinearStrategy), {}), ""


# one by one: ansible-doc reads no tuples
_DECISION = _base()
_BASE = _DECISION[0]
_WHY_NOT = _DECISION[1]


@functools.cache
def _say(reason: str) -> None:
    """Once a run, not once a play."""
    if reason:
        _display.display(f"mitogen is not used: {reason}. Slower, with the same results")


@functools.cache
def _warm() -> None:
    """Load once what the process of each task would load again after its fork."""
    for plugins in (loader.filter_loader, loader.test_loader):
        for _unused in plugins.all():
            pass
    for name in [
        "assert",
        "copy",
        "debug",
        "fail",
        "include_tasks",
        "normal",
        "set_fact",
        "template",
        "validate_argument_spec",
    ]:
        loader.action_loader.get(f"ansible.legacy.{name}", class_only=True)
    for name in ("vars", "varnames", "file", "template", "nodectl.fleet.run_identity", "nodectl.fleet.fleet_profile"):
        loader.lookup_loader.get(name, class_only=True)
    loader.action_loader.get("nodectl.fleet.health", class_only=True)
    with contextlib.suppress(ImportError):  # the play's first task says where Ansible's Python has no nodectl
        import nodectl.profiles.host_compat  # noqa: F401
        from nodectl.health.verify import verification
        from nodectl.model.host import Host
        from nodectl.profiles.matrix import matrix

        matrix()
        # all checks, and the commands of all facts
        verification(Host("any", "any", variables={}), (), None)
    # no collection in a fork then writes to every page of what is loaded here
    gc.freeze()


def _check_keys(is_mitogen: bool) -> None:
    """Have all connections check host keys."""
    try:
        from nodectl.provision.host_keys import check_keys, check_keys_of_mitogen
    except ImportError as error:
        raise AnsibleError(
            f"the strategy nodectl.fleet.fleet needs nodectl, which the Python of Ansible has not ({error}): install "
            "it there, or run ansible-playbook from the environment that holds nodectl"
        ) from error
    check_keys()
    if is_mitogen:
        check_keys_of_mitogen()


class StrategyModule(_BASE):  # type: ignore[misc,valid-type]  # Ansible ships no types
    """One play; whether mitogen carries it is decided before its first task."""

    def run(self, iterator: Any, play_context: Any, *args: Any) -> Any:
        """Run the play's tasks on its hosts; Ansible's own result."""
        _warm()
        _check_keys(_BASE is not LinearStrategy)
        # of a play that needs no room on a host's disk, which mitogen takes
        is_linear = iterator._play.get_vars().get("fleet_strategy") == "linear"
        reason = "" if is_linear else _WHY_NOT
        if _BASE is not LinearStrategy and not (reason or is_linear):
            default = play_context.become_method or constants.DEFAULT_BECOME_METHOD
            variables = self._variables(iterator._play)
            reason = cannot_become(
                {host: str(host_variables.get("ansible_become_method", default)) for host, host_variables in variables}
            )
        if reason and chosen(os.environ) == "mitogen":
            raise AnsibleError(f"NODECTL_STRATEGY is mitogen: {reason}")
        self._carried = not (reason or is_linear or _BASE is LinearStrategy)
        _say(reason)
        run = super().run if self._carried else lambda *rest: LinearStrategy.run(self, *rest)
        return run(iterator, play_context)

    def _variables(self, play: Any) -> list[tuple[str, dict[str, Any]]]:
        """(name, variables) of each of the play's hosts."""
        hosts = self._inventory.get_hosts(play.hosts)
        return [(host.name, self._variable_manager.get_vars(play=play, host=host)) for host in hosts]

    def _queue_task(self, host: Any, task: Any, task_vars: dict[str, Any], play_context: Any) -> Any:
        if not self._carried:
            return LinearStrategy._queue_task(self, host, task, task_vars, play_context)
        for name, value in CONNECTION_DEFAULTS.items():
            task_vars.setdefault(name, value)
        return super()._queue_task(host=host, task=task, task_vars=task_vars, play_context=play_context)

    def _execute_meta(self, task: Any, *args: Any) -> Any:
        execute = super()._execute_meta if self._carried else lambda *rest: LinearStrategy._execute_meta(self, *rest)
        return execute(task, *args)
