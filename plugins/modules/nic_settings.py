#!/usr/bin/python
# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: MTU, rings and interrupts of the training interfaces, live and at every boot."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.nodectl.fleet.plugins.module_utils import boot_service, nic_hw
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.held import Held
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.live import read_value, systemd_runs, warn_not_settable
from ansible_collections.nodectl.fleet.plugins.module_utils.undo.trials import changing

if TYPE_CHECKING:  # nodes run this from Python 3.8 on, which cannot evaluate these
    from collections.abc import Callable

    from ansible_collections.nodectl.fleet.plugins.module_utils.undo.trials import Trial

    Run = Callable[[list[str]], tuple[int, str, str]]


class Interfaces:
    """The interfaces that the settings are for, as they are now."""

    def __init__(self, module: AnsibleModule, trial: Trial | None) -> None:
        self.run: Run = nic_hw.run_program
        self.wanted: dict[str, Any] = {key: module.params[key] for key in ("mtu", "rings", "irq")}
        self.asked = any(self.wanted.values())
        self.held = Held(trial.record(module.params["record"]) if trial else module.params["record"])
        self.links = nic_hw.links(self.run) if self.asked or self.held.entries else {}
        self.session = nic_hw.session_interface(self.run, nic_hw.session_address()) if self.asked else ""
        named = module.params["interfaces"]
        self.missing = [name for name in named if name not in self.links] if self.asked else []
        up = named or [name for name, link in sorted(self.links.items()) if link["up"] and nic_hw.on_pci(name)]
        present = [name for name in up if name in self.links and (named or name != self.session)]
        self.names = present if self.asked else []
        active = ["systemctl", "is-active", "--quiet", "irqbalance.service"]
        self.balanced = bool(self.wanted["irq"]) and systemd_runs() and self.run(active)[0] == 0

    def refusals(self) -> list[str]:
        """Return why it cannot be done; before anything changes."""
        reasons = [f"{name}: no such interface; there are {', '.join(sorted(self.links))}" for name in self.missing]
        for name in self.names:
            link, mtu = self.links[name], self.wanted["mtu"]
            if mtu and not nic_hw.mtu_fits(link, mtu):
                reasons.append(f"{name}: MTU {mtu} is outside the device's {link['min_mtu']} to {link['max_mtu']}")
        return reasons

    def not_settable(self, stop_balancer: bool) -> list[str]:
        """Return `SETTING: why` of what was asked for and cannot be set here."""
        if self.asked and not self.names:
            return ["nic: no interface on the PCI bus is up, but for the session's: name one in nic_interfaces"]
        reasons = []
        for name in self.names:
            if self.wanted["rings"] and nic_hw.rings(self.run, name) is None:
                reasons.append(f"rings of {name}: it has no ring sizes, or ethtool is not installed")
            if self.wanted["irq"] and nic_hw.interrupts(name) is None:
                reasons.append(f"interrupts of {name}: the device has no NUMA node, or no interrupts of its own")
        if self.wanted["irq"] and self.balanced and not stop_balancer:
            reasons.append("interrupts: irqbalance runs and would move them; nic_irqbalance: stop ends it")
        if self.names and not systemd_runs():
            reasons.append("nic at boot: systemd is not process 1, so no service sets them again")
        return reasons

    def settings(self, stop_balancer: bool) -> dict[str, Any]:
        """Return what the boot program is given; interrupts are irqbalance's where it runs and may stay."""
        irq = self.wanted["irq"] and (stop_balancer or not self.balanced)
        return {**self.wanted, "irq": irq, "interfaces": self.names}

    def entries(self) -> dict[str, Any]:
        """{key of `Held`: before and after} of what is wanted."""
        after: dict[str, Any] = {}
        for name in self.names:
            if self.wanted["mtu"]:
                after[f"/sys/class/net/{name}/mtu"] = str(self.wanted["mtu"])
            sizes = nic_hw.rings(self.run, name) if self.wanted["rings"] else None
            if sizes:
                after[f"rings {name}"] = as_text({**sizes[1], **sizes[0]})
        return {key: {"before": self.held.before(key, self.now(key)), "after": value} for key, value in after.items()}

    def now(self, key: str) -> Any:
        """Return what an interface holds by a key of `Held`; None if it is gone."""
        kind, _unused, name = key.partition(" ")
        if kind == "rings":
            sizes = nic_hw.rings(self.run, name)
            return as_text(sizes[1]) if sizes else None
        link = self.links.get(key.split("/")[4])
        return str(link["mtu"]) if link else None

    def given_back(self, entries: dict[str, Any]) -> list[list[str]]:
        """Return the commands that take back what is no longer wanted, if nobody else has changed it since."""
        todo = []
        for key, value in self.held.unwanted(entries, self.now).items():
            kind, _unused, name = key.partition(" ")
            if kind == "rings":
                todo += nic_hw.ring_commands(name, value, self.now(key))
            else:
                todo.append(["ip", "link", "set", "dev", key.split("/")[4], "mtu", value])
        return todo

    def former(self, todo: list[list[str]]) -> tuple[dict[str, str], dict[str, list[str]]]:
        """Return ({kernel file: value}, {name: command}) that undo these commands."""
        values: dict[str, str] = {}
        commands = {}
        for argv in todo:
            if argv[0] == "write":
                values[argv[1]] = read_value(argv[1]) or argv[2]
            elif argv[0] == "ip":
                commands[f"mtu {argv[4]}"] = [*argv[:-1], str(self.links[argv[4]]["mtu"])]
            else:  # ethtool -G NAME RING SIZE …
                now, changed = self.now(f"rings {argv[2]}"), argv[3::2]
                words = [word for ring in changed for word in (ring, now[ring])]
                commands[" ".join(["rings", argv[2], *changed])] = [*argv[:3], *words]
        return values, commands


def as_text(sizes: dict[str, int]) -> dict[str, str]:
    """Ring sizes as `ethtool -G` takes them."""
    return {ring: str(size) for ring, size in sizes.items()}


def set_all(module: AnsibleModule, nics: Interfaces, trial: Trial | None) -> None:
    """Files and live values; the module ends here. A trial leaves irqbalance alone, and writes no file."""
    params, stop = module.params, module.params["irqbalance"] == "stop" and not trial
    warn_not_settable(module, nics.not_settable(stop))
    settings, entries = nics.settings(stop), nics.entries()
    given_back = nics.given_back(entries)
    boots = bool(nics.names) and systemd_runs()
    text = json.dumps(settings, indent=2, sort_keys=True) + "\n" if nics.names else ""
    files = {
        params["program"]: (boot_service.program_of(nic_hw) if boots else "", 0o755),
        params["settings"]: (text, 0o644),
        params["unit"]: (params["unit_text"] if boots else "", 0o644),
    }

    todo = [["systemctl", "disable", "--now", "irqbalance.service"]] if nics.balanced and stop else []
    todo += given_back
    for name in nics.names:
        todo += nic_hw.commands(nics.run, name, settings, nics.links[name])
    if trial:
        files = {}
        trial.keep(*nics.former(todo))
    diff = boot_service.set_all(module, files, nics.held, entries, todo, lambda argv: nic_hw.execute(nics.run, argv))
    module.exit_json(changed=bool(diff), interfaces=nics.names, diff=diff)


def main() -> None:
    """Refuse what an interface cannot have; then set it, where that is asked for."""
    switch = {"type": "bool", "default": False}
    module = AnsibleModule(
        argument_spec={
            **boot_service.ARGUMENTS,
            "interfaces": {"type": "list", "elements": "str", "default": []},
            "mtu": {"type": "int", "default": 0},
            "rings": switch,
            "irq": switch,
            "irqbalance": {"type": "str", "choices": ["leave", "stop"], "default": "leave"},
            "record": {"type": "path", "default": "/var/lib/nodectl/nic.json"},
        },
        supports_check_mode=True,
    )
    with changing(module) as trial:
        nics = Interfaces(module, trial)
        refusals = nics.refusals()
        if refusals:
            module.fail_json(msg="; ".join(refusals))
        if module.params["state"] == "set":
            set_all(module, nics, trial)
        module.exit_json(changed=False, interfaces=nics.names)


if __name__ == "__main__":
    main()
