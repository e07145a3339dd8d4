"""Whether repositories have what a run will ask for, found before it changes anything on the node."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.nodectl.fleet.plugins.module_utils.apt import plan, sources
from ansible_collections.nodectl.fleet.plugins.module_utils.apt.run import Apt

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Iterable

    from ansible_collections.nodectl.fleet.plugins.module_utils.apt.nvidia import Repository

    Wanted = dict[str, Any]
    Offers = dict[str, list[str]]

# stands in a wanted version for the driver's, which is known when the driver's package is chosen
DRIVER = "@driver"
FOLDERS = ("etc/apt/preferences.d", "var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "var/lib/dpkg")


def lacking(repository: Repository, wanted: list[Wanted]) -> list[str]:
    """What no repository has, one reason each; NVIDIA's is read aside where apt's own lists lack something."""
    names = sorted({name for each in wanted for name in each["names"]})
    there = {name: package["version"] for name, package in repository.apt.packages().items() if _whole(package)}
    offers = repository.apt.offers(names)
    if not reasons(wanted, offers, there):
        return []
    aside = read_aside(repository, names)
    return reasons(wanted, {name: [*offers.get(name, []), *aside.get(name, [])] for name in names}, there)


def _whole(package: dict[str, Any]) -> bool:
    return bool(package["state"] == "installed")


def reasons(wanted: Iterable[Wanted], offers: Offers, there: dict[str, str]) -> list[str]:
    """Pure: why each of them cannot be; what is installed as wanted is not asked for."""
    found, driver = [], ""
    for each in wanted:
        if DRIVER in (each.get("version") or "") and not driver:
            continue  # the driver itself is lacking, and said
        pattern = (each.get("version") or "").replace(DRIVER, driver) or None
        version = next((there[name] for name in each["names"] if plan.matches(there.get(name, ""), pattern)), "")
        try:
            version = version or plan.choose({**each, "version": pattern}, offers)[1]
        except plan.NoVersionError as error:
            found.append(str(error))
        if each.get("driver"):
            driver = version.partition("-")[0]
    return found


def read_aside(repository: Repository, names: list[str]) -> Offers:
    """What NVIDIA's repository offers now, read below a folder of its own: the node's apt is left as it is."""
    with tempfile.TemporaryDirectory(prefix="nodectl-apt-") as root:
        for folder in (*FOLDERS, "etc/apt/sources.list.d"):
            Path(root, folder).mkdir(parents=True)
        Path(root, "var/lib/dpkg/status").touch()
        key = Path(root, "key.gpg")
        key.write_bytes(_key(repository))
        line = f"deb [signed-by={key}] {repository.uri} /\n"
        Path(root, "etc/apt/sources.list.d/aside.list").write_text(line, encoding="utf-8")
        apt = Apt(repository.module, root)
        apt.run("apt-get", "update", "--quiet", "-o", "APT::Update::Error-Mode=any", doing=f"read {repository.uri}")
        return apt.offers(names)


def _key(repository: Repository) -> bytes:
    """The repository's key, or the keyring of the source that is adopted."""
    file = repository.adopted()
    for source in sources.read(str(repository.root)) if file else ():
        if source["file"] == file and sources.same(source["uri"], repository.uri):
            return repository.read(source["signed_by"]) or b""
    return repository.key()
