#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0 (goes together with the GNU General Public License v3.0 of Ansible itself)
"""Ansible module: packages in exactly the wanted versions, held, and nothing else touched, in one round trip."""

from __future__ import annotations

DOCUMENTATION = r"""
module: apt_pinned
short_description: Packages in exactly the wanted versions, held
description:
  - Looks, asks apt for a plan, refuses a plan that does more than was asked for, applies it and holds the packages.
  - A package that is there in the wanted version is never upgraded. An interrupted dpkg is first brought to its end.
author: The nodectl authors (!UNKNOWN)
options:
  check: {description: Whose packages they are in messages., type: str, required: true}
  packages:
    description: What should be there.
    type: list
    elements: dict
    required: true
    suboptions:
      names: {description: Its names; the first that is to be had., type: list, elements: str, required: true}
      version: {description: Its version; without one any will do., type: str}
      nearest: {description: The nearest for the same CUDA may stand in., type: bool, default: false}
      optional: {description: It may be missing from the repositories., type: bool, default: false}
  absent: {description: Packages that must go., type: list, elements: str, default: []}
  hold: {description: Hold them at their version., type: bool, default: true}
  hold_driver:
    description: Hold every installed part of the GPU driver as well; none of them is brought or changed for it.
    type: bool
    default: false
  driver: {description: The plan may bring packages of the GPU driver as well., type: bool, default: false}
  blocked_by: {description: Why nothing may be changed now; empty where it may., type: str, default: ""}
  source_expected:
    description: In check mode a package that no repository offers yet is planned, not refused.
    type: bool
    default: false
  root: {description: Root folder to look at and plan for; other than / needs check mode., type: path, default: /}
"""
EXAMPLES = r"""
- nodectl.fleet.apt_pinned:
    check: cudnn
    packages:
      - {names: [libcudnn8], version: 8.6.0.163-1+cuda11.8}
"""
RETURN = r"""
installed: {description: Version of each wanted package that is there., type: dict, returned: always}
plan: {description: What apt does., type: list, elements: dict, returned: always}
"""

from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils.apt import packages
from ansible_collections.nodectl.fleet.plugins.module_utils.apt import plan as apt_plan
from ansible_collections.nodectl.fleet.plugins.module_utils.apt.packages import BROKEN
from ansible_collections.nodectl.fleet.plugins.module_utils.apt.run import CONFOLD, Apt
from ansible_collections.nodectl.fleet.plugins.module_utils.files import difference

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    Steps = list[dict[str, str]]
    Wanted = dict[str, Any]


def main() -> None:
    """Compare, or make it so."""
    wanted = {
        "names": {"type": "list", "elements": "str", "required": True},
        "version": {"type": "str"},
        "nearest": {"type": "bool", "default": False},
        "optional": {"type": "bool", "default": False},
    }
    module = AnsibleModule(
        argument_spec={
            "check": {"type": "str", "required": True},
            "packages": {"type": "list", "elements": "dict", "options": wanted, "required": True},
            "absent": {"type": "list", "elements": "str", "default": []},
            "hold": {"type": "bool", "default": True},
            "hold_driver": {"type": "bool", "default": False},
            "driver": {"type": "bool", "default": False},
            "blocked_by": {"type": "str", "default": ""},
            "source_expected": {"type": "bool", "default": False},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    if module.params["root"] != "/" and not module.check_mode:
        module.fail_json(msg="packages are installed on / only; another root is for check mode")
    Pinned(module).converge()


class Pinned:
    """The way from what is there to what is wanted."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module, self.params, self.apt = module, module.params, Apt(module, module.params["root"])
        self.packages: dict[str, dict[str, Any]] = self.apt.packages()
        self.settled: set[str] = set()

    def version(self, name: str) -> str:
        """The installed version; empty where it is not wholly there."""
        package = self.packages.get(name, {})
        return str(package["version"]) if package.get("state") == "installed" else ""

    def present(self, wanted: Wanted) -> str:
        """The one of the names that is there in the wanted version; empty where none is."""
        fits = (name for name in wanted["names"] if apt_plan.matches(self.version(name), wanted["version"]))
        return next(fits, "")

    def installed(self) -> dict[str, str]:
        """{name: version} of the wanted packages, whatever their version."""
        names = [name for wanted in self.params["packages"] for name in wanted["names"]]
        return {name: self.version(name) for name in names if self.version(name)}

    def of_driver(self, name: str) -> bool:
        """It is installed, and a part of a GPU driver."""
        return bool(packages.is_driver(name, self.version(name)))

    def is_held(self, name: str) -> bool:
        """Whether dpkg keeps the package at its version."""
        return bool(self.packages.get(name, {}).get("selection") == "hold")

    def converge(self) -> None:
        """Plan, refuse or apply; the module ends here."""
        before, broken = self.shown(), self.apt.interrupted(self.packages)
        if broken and not self.module.check_mode:
            self.apt.repair()
            self.packages = self.apt.packages()
        choice, unknown = self.choose()
        gone = [
            name for name in self.params["absent"] if self.packages.get(name, {}).get("state") in ("installed", *BROKEN)
        ]
        plan = self.plan(choice, gone) if choice or gone else []
        hold = self.unheld(plan)
        if not self.module.check_mode:
            self.apply(choice, gone)
            hold = self.unheld([])
            if hold:
                self.module.run_command(["apt-mark", "hold", *hold], check_rc=True)
                self.packages = self.apt.packages()
        after = self.foreseen(plan, unknown, hold) if self.module.check_mode else self.shown()
        self.module.exit_json(
            changed=bool(plan or unknown or hold or broken),
            plan=plan,
            installed=self.installed(),
            diff=difference("packages", before, after),
        )

    def choose(self) -> tuple[dict[str, str], dict[str, str]]:
        """({name: version} to install, the same where no repository knows them yet and check mode may foresee them)."""
        missing = [wanted for wanted in self.params["packages"] if not self.present(wanted)]
        self.settled = {self.present(wanted) for wanted in self.params["packages"]} - {""}
        offers = self.apt.offers(sorted({name for wanted in missing for name in wanted["names"]}))
        chosen: dict[str, str] = {}
        unknown: dict[str, str] = {}
        for wanted in missing:
            try:
                name, version = apt_plan.choose(wanted, offers)
            except apt_plan.NoVersionError as error:
                if wanted["optional"]:
                    continue
                if self.module.check_mode and self.params["source_expected"]:
                    unknown[wanted["names"][0]] = wanted["version"] or "(newest)"
                    continue
                self.module.fail_json(msg=f"{self.params['check']}: {error}")
            self.settled.add(name)
            if self.version(name) != version:
                chosen[name] = version
        return chosen, unknown

    def plan(self, choice: dict[str, str], gone: list[str]) -> list[dict[str, str]]:
        """What apt would do; ends the module where that is more than was asked for."""
        words = [word for word in self.words(choice, gone) if word != "--no-remove"]  # to name what would go
        out = self.apt.run("apt-get", "--simulate", *words, doing=f"plan {' '.join(choice)}")
        steps = apt_plan.parse_simulation(out)
        held = {name for name in self.packages if self.is_held(name)}
        held -= {name for name in held if self.params["driver"] and self.of_driver(name)}
        bring = (lambda name, version: True) if self.params["driver"] else _no_driver
        wrong = apt_plan.objections(steps, set(choice), gone, bring, held)
        if wrong or (steps and self.params["blocked_by"]):
            reason = "; ".join(wrong) or self.params["blocked_by"]
            pins = " ".join(f"{name}={version}" for name, version in choice.items())
            self.module.fail_json(msg=f"{self.params['check']}: refused to install {pins}: {reason}", plan=steps)
        return steps

    def words(self, choice: dict[str, str], gone: list[str]) -> list[str]:
        """apt-get's arguments; its own guards stay on where nothing may go."""
        guards = ["--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages"]
        guards += [] if gone else ["--no-remove"]
        pins = [f"{name}={version}" for name, version in sorted(choice.items())]
        return ["install", "--yes", *guards, *CONFOLD, *pins, *(f"{name}-" for name in gone)]

    def unheld(self, plan: Steps) -> list[str]:
        """What is to be held and is not; of a driver all its parts, since one newer than the others breaks them."""
        names = set(self.settled)
        if self.params["driver"] or self.params["hold_driver"]:
            there = {name: self.version(name) for name in self.packages}
            there.update({step["name"]: step["after"] for step in plan if step["action"] == "install"})
            names |= {name for name, version in there.items() if packages.is_driver(name, version)}
        return sorted(name for name in names if self.params["hold"] and not self.is_held(name))

    def apply(self, choice: dict[str, str], gone: list[str]) -> None:
        """Have apt follow the plan, and read dpkg's files again; ends the module where a version is not as wanted."""
        if choice or gone:
            self.apt.run("apt-get", *self.words(choice, gone), doing=f"install {' '.join(choice) or ', '.join(gone)}")
            self.packages = self.apt.packages()
        lacking = [name for name, version in choice.items() if self.version(name) != version]
        if lacking:
            self.module.fail_json(msg=f"apt ended well, but these are not as wanted: {' '.join(lacking)}")

    def shown(self) -> str:
        """The wanted packages and those that must go, as lines."""
        names = {name for wanted in self.params["packages"] for name in wanted["names"]} | set(self.params["absent"])
        return apt_plan.as_lines(
            {name: self.version(name) for name in names}, {name for name in names if self.is_held(name)}
        )

    def foreseen(self, plan: list[dict[str, str]], unknown: dict[str, str], hold: list[str]) -> str:
        """The lines as they will be."""
        versions = {**self.installed(), **unknown}
        versions.update({step["name"]: step["after"] for step in plan if step["action"] == "install"})
        for step in plan:
            if step["action"] == "remove":
                versions.pop(step["name"], None)
        held = {name for name in versions if self.is_held(name) or name in hold or name in unknown}
        return apt_plan.as_lines(versions, held)


def _no_driver(name: str, version: str) -> bool:
    return not packages.is_driver(name, version)


if __name__ == "__main__":
    main()
