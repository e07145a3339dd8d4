# SPDX-License-Identifier: Apache-2.0
"""Ansible filters: what a host's look and its stack profile mean for NVIDIA's packages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Look = Mapping[str, Any]
# if no family of distributions is named: Debian's words, as nodectl/profiles/families.yml has them
DEBIAN: Mapping[str, Any] = {
    "headers": "linux-headers-{kernel}",
    "driver_needs": {},
    "precompiled": None,
    "other_names": {},
    "remedies": {"unhold": "apt-mark unhold", "boot": "`apt-get autoremove --purge`"},
}


def wanted_driver(
    wanted: Mapping[str, Any] | None, node: Look, modules: str = "dkms", family: Mapping[str, Any] | None = None
) -> dict[str, Any] | None:
    """Return the stack's driver as this host gets it: with modules that DKMS builds, or with precompiled ones."""
    from nodectl.profiles import driver_policy as policy  # here: roles take the other filters without nodectl

    if not wanted or modules != "precompiled":
        return dict(wanted) if wanted else None
    return policy.precompiled_driver(wanted, (family or DEBIAN)["precompiled"], node["os"]["key"])


def driver_packages(wanted: Mapping[str, Any] | None) -> list[str]:
    """Names of the wanted driver's package, the most exact first."""
    if not wanted or "names" in wanted:
        return list(wanted["names"]) if wanted else []
    from nodectl.profiles import driver_policy as policy

    return list(policy.driver_packages(wanted["branch"], wanted["flavour"]))


def driver_stream(wanted: Mapping[str, Any] | None, mode: str) -> str:
    """Return the module stream of a managed driver, where dnf has it; empty if none is managed."""
    from nodectl.profiles import driver_policy as policy

    if not wanted or mode != "manage":
        return ""
    return str(wanted.get("stream") or policy.driver_stream(wanted["branch"], wanted["flavour"]))


def driver_beside(wanted: Mapping[str, Any] | None, node: Look, driver: str = "@driver") -> list[dict[str, Any]]:
    """Return what comes with precompiled modules: the driver's programs, and the modules of the kernel that boots next.

    `driver` is the driver's version without its release, where it is known.
    """
    if not wanted or wanted.get("modules") != "precompiled":
        return []
    beside = [wanted_package(name, f"{driver}-*") for name in wanted["beside"]]
    kernel = _next_kernel(node)
    return [*beside, wanted_package(_of_kernel(wanted["module"], kernel, driver))] if kernel else beside


def _next_kernel(node: Look) -> str:
    return "" if node.get("container") else (node.get("boot") or {}).get("kernel") or node["kernel"]


def _of_kernel(name: str, kernel: str, driver: str) -> str:
    plain = re.sub(r"\.(el|fc)\d.*$", "", kernel)
    return name.replace("{kernel}", kernel).replace("{plain}", plain).replace("@driver", driver)


def _precompiled(wanted: Mapping[str, Any], node: Look) -> list[dict[str, Any]]:
    """Return `driver_beside`, each with what to look for in its place, and what to do where it is nowhere."""
    kernel = _next_kernel(node)
    hint = (
        f"nvidia_driver_modules is precompiled, and the next boot starts kernel {kernel}: boot one that has them, name "
        "another branch of the driver (nodectl_overrides: stack.driver.branch), or set nvidia_driver_modules to dkms"
    )
    others = [_of_kernel(text, kernel, "@driver") for text in wanted["others"]]
    return [{**package, "hint": hint, "others": others} for package in driver_beside(wanted, node)]


def driver_mode(node: Look, wanted: Mapping[str, Any] | None, asked: str = "") -> str:
    """`asked` where it says something; else keep what works or is not ours."""
    from nodectl.profiles import driver_policy as policy

    return policy.driver_policy(node["driver"], wanted, asked)


def driver_objection(node: Look, mode: str, wanted: Mapping[str, Any] | None = None) -> str:
    """Return why a managed driver cannot be on this host; "" if it can."""
    driver = node["driver"]
    if mode != "manage":
        return ""
    if driver["origin"] == "dgx":
        return "a DGX release owns this host's driver (/etc/dgx-release)"
    if driver["origin"] == "run":
        return "NVIDIA's own installer put a driver here (nvidia-uninstall removes it)"
    wanted = wanted or {}
    # a package that is asked for by name has its own source
    named = (package["from"] for package in driver["packages"] if package["name"] in wanted.get("names", ()))
    origin = next(named, wanted.get("origin", "nvidia"))
    strange = [package["name"] for package in driver["packages"] if package["from"] != origin]
    if strange:
        source = "NVIDIA's repository" if origin == "nvidia" else "the distribution, whose driver is asked for"
        return f"the driver here comes from another source than {source}: {', '.join(strange[:6])}"
    return f"a driver of unknown origin, {driver['version']}, is loaded" if driver["origin"] == "foreign" else ""


def gpu_work(node: Look) -> str:
    """Return processes on a GPU, as one line, without the driver's own services."""
    services = ("nvidia-persiste", "nv-hostengine", "nv-fabricmanage", "nvidia-smi", "dcgm-exporter")
    users = [
        f"{user['name']} (pid {user['pid']})" for user in node.get("gpu_users", ()) if user["name"] not in services
    ]
    return f"a GPU is in use by {', '.join(users)}: stop them first" if users else ""


def nvidia_pins(stack: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the packages of a stack whose version is fixed; only NCCL's pin may give way to its nearest."""
    pins = []
    toolkit = stack.get("toolkit") or {}
    if toolkit.get("version"):
        pins.append(wanted_package(toolkit["package"], toolkit["version"]))
    for key in ("system_cudnn", "system_nccl"):
        for name, version in ((stack.get(key) or {}).get("packages") or {}).items():
            pins.append(wanted_package(name, version, key == "system_nccl"))
    return pins


def wanted_package(name: str, version: str | None = None, nearest: bool = False) -> dict[str, Any]:
    """One package as the module pinned_packages takes it."""
    return {"names": [name], "version": version, "nearest": nearest}


def wanted_packages(versions: Mapping[str, str], nearest: bool = False) -> list[dict[str, Any]]:
    """Return packages and their versions as the module pinned_packages takes them."""
    return [wanted_package(name, version, nearest) for name, version in sorted(versions.items())]


def fabric_manager_packages(
    driver: str, nvlink5: bool = False, family: Mapping[str, Any] | None = None, *, branch: str = ""
) -> list[dict[str, Any]]:
    """Fabric manager in the driver's version, what comes with it for NVLink 5, and NSCQ if a repository has it.

    DCGM asks NVSwitches through NSCQ. `branch` is given if the driver's version is not known yet.
    """
    branch, version, others = branch or driver.partition(".")[0], f"{driver}-*", (family or DEBIAN)["other_names"]
    names = ["nvidia-fabricmanager", "libnvsdm"] if nvlink5 else ["nvidia-fabricmanager"]
    parts = [{"names": [f"{name}-{branch}", name, *others.get(name, ())], "version": version} for name in names]
    # of NVIDIA's meta package nvlink5, which itself takes any newer version and brings a driver; the unit asks ibstat
    more = [wanted_package("nvlsm"), wanted_package("infiniband-diags")] if nvlink5 else []
    switches = {"names": [f"libnvidia-nscq-{branch}", "libnvidia-nscq"], "version": version, "optional": True}
    return [*parts, *more, switches]


def imex_packages(driver: str, *, branch: str = "") -> list[dict[str, Any]]:
    """IMEX in the driver's version, for memory of other nodes over NVLink."""
    named = f"nvidia-imex-{branch or driver.partition('.')[0]}"
    return [{"names": [named, "nvidia-imex"], "version": f"{driver}-*"}]


def asked_packages(
    stack: Mapping[str, Any],
    node: Look,
    mode: str,
    nvswitch: bool,
    family: Mapping[str, Any] | None = None,
    imex: bool = False,
) -> list[dict[str, Any]]:
    """All that the roles of this stack will ask the package manager for on this host, the driver first."""
    wanted, loaded, family = stack.get("driver"), node["driver"]["version"], family or DEBIAN
    asked, nvlink5 = nvidia_pins(stack), bool(node.get("nvlink5"))
    toolkit = (stack.get("toolkit") or {}).get("package")
    asked += [wanted_package(toolkit)] if toolkit else []
    without = "leave it out where no repository has it: nodectl_overrides: {stack: {dcgm: []}}"
    asked += [{**wanted_package(name), "hint": without} for name in stack.get("dcgm") or []]
    if mode == "manage" and wanted:
        branch = wanted["branch"]
        driver = {"names": driver_packages(wanted), "version": f"{branch}.*", "driver": True}
        manager = fabric_manager_packages("@driver", nvlink5, family, branch=branch) if nvswitch else []
        needed = [{**wanted_package(name), "hint": hint} for name, hint in family["driver_needs"].items()]
        built = [*needed, *map(wanted_package, driver_headers(node, family))]
        precompiled = wanted.get("modules") == "precompiled"
        beside = [*manager, *(imex_packages("@driver", branch=branch) if imex else [])]
        asked = [driver, *(_precompiled(wanted, node) if precompiled else built), *asked, *beside]
    elif loaded:
        asked += fabric_manager_packages(loaded, nvlink5, family) if nvswitch else []
        asked += imex_packages(loaded) if imex else []
    return asked


def driver_headers(node: Look, family: Mapping[str, Any] | None = None) -> list[str]:
    """Return the packages of headers that a module needs: for the kernel of the next boot, where it has none."""
    # a container's kernel is its host's
    boot = {} if node.get("container") else node.get("boot") or {}
    kernel = boot.get("kernel")
    return [(family or DEBIAN)["headers"].format(kernel=kernel)] if kernel and not boot["headers"] else []


def driver_obstacles(
    node: Look,
    mode: str,
    wanted: Mapping[str, Any] | None,
    signed: bool = False,
    family: Mapping[str, Any] | None = None,
) -> list[str]:
    """Why a driver that would be installed here would not load after the reboot; empty if it is there already."""
    boot, reasons, family = node.get("boot") or {}, [], family or DEBIAN
    if mode == "manage" and wanted and wanted.get("refused"):
        return [wanted["refused"]]
    if mode != "manage" or not wanted or node.get("container") or _installed(node, wanted):
        return []
    if "microsoft" in str(node.get("kernel", "")).lower():
        return ["this is WSL2, where Windows' driver serves the GPUs and another one breaks them: keep it"]
    if node.get("secure_boot") and not signed:
        reasons += _unsigned(wanted, family)
    if boot.get("free_mib") is not None and boot["free_mib"] < boot["needed_mib"]:
        reasons.append(
            f"/boot has {boot['free_mib']} MiB free, a new initramfs beside the old one needs {boot['needed_mib']}: "
            f"remove old kernels ({family['remedies']['boot']})"
        )
    named = family["headers"].partition("-{")[0]
    built = wanted.get("modules") != "precompiled"
    held = [name for name in boot.get("held") or () if built and name.startswith(named)]
    if held and driver_headers(node, family):
        reasons.append(
            f"{', '.join(held)} is held, and kernel {boot['kernel']}, which the next boot starts, has no headers: "
            f"`{family['remedies']['unhold']}` it, or install {family['headers'].format(kernel=boot['kernel'])}"
        )
    return reasons


def _unsigned(wanted: Mapping[str, Any], family: Mapping[str, Any]) -> list[str]:
    enrolled = wanted.get("enrolled")
    if wanted.get("modules") == "precompiled":
        way = "enroll it (`mokutil --import`) and set nvidia_driver_signed"
        return [f"Secure Boot is on, and does not know {enrolled}: {way}"] if enrolled else []
    row = family.get("precompiled") or {}
    other = "" if row.get("enrolled") or wanted["flavour"] not in row.get("flavours", ()) else row["module"]
    kind = "-open" if wanted["flavour"] == "open" else ""
    named = other.replace("{branch}", wanted["branch"]).replace("{open}", kind).partition("-{")[0]
    signed = f", or set nvidia_driver_modules to precompiled ({named}-...), which are signed" if named else ""
    return [
        "Secure Boot is on, and refuses modules that DKMS builds unless their key is enrolled: enroll DKMS's key "
        "(`mokutil --import`, /var/lib/dkms/mok.pub or /var/lib/shim-signed/mok/MOK.der) and set nvidia_driver_signed"
        + signed
    ]


def driver_notes(node: Look, mode: str, wanted: Mapping[str, Any] | None) -> list[str]:
    """Return what an operator should know before a driver is installed here."""
    boot, notes = node.get("boot") or {}, []
    precompiled = bool(wanted) and (wanted or {}).get("modules") == "precompiled"
    if precompiled and mode == "keep" and node["driver"]["packages"]:
        return ["nvidia_driver_modules is precompiled, and the driver here is kept as it is (nvidia_driver_mode)"]
    if precompiled and mode == "manage":
        notes.append(
            "each kernel needs precompiled modules of its own: after an upgrade of it provision before the reboot"
        )
    if mode != "manage" or not wanted or _installed(node, wanted):
        return notes
    if node.get("nouveau"):
        notes.append("nouveau is loaded: NVIDIA's packages keep it off from the next boot on; it loads only then")
    if boot.get("kernel") and boot["kernel"] != node["kernel"]:
        which = "come for the next one" if precompiled else "are built for both"
        notes.append(f"the next boot starts kernel {boot['kernel']}, not {node['kernel']}: the modules {which}")
    if boot.get("held") and not precompiled:
        notes.append(f"the kernel is held ({', '.join(boot['held'])}): its module is built for this kernel only")
    return notes


def _installed(node: Look, wanted: Mapping[str, Any]) -> bool:
    names, branch = driver_packages(wanted), f"{wanted['branch']}."
    return any(part["name"] in names and part["version"].startswith(branch) for part in node["driver"]["packages"])


class FilterModule:
    """The class in which Ansible looks for filters."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """{name of a filter: its function}."""
        named: tuple[Callable[..., Any], ...] = (
            *(asked_packages, driver_beside, driver_mode, driver_notes, driver_objection, driver_obstacles),
            *(driver_packages, driver_stream, fabric_manager_packages, gpu_work, imex_packages, nvidia_pins),
            *(wanted_driver, wanted_package, wanted_packages),
        )
        return {function.__name__: function for function in named}
