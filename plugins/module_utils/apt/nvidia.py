# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's apt repository on a node: the files that make it what a stack says, and what apt's own files show of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ansible_collections.nodectl.fleet.plugins.module_utils import nvidia_repository, openpgp, wanted_packages
from ansible_collections.nodectl.fleet.plugins.module_utils.apt import packages, sources
from ansible_collections.nodectl.fleet.plugins.module_utils.apt.run import Apt, offers_of

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Iterable

    from ansible.module_utils.basic import AnsibleModule

    Pins = list[dict[str, Any]]
    Contents = dict[str, "bytes | None"]
    Offers = dict[str, list[str]]

SOURCE = "/etc/apt/sources.list.d/nodectl-nvidia.sources"
KEYRING = "/etc/apt/keyrings/nodectl-nvidia.gpg"
PREFERENCES = "/etc/apt/preferences.d/90-nodectl-nvidia"
UNATTENDED = "/etc/apt/apt.conf.d/90-nodectl-unattended"
HEADER = "{comment} Written by nodectl from the host's stack profile; changes made here are lost.\n"
# NVIDIA's names of architectures, and Debian's
ARCHITECTURES = {"x86_64": "amd64", "sbsa": "arm64"}
# preferred over a newer one, but never a reason to go back from one that is installed
WANTED, ALIKE, NEVER = 990, 500, -1
# as NVIDIA's Release file calls its repository
LABEL = "NVIDIA CUDA"
# and as those call theirs that have drivers of their own, which a pin of a version alone would let in beside NVIDIA's
OTHERS = ("Debian*", "Ubuntu*", "LP-PPA-*")
DAY_S = 24 * 3600


class Repository(nvidia_repository.Repository):
    """NVIDIA's repository as apt has it."""

    SOURCE, KEYRING, ARCHITECTURES = SOURCE, KEYRING, ARCHITECTURES

    def __init__(self, module: AnsibleModule) -> None:
        super().__init__(module)
        self.system = Apt(module, self.params["root"])

    def others(self) -> list[dict[str, str]]:
        """Return sources of NVIDIA's packages that stand in files other than our own."""
        return sources.others(sources.read(str(self.root)), self.uri, SOURCE)

    def contradiction(self, other: dict[str, str]) -> str:
        """Return why it cannot be adopted; "" if it can."""
        if not sources.same(other["uri"], self.uri):
            return f"beside {self.uri}"
        if other["trusted"].lower() in ("yes", "true", "1"):
            return "without checking signatures (trusted=yes)"
        if not other["signed_by"].startswith("/"):
            return (
                f"with {'a key of its own' if other['signed_by'] else 'no signed-by, so with any key that apt trusts'}"
            )
        data = self.read(other["signed_by"])
        if data is None:
            return f"signed by {other['signed_by']}, which is not there"
        names = {name for name, _unused in self.parsed(data, other["signed_by"])}
        return "" if names & self.trusted() else f"signed by {other['signed_by']}, which holds another key"

    def keyed(self, adopted: str) -> Contents:
        """Return the files of the key, of what upgrades leave alone, and of trusted keyrings without revoked keys."""
        contents: Contents = {UNATTENDED: unattended(self.params["frozen"]).encode()}
        contents[KEYRING] = None if adopted else self.key()
        contents.update({path: data or None for path, data in self.revoked().items()})
        return contents

    def pinned(self, adopted: str) -> Contents:
        """Only the profile's versions are candidates; the repository is read again where that is needed."""
        pins = self.resolved(adopted or SOURCE, self.params["fresh"])
        return {PREFERENCES: self.preferences(pins).encode()}

    def revoked(self) -> dict[str, bytes]:
        """{file: what is left of it} of the keyrings that apt trusts for everything and that hold a revoked key."""
        never, left = set(self.params["revoked"]), {}
        apt = self.at("/etc/apt")
        for path in [apt / "trusted.gpg", *sorted(apt.glob("trusted.gpg.d/*"))]:
            try:
                keys = openpgp.keys(path.read_bytes()) if path.is_file() else []
            except openpgp.BadKeyError:
                continue  # another format, or no key at all: not ours to judge
            if never & {name for name, _unused in keys}:
                kept = b"".join(data for name, data in keys if name not in never)
                left["/" + str(path.relative_to(self.root))] = kept
        return left

    def lists(self) -> tuple[bool, float]:
        """(apt has read the repository, how long ago in seconds)."""
        # https://wiki.debian.org/DebianRepository: the name below lists/ is the address with slashes as underscores
        name = self.uri.partition("://")[2].replace("_", "%5f").replace("/", "_").lstrip("_")
        releases = list(self.at("/var/lib/apt/lists").glob(f"*{name}*Release"))
        return bool(releases), time.time() - max((path.stat().st_mtime for path in releases), default=0)

    def update(self, source: str) -> None:
        """Read this repository again, and no other."""
        only = ["-o", f"Dir::Etc::SourceList={self.at(source)}", "-o", "Dir::Etc::SourceParts=-"]
        only += ["-o", "APT::Get::List-Cleanup=0", "-o", "APT::Update::Error-Mode=any"]
        self.system.run("apt-get", "update", "--quiet", *only, doing=f"read {self.uri} (named in {source})")

    def resolved(self, source: str, fresh: bool) -> Pins:
        """Return the pins in versions that the repository has; it is read again if one is not there."""
        names, there = [pin["name"] for pin in self.params["pins"]], self.lists()
        exact = self.preferences(self.params["pins"])
        if there[0] and not fresh and self.read(PREFERENCES) == exact.encode():
            return list(self.params["pins"])  # they were there when this was written: apt need not be asked
        if not self.module.check_mode and (fresh or not there[0]):
            self.update(source)
            there = self.lists()
        offers = self.system.offers(names) if there[0] else {}
        absent = [pin for pin in self.params["pins"] if pin["version"] not in offers.get(pin["name"], [])]
        again = any(not pin.get("nearest") or there[1] > DAY_S for pin in absent)
        if again and there[0] and not fresh and not self.module.check_mode:
            self.update(source)
        return self.settled() if there[0] else list(self.params["pins"])

    def read_aside(self, names: list[str]) -> Offers:
        """Return what NVIDIA's repository offers now, read below a folder of its own.

        The node's apt is left as it is.
        """
        return offers_of(self.module, f"deb [signed-by={{key}}] {self.uri} /", self.key_in_use(), names)

    def key_in_use(self) -> bytes:
        """Return the repository's key, or the keyring of the source that is adopted."""
        file = self.adopted()
        for source in sources.read(str(self.root)) if file else ():
            if source["file"] == file and sources.same(source["uri"], self.uri):
                return self.read(source["signed_by"]) or b""
        return self.key()

    def preferences(self, pins: Pins) -> str:
        """Return the text of the preferences for these pins and the profile's driver branch."""
        return preferences(pins, self.params["driver_branch"])

    def version(self, pin: dict[str, Any], offered: list[str]) -> str:
        """Return the pin's version, or its nearest if it is not to be had."""
        wanted = str(pin["version"])
        if wanted in offered or not pin.get("nearest"):
            return wanted
        return wanted_packages.nearest(wanted, offered) or wanted

    def settled(self) -> Pins:
        """Return the pins as the lists that apt has would resolve them; nothing is read again."""
        offers = self.system.offers([pin["name"] for pin in self.params["pins"]])
        return [
            {"name": pin["name"], "version": self.version(pin, offers.get(pin["name"], []))}
            for pin in self.params["pins"]
        ]


def preferences(pins: Iterable[dict[str, Any]], driver_branch: str) -> str:
    """Each pinned package has one candidate, the driver only those of its branch, or none at all."""
    records = []
    for pin in sorted(pins, key=lambda pin: str(pin["name"])):
        records += [record(pin["name"], f"version {pin['version']}", WANTED), record(pin["name"], "version *", NEVER)]
    return HEADER.format(comment="#") + "\n" + "\n".join([*records, *driver_records(driver_branch)])


def driver_records(branch: str) -> list[str]:
    """Return the driver's records, of which the first that fits decides.

    None, others' drivers, the branch's, the rest.
    """
    modules, family = " ".join(packages.DRIVER_MODULES), " ".join(packages.DRIVER_FAMILY)
    no_driver = record(family, f"version /{packages.OTHER_VERSION}/", ALIKE)
    if not branch:
        return [no_driver, record(f"{family} {modules}", f"release l={LABEL}", NEVER)]
    return [
        no_driver,
        *(record(f"{family} {modules}", f"release o={other}", NEVER) for other in OTHERS),
        record(family, f"version {branch}.*", WANTED),
        record(f"{family} {modules}", "version *", NEVER),
    ]


def record(packages: str, pin: str, priority: int) -> str:
    """One paragraph of apt_preferences(5)."""
    return f"Package: {packages}\nPin: {pin}\nPin-Priority: {priority}\n"


def unattended(frozen: Iterable[str]) -> str:
    """Return what unattended-upgrades leaves alone; the list adds to the distribution's."""
    names = "".join(f'  "{name}";\n' for name in frozen)
    return HEADER.format(comment="//") + f"Unattended-Upgrade::Package-Blacklist {{\n{names}}};\n"
