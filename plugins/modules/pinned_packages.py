#!/usr/bin/python
# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: packages in exactly the wanted versions, held, and nothing else touched, in one round trip."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils import node_packages, wanted_packages
from ansible_collections.nodectl.fleet.plugins.module_utils.files import difference
from ansible_collections.nodectl.fleet.plugins.module_utils.wanted_packages import BROKEN, PackagesError

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    Steps = list[dict[str, str]]
    Wanted = dict[str, Any]

# NVIDIA's layout below any host; a mirror keeps it, and the machine-learning repository had it too
NVIDIA_LAYOUT = re.compile(r"/compute/(cuda|machine-learning)/repos/")


def main() -> None:
    """Compare, or make it so."""
    wanted = {
        "names": {"type": "list", "elements": "str", "required": True},
        "version": {"type": "str"},
        "nearest": {"type": "bool", "default": False},
        "optional": {"type": "bool", "default": False},
        "driver": {"type": "bool", "default": False},
        "hint": {"type": "str"},
        "others": {"type": "list", "elements": "str", "default": []},
    }
    repository = {
        "uri": {"type": "str", "required": True},
        "suite": {"type": "str", "default": "/"},
        "file": {"type": "path"},
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
            "look": {"type": "bool", "default": False},
            "repository": {"type": "dict", "options": repository},
            "root": {"type": "path", "default": "/"},
        },
        supports_check_mode=True,
    )
    try:
        pinned = Pinned(module)
        if module.params["look"]:
            pinned.look()
        if module.params["root"] != "/" and not module.check_mode and not pinned.system.elsewhere:
            module.fail_json(msg="packages are installed on / only; another root is for check mode")
        pinned.converge()
    except PackagesError as error:
        module.fail_json(msg=str(error))


class Pinned:
    """The way from what is there to what is wanted."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module, self.params = module, module.params
        self.kind = node_packages.kind(module.params["root"])
        self.system = self.kind.Manager(module.run_command, module.params["root"])
        self.settled: set[str] = set()
        self.look_again()

    def look_again(self) -> None:
        """Read what is installed; `there` are the versions of what is wholly installed."""
        self.packages: dict[str, dict[str, Any]] = self.system.packages()
        self.there = {name: each["version"] for name, each in self.packages.items() if each["state"] == "installed"}

    def version(self, name: str) -> str:
        """Return the installed version; empty if it is not wholly there."""
        return str(self.there.get(name, ""))

    def installed(self) -> dict[str, str]:
        """{name: version} of the wanted packages, whatever their version."""
        names = [name for wanted in self.params["packages"] for name in wanted["names"]]
        return {name: self.version(name) for name in names if self.version(name)}

    def is_held(self, name: str) -> bool:
        """Return whether the package is kept at its version."""
        return bool(self.packages.get(name, {}).get("selection") == "hold")

    def look(self) -> None:
        """Refuse a second source, and what no repository has; the module ends here."""
        source, repository = self.source(), self.params["repository"]
        reasons, versions = wanted_packages.lacking(self.system, self.params["packages"], self.there, repository)
        if reasons:
            why = f"{'; '.join(reasons)}{self.system.without_lists()}"
            self.module.fail_json(msg=f"{self.params['check']}: {why}: nothing was changed")
        drivers = [name for package in self.params["packages"] if package["driver"] for name in package["names"]]
        driver = next((versions[name].partition("-")[0] for name in drivers if name in versions), "")
        found = {"installed": self.installed(), "source": source, "driver": driver, "versions": versions}
        self.module.exit_json(changed=False, came={}, plan=[], **found)

    def source(self) -> str:
        """Return the file of another's source of the repository; the module ends if another source contradicts it."""
        repository = self.params["repository"] or {}
        if not repository.get("file"):
            return ""
        uri, adopted = repository["uri"].rstrip("/"), ""
        for source in self.kind.sources(self.params["root"], uri):
            is_same = source["uri"].rstrip("/") == uri
            if source["file"] == repository["file"] or not (is_same or NVIDIA_LAYOUT.search(source["uri"])):
                continue
            problem = source["problem"] if is_same else f"beside {uri}/"
            if problem:
                self.module.fail_json(
                    msg=f"{source['file']} names {source['uri']} {problem}: a repository is taken from one source "
                    "only. Remove that entry, or point nvidia_repository_base_url and nvidia_repository_keyring (in "
                    "nodectl's inventory: nvidia_repo_baseurl, nvidia_repo_keyring) at what it names"
                )
            adopted = adopted or source["file"]
        return adopted

    def converge(self) -> None:
        """Plan, refuse or apply; the module ends here."""
        before, broken, repository = self.shown(), self.system.interrupted(self.packages), self.params["repository"]
        if repository and not self.module.check_mode:
            self.system.read(repository["uri"], repository["file"])
        if broken and not self.module.check_mode:
            self.system.repair()
            self.look_again()
        choice, unknown = self.choose()
        gone = [
            name for name in self.params["absent"] if self.packages.get(name, {}).get("state") in ("installed", *BROKEN)
        ]
        plan = self.plan(choice, gone) if choice or gone else []
        self.warn_of_lost(plan)
        hold = self.unheld(plan)
        if not self.module.check_mode:
            self.apply(choice, gone)
            hold = self.unheld([])
            if hold:
                self.system.hold(hold)
                self.look_again()
        after = self.foreseen(plan, unknown, hold) if self.module.check_mode else self.shown()
        self.module.exit_json(
            changed=bool(plan or unknown or hold or broken or repository),
            plan=plan,
            installed=self.installed(),
            came={name: self.system.came(name, self.packages[name]) for name in self.installed()},
            diff=difference("packages", before, after),
        )

    def choose(self) -> tuple[dict[str, str], dict[str, str]]:
        """({name: version} to install, the same if no repository knows them yet and check mode may foresee them)."""
        wanted = self.params["packages"]
        found = [wanted_packages.present(package, self.there) for package in wanted]
        missing = [package for package, name in zip(wanted, found) if not name]  # noqa: B905 - Python 3.8
        names = sorted({name for package in missing for name in package["names"]})
        reasons, versions = wanted_packages.judged(missing, self.system.offers(names), {})
        if reasons and not self.module.check_mode and self.system.renew():
            reasons, versions = wanted_packages.judged(missing, self.system.offers(names), {})
        unknown: dict[str, str] = {}
        if reasons and self.module.check_mode and self.params["source_expected"]:
            lacking = [each for each in missing if not each["optional"] and not versions.keys() & {*each["names"]}]
            unknown = {each["names"][0]: each["version"] or "(newest)" for each in lacking}
        elif reasons:
            self.module.fail_json(msg=f"{self.params['check']}: {'; '.join(reasons)}{self.system.without_lists()}")
        self.settled = {*filter(None, found), *versions}
        return {name: version for name, version in versions.items() if self.version(name) != version}, unknown

    def plan(self, choice: dict[str, str], gone: list[str]) -> list[dict[str, str]]:
        """Return what would be done; ends the module where that is more than was asked for, or nothing may change."""
        pins = " ".join([*(f"{name}={version}" for name, version in choice.items()), *gone])
        if self.params["blocked_by"]:
            self.module.fail_json(
                msg=f"{self.params['check']}: refused to change {pins}: {self.params['blocked_by']}", plan=[]
            )
        steps = self.system.plan(choice, gone)
        is_driver, driver = self.kind.is_driver, self.params["driver"]
        held = {name for name in self.packages if self.is_held(name)}
        held -= {name for name in held if driver and is_driver(name, self.version(name))}
        wrong = wanted_packages.objections(
            steps, set(choice), gone, lambda name, version: driver or not is_driver(name, version), held
        )
        if wrong:
            reason = "; ".join(wrong)
            self.module.fail_json(msg=f"{self.params['check']}: refused to install {pins}: {reason}", plan=steps)
        return steps

    def warn_of_lost(self, plan: Steps) -> None:
        """Warn of packages that the plan replaces or removes, in a version that no repository has."""
        replaced = {step["name"].partition(":")[0]: step["before"] for step in plan if step["before"]}
        offers = self.system.offers(sorted(replaced)) if replaced else {}
        lost = [f"{name} {version}" for name, version in replaced.items() if version not in offers.get(name, ())]
        if lost:
            self.module.warn(
                f"{os.uname().nodename}: {self.params['check']}: no repository has {', '.join(lost)} any more: a "
                "rollback cannot restore it"
            )

    def unheld(self, plan: Steps) -> list[str]:
        """Return what is to be held and is not.

        Of a driver all its parts, since one newer than the others breaks them.
        """
        names = set(self.settled)
        if self.params["driver"] or self.params["hold_driver"]:
            there = {name: self.version(name) for name in self.packages}
            there.update({step["name"]: step["after"] for step in plan if step["action"] == "install"})
            names |= {name for name, version in there.items() if self.kind.is_driver(name, version)}
        return sorted(
            name for name in names if self.params["hold"] and self.system.holds(name) and not self.is_held(name)
        )

    def apply(self, choice: dict[str, str], gone: list[str]) -> None:
        """Have the plan followed, and look again; ends the module if a version is not as wanted."""
        if choice or gone:
            while not self.system.install(choice, gone):
                choice = self.choose()[0]
                self.plan(choice, gone)
            self.look_again()
        lacking = [name for name, version in choice.items() if self.version(name) != version]
        if lacking:
            self.module.fail_json(msg=f"{self.system.name} ended well, but not as wanted are: {' '.join(lacking)}")

    def shown(self) -> str:
        """Return the wanted packages and those that must go, as lines."""
        names = {name for wanted in self.params["packages"] for name in wanted["names"]} | set(self.params["absent"])
        return wanted_packages.as_lines(
            {name: self.version(name) for name in names}, {name for name in names if self.is_held(name)}
        )

    def foreseen(self, plan: list[dict[str, str]], unknown: dict[str, str], hold: list[str]) -> str:
        """Return the lines as they will be."""
        versions = {**self.installed(), **unknown}
        versions.update({step["name"]: step["after"] for step in plan if step["action"] == "install"})
        for step in plan:
            if step["action"] == "remove":
                versions.pop(step["name"], None)
        held = {name for name in versions if self.is_held(name) or name in hold or name in unknown}
        return wanted_packages.as_lines(versions, held)


if __name__ == "__main__":
    main()
