# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible action: the controller's half of `health`, which says what to collect and judges what came back."""

from __future__ import annotations

import base64
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase


class _Rendered(Mapping[str, Any]):
    """The host's variables, each rendered when it is asked for, as plain data."""

    def __init__(self, variables: Mapping[str, Any], templar: Any) -> None:
        self._variables, self._templar = variables, templar

    def __getitem__(self, name: str) -> Any:
        from nodectl.common.bounded_json import plain_value

        return plain_value(self._templar.template(self._variables[name]))

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)


def _without_nodectl(error: ImportError) -> AnsibleActionFail:
    return AnsibleActionFail(
        f"this task judges by the nodectl package, which Ansible's Python ({sys.executable}) "
        f"has not ({error}): install it there, or run ansible-playbook from the environment that holds nodectl"
    )


class ActionModule(ActionBase):  # type: ignore[misc]  # Ansible ships no types
    """Runs the module of the same name on the node."""

    _requires_connection = True
    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return `findings`, the lines `told`, and `failed` with those of the checks that failed."""
        if self._task.args.get("compare"):
            return self._compared(task_vars or {})
        try:
            from nodectl.errors import NodectlError
            from nodectl.health.verify import chosen_roles, lines, member_document, verification
            from nodectl.model.host import Host
            from nodectl.model.status import Status
            from nodectl.profiles.load import profile_dirs
            from nodectl.report.findings import finding_document
        except ImportError as error:
            raise _without_nodectl(error) from None
        variables = task_vars or {}
        result = super().run(tmp, variables)
        name = str(variables.get("inventory_hostname", ""))
        roles = self._task.args.get("roles")
        if roles is None:
            roles = chosen_roles(variables.get("ansible_run_tags", ()), variables.get("ansible_skip_tags", ()))
        try:
            rendered = _Rendered(variables, self._templar)
            address = str(rendered["ansible_host"]) if variables.get("ansible_host") else name
            host = Host(name, address, variables=rendered)
            asking = verification(host, profile_dirs(variables.get("ansible_inventory_sources") or ()), roles)
            started = time.time()
            done = self._execute_module("nodectl.fleet.health", {"script": asking.script}, task_vars=variables)
            received = time.time()
            if done.get("failed") or "output" not in done:
                return {**result, **done}
            output = base64.b64decode(done["output"])
            health = asking.judged(output, asked=started, ended=float(done["ended"]), heard=received)
            findings = asking.chosen(health)
        except NodectlError as error:
            raise AnsibleActionFail(". ".join(part for part in (error.message, error.remedy) if part)) from None
        wrong = asking.wrong(findings)
        return {
            **result,
            "changed": False,
            "findings": [finding_document(finding) for finding in findings],
            "told": lines(findings, {Status.UNKNOWN, Status.WARNING}),
            "wrong": wrong,
            **({"member": member_document(health.member)} if roles is None and health.member else {}),
            **({"failed": True, "msg": "\n".join(wrong)} if wrong else {}),
        }

    def _compared(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """`of`: for each host that was judged, the lines `told` and `wrong` of the comparison; `findings` of all."""
        try:
            from nodectl.common.bounded_json import plain_value
            from nodectl.errors import NodectlError
            from nodectl.health.policy import VARIABLE
            from nodectl.health.verify import compared, lines, member_of
            from nodectl.model.status import Status
            from nodectl.report.findings import finding_document
        except ImportError as error:
            raise _without_nodectl(error) from None
        register, hosts = str(self._task.args["compare"]), variables["hostvars"]
        judged = {name: hosts[name].get(register) or {} for name in variables["ansible_play_hosts"]}
        members = [member_of(answer["member"]) for answer in judged.values() if "member" in answer]
        try:
            policies = {name: {VARIABLE: plain_value(hosts[name].get(VARIABLE))} for name in judged}
            by_host = compared(members, policies)
        except NodectlError as error:
            raise AnsibleActionFail(". ".join(part for part in (error.message, error.remedy) if part)) from None
        mild = {Status.UNKNOWN, Status.WARNING}
        return {
            "changed": False,
            "findings": [finding_document(finding) for findings in by_host.values() for finding in findings],
            "of": {
                name: {"told": lines(findings, mild), "wrong": lines(findings, {Status.FAILED})}
                for name, findings in by_host.items()
                if findings
            },
        }
