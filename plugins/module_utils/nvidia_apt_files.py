"""The files below /etc/apt that make NVIDIA's repository what a stack says; the one place of their names and text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ansible_collections.nodectl.fleet.plugins.module_utils import node_packages

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Iterable

SOURCE = "/etc/apt/sources.list.d/nodectl-nvidia.sources"
KEYRING = "/etc/apt/keyrings/nodectl-nvidia.gpg"
PREFERENCES = "/etc/apt/preferences.d/90-nodectl-nvidia"
UNATTENDED = "/etc/apt/apt.conf.d/90-nodectl-unattended"
HEADER = "{comment} Written by nodectl from the host's stack profile; changes made here are lost.\n"
# NVIDIA's names of architectures, and Debian's
ARCHITECTURES = {"x86_64": "amd64", "sbsa": "arm64"}
# preferred over a newer one, but never a reason to go back from one that is installed
WANTED, NEVER = 990, -1
# as NVIDIA's Release file calls its repository
LABEL = "NVIDIA CUDA"
# a new driver, fabric manager or kernel under a running job breaks it: `Driver/library version mismatch`
FROZEN = (
    "^cuda-drivers",
    "^libnvidia-",
    "^libxnvctrl",
    "^linux-(generic|headers|image|modules|nvidia|objects|signatures)",
    "^nvidia-",
    "^xserver-xorg-video-nvidia",
)


def source(uri: str, architecture: str, keyring: str = KEYRING) -> str:
    """The deb822 source: a flat repository, its own key, its own architecture."""
    return (
        HEADER.format(comment="#")
        + f"Types: deb\nURIs: {uri}\nSuites: /\nArchitectures: {ARCHITECTURES[architecture]}\nSigned-By: {keyring}\n"
    )


def preferences(pins: Iterable[dict[str, Any]], driver_branch: str) -> str:
    """Each pinned package has one candidate, the driver only those of its branch, or none at all."""
    records = []
    for pin in sorted(pins, key=lambda pin: str(pin["name"])):
        records += [record(pin["name"], f"version {pin['version']}", WANTED), record(pin["name"], "version *", NEVER)]
    family = " ".join(node_packages.DRIVER_FAMILY)
    # first what the pattern of the family would catch, but is no driver
    records += [record(name, "version *", 500) for name in node_packages.NOT_DRIVER]
    if driver_branch:
        records.append(record(family, f"version {driver_branch}*", WANTED))
        records.append(record(family, "version *", NEVER))
    else:
        records.append(record(family, f"release l={LABEL}", NEVER))
    return HEADER.format(comment="#") + "\n" + "\n".join(records)


def record(packages: str, pin: str, priority: int) -> str:
    """One paragraph of apt_preferences(5)."""
    return f"Package: {packages}\nPin: {pin}\nPin-Priority: {priority}\n"


def unattended() -> str:
    """What unattended-upgrades leaves alone; the list adds to the distribution's."""
    names = "".join(f'  "{name}";\n' for name in FROZEN)
    return HEADER.format(comment="//") + f"Unattended-Upgrade::Package-Blacklist {{\n{names}}};\n"
