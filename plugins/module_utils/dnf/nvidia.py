# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's rhel repository on a node: the files that make it what a stack says, and what dnf's own files show of it."""

from __future__ import annotations

import configparser
import re
import tempfile
from typing import TYPE_CHECKING

from ansible_collections.nodectl.fleet.plugins.module_utils import nvidia_repository, openpgp
from ansible_collections.nodectl.fleet.plugins.module_utils.apt.sources import others, same
from ansible_collections.nodectl.fleet.plugins.module_utils.dnf.run import Dnf

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from ansible.module_utils.basic import AnsibleModule

    Contents = dict[str, "bytes | None"]
    Offers = dict[str, list[str]]
    Source = dict[str, str]

NAME = "nodectl-nvidia"
SOURCE = f"/etc/yum.repos.d/{NAME}.repo"
KEYRING = f"/etc/pki/rpm-gpg/RPM-GPG-KEY-{NAME}"
# which of the driver's branches dnf sees; dnf itself keeps it here
STREAM = "/etc/dnf/modules.d/nvidia-driver.module"
# the repositories that have such branches; in later ones a driver is of a branch by its version and versionlock
STREAMED = ("rhel8", "rhel9")
HEADER = "# Written by nodectl from the host's stack profile; changes made here are lost.\n"
# NVIDIA's names of architectures, and rpm's
ARCHITECTURES = {"x86_64": "x86_64", "sbsa": "aarch64"}


class Repository(nvidia_repository.Repository):
    """NVIDIA's repository as dnf has it."""

    SOURCE, KEYRING, ARCHITECTURES = SOURCE, KEYRING, ARCHITECTURES

    def __init__(self, module: AnsibleModule) -> None:
        super().__init__(module)
        self.system = Dnf(module, self.params["root"])

    def others(self) -> list[Source]:
        """Return sources of NVIDIA's packages that stand in files other than our own."""
        return others(self.sources(), self.uri, SOURCE)

    def sources(self) -> list[Source]:
        """Every enabled source that dnf's files name: file, uri, key, checked."""
        sources = []
        release = re.sub(r"\D", "", self.params["distribution"])
        for path in sorted(self.at("/etc/yum.repos.d").glob("*.repo")):
            text = self.read(f"/etc/yum.repos.d/{path.name}") or b""
            for source in read_sources(f"/etc/yum.repos.d/{path.name}", text.decode(errors="replace")):
                arch = ARCHITECTURES[self.params["architecture"]]
                source["uri"] = source["uri"].replace("$basearch", arch).replace("$releasever", release)
                sources.append(source)
        return sources

    def contradiction(self, other: Source) -> str:
        """Return why it cannot be adopted; "" if it can."""
        if not same(other["uri"], self.uri):
            return f"beside {self.uri}"
        if not other["checked"]:
            return "without checking signatures (gpgcheck=0)"
        names = {name[-8:].upper() for name in self.trusted()}
        if other["key"].startswith("file:///"):
            data = self.read(other["key"][len("file://") :])
            held = self.parsed(data, other["key"]) if data else []
            return "" if {name[-8:] for name, _unused in held} & names else f"with the key {other['key']}, another one"
        # NVIDIA calls the file of a key after the key
        called = re.search(r"([0-9A-Fa-f]{8})\.pub$", other["key"])
        return "" if called and called.group(1).upper() in names else f"with the key {other['key'] or '(none)'}"

    def keyed(self, adopted: str) -> Contents:
        """Return the files of key and source, or none of them beside one that is adopted."""
        if adopted:
            return {KEYRING: None, SOURCE: None}
        return {KEYRING: openpgp.armored(self.key()), SOURCE: repo_file(self.uri, self.params["distribution"]).encode()}

    def pinned(self, adopted: str) -> Contents:
        """Return the driver's module stream as a file, where the repository has streams.

        Without a branch none, unless the host's owner has chosen one.
        """
        if self.params["distribution"] not in STREAMED:
            return {}
        present = (self.read(STREAM) or b"").decode(errors="replace")
        stream = self.params["driver_stream"]
        if not stream and "state=enabled" in present.replace(" ", ""):
            return {}
        state = "enabled" if stream else "disabled"
        wanted = f"[nvidia-driver]\nname=nvidia-driver\nstream={stream}\nprofiles=\nstate={state}\n"
        return {} if settings(present) == settings(wanted) else {STREAM: wanted.encode()}

    def read_aside(self, names: list[str]) -> Offers:
        """Return what NVIDIA's repository offers of all streams, with a cache of its own.

        The node's is left as it is.
        """
        with tempfile.TemporaryDirectory(prefix="nodectl-dnf-") as folder:
            dnf = Dnf(self.module, self.params["root"])
            dnf.options += [f"--repofrompath=aside,{self.uri}", "--repo=aside", f"--setopt=cachedir={folder}"]
            dnf.options += ["--setopt=aside.module_hotfixes=1", "--setopt=aside.skip_if_unavailable=0"]
            dnf.run("dnf", *dnf.options, "--quiet", "makecache", doing=f"read {self.uri}")
            return dnf.offers(names)


def read_sources(file: str, text: str) -> list[Source]:
    """Pure: the enabled sections of a .repo file; nothing if it cannot be read."""
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return []
    sources = []
    for name in parser.sections():
        section = parser[name]
        if section.get("enabled", "1").strip().lower() in ("0", "no", "false"):
            continue
        checked = "" if section.get("gpgcheck", "1").strip().lower() in ("0", "no", "false") else "yes"
        for uri in re.split(r"[\s,]+", section.get("baseurl", "").strip()):
            if uri:
                sources.append({"file": file, "uri": uri, "key": section.get("gpgkey", "").strip(), "checked": checked})
    return sources


def repo_file(uri: str, distribution: str) -> str:
    """Return the text of nodectl's own source; each package's signature is checked."""
    lines = (f"[{NAME}]", f"name=NVIDIA CUDA for {distribution}", f"baseurl={uri}", "enabled=1", "gpgcheck=1")
    return HEADER + "\n".join((*lines, f"gpgkey=file://{KEYRING}")) + "\n"


def settings(text: str) -> dict[str, str]:
    """Pure: stream and state of such a file; dnf itself writes it with other blanks."""
    values = dict(re.findall(r"^(stream|state)\s*=[ \t]*(.*)$", text, re.MULTILINE))
    return {name: value.strip() for name, value in values.items()}
