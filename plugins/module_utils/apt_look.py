"""The wanted packages of one role against what dpkg has: what fits, what is held, and what is worth a finding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.nodectl.fleet.plugins.module_utils import findings
from ansible_collections.nodectl.fleet.plugins.module_utils.apt import plan as apt_plan

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Mapping

    from ansible_collections.nodectl.fleet.plugins.module_utils.apt.run import Apt

    Wanted = dict[str, Any]
    Finding = dict[str, str]


def finding(check: str, status: str, name: str, expected: str, actual: str, remedy: str) -> Finding:
    """One finding."""
    made: Finding = findings.finding(check, status, name, expected=expected, actual=actual, remedy=remedy)
    return made


class Look:
    """What is there now."""

    def __init__(self, apt: Apt, params: Mapping[str, Any]) -> None:
        self.apt, self.params, self.packages = apt, params, apt.packages()

    def version(self, name: str) -> str:
        """The installed version; empty where it is not wholly there."""
        package = self.packages.get(name, {})
        return str(package["version"]) if package.get("state") == "installed" else ""

    def present(self, wanted: Wanted) -> str:
        """The one of the names that is there in the wanted version; empty where none is."""
        fits = (name for name in wanted["names"] if apt_plan.matches(self.version(name), wanted["version"]))
        found: str = next(fits, "")
        return found

    def installed(self) -> dict[str, str]:
        """{name: version} of the wanted packages, whatever their version."""
        names = [name for wanted in self.params["packages"] for name in wanted["names"]]
        return {name: self.version(name) for name in names if self.version(name)}

    def is_held(self, name: str) -> bool:
        """dpkg holds it."""
        return bool(self.packages.get(name, {}).get("selection") == "hold")

    def findings(self) -> list[Finding]:
        """One for each wanted package, and one for each that must not be there."""
        check, found = self.params["check"], []
        missing = {name for wanted in self.params["packages"] if wanted["nearest"] for name in wanted["names"]}
        offers = self.apt.offers(sorted(missing)) if missing else {}
        for wanted in self.params["packages"]:
            if not wanted["optional"]:
                found.append(self.judge(wanted, offers))
        for name in self.params["absent"]:
            if self.version(name):
                remedy = "provision again, or remove it"
                found.append(finding(check, "failed", name, "absent", self.version(name), remedy))
        if self.params["of_torch"] and self.installed():
            both = ", ".join(f"{name} {version}" for name, version in sorted(self.installed().items()))
            actual = f"torch's own {self.params['of_torch']}, the system's {both}; torch loads the first"
            found.append(finding(check, "ok", "two of them", "", actual, ""))
        return found

    def judge(self, wanted: Wanted, offers: dict[str, list[str]]) -> Finding:
        """Is it there, in its version, held?"""
        check, label = self.params["check"], " or ".join(wanted["names"])
        expected = wanted["version"] or "installed"
        name = self.present(wanted)
        if name:
            held = not self.params["hold"] or self.is_held(name)
            actual = self.version(name) + ("" if held else ", not held")
            remedy = f"apt-mark hold {name}, or provision again"
            return finding(check, "ok" if held else "warning", name, expected, actual, remedy)
        for name in wanted["names"]:
            offered = offers.get(name, [])
            nearest = wanted["nearest"] and apt_plan.nearest(wanted["version"] or "", offered)
            if nearest and nearest == self.version(name) and wanted["version"] not in offered:
                return deviation(check, name, wanted["version"], nearest)
        actual = ", ".join(f"{name} {self.version(name)}" for name in wanted["names"] if self.version(name)) or "absent"
        return finding(check, "failed", label, expected, actual, "provision again")


def deviation(check: str, name: str, wanted: str, version: str) -> Finding:
    """The pin is nowhere to be had; its nearest for the same CUDA stands in for it."""
    remedy = (
        "none needed where the system's library is not what training loads; else point nvidia_repo_baseurl at a mirror"
    )
    actual = f"{version}: the repository has no {wanted}, this is its nearest for the same CUDA"
    return finding(check, "warning", name, wanted, actual, remedy)
