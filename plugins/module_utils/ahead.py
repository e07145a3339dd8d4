"""Whether repositories have what a run will ask for, found before it changes anything on the node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.nodectl.fleet.plugins.module_utils import wanted_packages

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Iterable

    from ansible_collections.nodectl.fleet.plugins.module_utils.nvidia_repository import Repository

    Wanted = dict[str, Any]
    Offers = dict[str, list[str]]

# stands in a wanted version for the driver's, which is known when the driver's package is chosen
DRIVER = "@driver"


def lacking(repository: Repository, wanted: list[Wanted]) -> list[str]:
    """What no repository has, one reason each; NVIDIA's is read aside where the node's own lists lack something."""
    names = sorted({name for each in wanted for name in each["names"]})
    there = {name: package["version"] for name, package in repository.system.packages().items() if _whole(package)}
    offers = repository.system.offers(names)
    if not reasons(wanted, offers, there):
        return []
    aside = repository.read_aside(names)
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
        version = next(
            (there[name] for name in each["names"] if wanted_packages.matches(there.get(name, ""), pattern)), ""
        )
        try:
            version = version or wanted_packages.choose({**each, "version": pattern}, offers)[1]
        except wanted_packages.NoVersionError as error:
            hint = each.get("hint")
            found.append(f"{error} ({hint})" if hint else str(error))
        if each.get("driver"):
            driver = version.partition("-")[0]
    return found
