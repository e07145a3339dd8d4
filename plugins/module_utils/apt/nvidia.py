"""NVIDIA's apt repository on a node: the files that make it what a stack says, and what apt's own files show of it."""

from __future__ import annotations

import base64
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.urls import fetch_url

from ansible_collections.nodectl.fleet.plugins.module_utils.apt import openpgp, packages, plan, sources
from ansible_collections.nodectl.fleet.plugins.module_utils.apt.run import Apt

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Iterable

    from ansible.module_utils.basic import AnsibleModule

    Pins = list[dict[str, Any]]

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


class Repository:
    """What should be, from the parameters; what is, from apt's files."""

    def __init__(self, module: AnsibleModule) -> None:
        self.module, self.params = module, module.params
        self.root = Path(self.params["root"])
        self.apt = Apt(module, self.params["root"])
        parts = (self.params["base_url"].rstrip("/"), self.params["distribution"], self.params["architecture"])
        self.uri = "/".join(parts) + "/"

    def at(self, path: str) -> Path:
        """The path below the root."""
        return self.root / path.lstrip("/")

    def read(self, path: str) -> bytes | None:
        """A file's content; None where there is none."""
        try:
            return self.at(path).read_bytes()
        except OSError:
            return None

    def trusted(self) -> set[str]:
        """Fingerprints that count as the repository's key: those of the operator's file, else the profile's."""
        if self.params["keyring"]:
            return {
                name for name, _unused in self.parsed(base64.b64decode(self.params["keyring"]), "nvidia_repo_keyring")
            }
        return {self.params["fingerprint"]}

    def parsed(self, data: bytes, where: str) -> list[tuple[str, bytes]]:
        """The keys in it; ends the module where it holds none."""
        try:
            keys: list[tuple[str, bytes]] = openpgp.keys(data)
        except openpgp.BadKeyError as error:
            self.module.fail_json(msg=f"{where} is no OpenPGP public key: {error}")
        if not keys:
            self.module.fail_json(msg=f"{where} holds no key")
        return keys

    def adopted(self) -> str:
        """The file of another's source for the same repository and key; ends the module where it contradicts ours."""
        others = sources.others(sources.read(str(self.root)), self.uri, SOURCE)
        for other in others:
            problem = self.contradiction(other)
            if problem:
                self.module.fail_json(
                    msg=f"{other['file']} names {other['uri']} {problem}: apt takes a repository from one source only. "
                    f"Remove that entry, or point nvidia_repo_baseurl and nvidia_repo_keyring at what it names"
                )
        return str(others[0]["file"]) if others else ""

    def contradiction(self, other: dict[str, str]) -> str:
        """Why it cannot be adopted; empty where it can."""
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

    def key(self) -> bytes:
        """The keyring as it should stand: nothing but the trusted keys."""
        if self.params["keyring"]:
            given = self.parsed(base64.b64decode(self.params["keyring"]), "nvidia_repo_keyring")
            return b"".join(data for _unused, data in given)
        wanted, present = self.params["fingerprint"], self.read(KEYRING)
        if present and [name for name, _unused in self.parsed(present, KEYRING)] == [wanted]:
            return present
        url = f"{self.uri}{wanted[-8:].lower()}.pub"
        response, info = fetch_url(self.module, url, timeout=60)
        if response is None or info["status"] not in (200, -1, None):
            hint = "give nvidia_repo_keyring, or a nvidia_repo_baseurl that this host reaches"
            self.module.fail_json(msg=f"{url}: {info.get('msg', 'no answer')}; {hint}")
        data = response.read()
        for name, key in self.parsed(data, url):
            if name == wanted:
                return key
        names = ", ".join(name for name, _unused in self.parsed(data, url))
        self.module.fail_json(msg=f"{url} holds {names}, expected {wanted}: not trusted, nothing was written")
        raise AssertionError

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
        """Read this repository anew, and no other."""
        only = ["-o", f"Dir::Etc::SourceList={self.at(source)}", "-o", "Dir::Etc::SourceParts=-"]
        only += ["-o", "APT::Get::List-Cleanup=0", "-o", "APT::Update::Error-Mode=any"]
        self.apt.run("apt-get", "update", "--quiet", *only, doing=f"read {self.uri} (named in {source})")

    def resolved(self, source: str, fresh: bool) -> Pins:
        """The pins in versions that the repository has; it is read again where one is not there."""
        names, there = [pin["name"] for pin in self.params["pins"]], self.lists()
        exact = self.preferences(self.params["pins"])
        if there[0] and not fresh and self.read(PREFERENCES) == exact.encode():
            return list(self.params["pins"])  # they were there when this was written: apt need not be asked
        if not self.module.check_mode and (fresh or not there[0]):
            self.update(source)
            there = self.lists()
        offers = self.apt.offers(names) if there[0] else {}
        absent = [pin for pin in self.params["pins"] if pin["version"] not in offers.get(pin["name"], [])]
        again = any(not pin.get("nearest") or there[1] > DAY_S for pin in absent)
        if again and there[0] and not fresh and not self.module.check_mode:
            self.update(source)
        return self.settled() if there[0] else list(self.params["pins"])

    def preferences(self, pins: Pins) -> str:
        """The text of the preferences for these pins and the profile's driver branch."""
        return preferences(pins, self.params["driver_branch"])

    def version(self, pin: dict[str, Any], offered: list[str]) -> str:
        """The pin's version, or its nearest where it is not to be had."""
        wanted = str(pin["version"])
        if wanted in offered or not pin.get("nearest"):
            return wanted
        return plan.nearest(wanted, offered) or wanted

    def settled(self) -> Pins:
        """The pins as the lists that apt has would resolve them; nothing is read anew."""
        offers = self.apt.offers([pin["name"] for pin in self.params["pins"]])
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
    """The first record that fits a version decides: no driver at all, others' drivers, the branch's, other drivers."""
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
    """What unattended-upgrades leaves alone; the list adds to the distribution's."""
    names = "".join(f'  "{name}";\n' for name in frozen)
    return HEADER.format(comment="//") + f"Unattended-Upgrade::Package-Blacklist {{\n{names}}};\n"
