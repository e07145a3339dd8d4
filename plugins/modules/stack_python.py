#!/usr/bin/python
# GNU General Public License v3.0 or later: it imports Ansible
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: an interpreter that the stack's wheels exist for: the distribution's, else one that uv brings."""

from __future__ import annotations

import os
import platform
import re
import urllib.error
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import ConnectionError, open_url

from ansible_collections.nodectl.fleet.plugins.module_utils import files, node_packages, python_env
from ansible_collections.nodectl.fleet.plugins.module_utils.boot_service import runner
from ansible_collections.nodectl.fleet.plugins.module_utils.files import difference

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Collection

_TIMEOUT_S = 10


def minors(low: str, high: str) -> list[str]:
    """Versions as major.minor from the newest to the oldest; both are of one major version."""
    (major, first), (_unused, last) = python_env.key(low)[:2], python_env.key(high)[:2]
    return [f"{major}.{minor}" for minor in range(last, first - 1, -1)]


def candidates(policy: str) -> dict[str, str]:
    """{package: version} from `apt-cache policy`; what has none, or a version before its release, is left out."""
    versions = {}
    for name, version in re.findall(r"^(\S+):\n(?:  \S.*\n)*?  Candidate: (\S+)$", policy, re.MULTILINE):
        if version != "(none)" and not re.search(r"~(rc|a|b)\d", version):
            versions[name] = version
    return versions


def best_download(downloads: list[dict[str, Any]], machine: str, low: str, high: str) -> dict[str, Any] | None:
    """Return the newest CPython build for this kind of machine that the wheels exist for."""
    fits = [
        item
        for item in downloads
        if item.get("implementation") == "cpython"
        and item.get("variant") == "default"
        and (item.get("os"), item.get("arch"), item.get("libc")) == ("linux", machine, "gnu")
        and re.fullmatch(r"[\d.]+", str(item.get("version")))
        and python_env.serves(item["version"], low, high)
    ]
    return max(fits, key=lambda item: python_env.key(item["version"]), default=None)


def mirrored(url: str, mirror: str) -> str:
    """Return where a mirror holds a build: below its date, under its own name."""
    if not mirror:
        return url
    return "/".join([mirror.rstrip("/"), *url.split("/")[-2:]])


def unreachable(url: str) -> str:
    """Return why a build cannot be had from here; "" if it can."""
    if not re.match(r"https?://", url):
        path = urllib.parse.unquote(re.sub(r"^file://", "", url))
        return "" if Path(path).is_file() else f"no file {path} on this host"
    try:
        open_url(url, method="HEAD", timeout=_TIMEOUT_S).close()
    except urllib.error.HTTPError as error:
        return "" if error.code == 405 else f"{url} answers {error.code}"
    except (urllib.error.URLError, ConnectionError, OSError, ValueError) as error:
        return f"{url}: {getattr(error, 'reason', error)}"
    return ""


def installed(module: AnsibleModule) -> tuple[str, str]:
    """(path, version) of the first interpreter that serves; empty if none does."""
    wanted = module.params
    low, high = wanted["min"], wanted["max"]
    interpreters = sorted(Path(wanted["folder"]).glob("cpython-*/bin/python3.[0-9]*"), reverse=True)
    managed = [str(path) for minor in minors(low, high) for path in interpreters if path.name == f"python{minor}"]
    # whoever brings none takes whatever serves
    places = ["/usr/bin"] if wanted["bring"] else ["/usr/local/bin", "/usr/bin"]
    others = [f"{place}/python{minor}" for place in places for minor in minors(low, high)]
    for path in filter(os.path.exists, ["/usr/bin/python3", *others, *managed]):
        version = python_env.version_of(runner(module), path)
        if python_env.serves(version, low, high):
            return path, version
    return "", ""


def look(module: AnsibleModule) -> dict[str, Any]:
    """Return the interpreter and how to have it; fails if none can be had."""
    wanted = module.params
    low, high, chosen = wanted["min"], wanted["max"], wanted["interpreter"]
    host = {"uv_present": os.access(wanted["uv"], os.X_OK), "machine": platform.machine()}
    if chosen:
        version = python_env.version_of(runner(module), chosen)
        if not python_env.serves(version, low, high):
            state = f"is Python {version}" if version else "does not run"
            remedy = "set python_interpreter to one of those, or leave it empty to have one chosen"
            module.fail_json(msg=f"{chosen} {state}, and the stack's wheels exist for {low} to {high}; {remedy}")
        return {"path": chosen, "version": version, "how": "present", **host}
    path, version = installed(module)
    if path:
        return {"path": path, "version": version, "how": "present", **host}
    if not wanted["bring"]:
        return {"path": "", "version": python_env.version_of(runner(module), "/usr/bin/python3"), "how": "none", **host}
    packages = [f"python{minor}" for minor in minors(low, high)]
    manager, offered = of_distribution(module, packages)
    for package in packages:
        if package in offered:
            return {"path": f"/usr/bin/{package}", "version": package[len("python") :], "how": manager, **host}
    return {**by_uv(module), **host}


def of_distribution(module: AnsibleModule, packages: list[str]) -> tuple[str, Collection[str]]:
    """(package manager, those of the interpreters' packages that it offers)."""
    if node_packages.has_dnf():
        return "dnf", node_packages.manager(module).offers(packages)
    _unused, policy, _unused = module.run_command(["apt-cache", "policy", *packages], environ_update={"LC_ALL": "C"})
    return "apt", candidates(policy)


def by_uv(module: AnsibleModule) -> dict[str, Any]:
    """Return the build that uv would bring; with `downloads` it is made sure that it can be had."""
    wanted = module.params
    low, high = wanted["min"], wanted["max"]
    plan = {"version": high, "how": "uv"}
    if wanted["downloads"] is not None:
        build = best_download(wanted["downloads"], platform.machine(), low, high)
        reason = unreachable(mirrored(build["url"], wanted["mirror"])) if build else "uv has no build of them"
        if reason:
            here = python_env.version_of(runner(module), "/usr/bin/python3") or "missing"
            module.fail_json(
                msg=f"python3 on this host is {here}, the stack's wheels exist for {low} to {high}, apt offers none of "
                f"those, and uv cannot bring one: {reason}. Set python_mirror (in nodectl's inventory: "
                "nodectl_python_mirror) to a mirror or a folder on the host that holds uv's builds, install one "
                f"yourself and name it in python_interpreter, or choose a stack for Python {here}"
            )
        plan["version"] = build["version"] if build else high
    minor = ".".join(plan["version"].split(".")[:2])
    place = f"cpython-{plan['version']}-linux-{platform.machine()}-gnu"
    return {**plan, "path": f"{wanted['folder']}/{place}/bin/python{minor}"}


def install(module: AnsibleModule, plan: dict[str, Any]) -> None:
    """Have apt, dnf or uv bring the interpreter."""
    wanted = module.params
    minor = ".".join(plan["version"].split(".")[:2])
    if plan["how"] == "dnf":
        package, manager = f"python{minor}", node_packages.manager(module)
        manager.install({package: manager.offers([package])[package][0]}, [])
        return
    if plan["how"] == "apt":
        command = ["apt-get", "install", "--yes", "--no-install-recommends", f"python{minor}"]
        environment = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    else:
        command = [wanted["uv"], "python", "install", "--no-bin", "--install-dir", wanted["folder"]]
        mirror = wanted["mirror"]
        command += ["--mirror", f"file://{mirror}" if mirror.startswith("/") else mirror] if mirror else []
        command += ["--python-downloads-json-url", wanted["catalogue"]] if wanted["catalogue"] else []
        command += ["--", f"cpython-{plan['version']}-linux-{platform.machine()}-gnu"]
        environment = {"UV_NO_CONFIG": "1", "UV_NO_PROGRESS": "1", "UV_NO_CACHE": "1"}
        if not plan["uv_present"]:
            module.fail_json(
                msg=f"no uv at {wanted['uv']} on this host; set python_uv (in nodectl's inventory: nodectl_uv) "
                "to where it is"
            )
    status, out, err = module.run_command(command, environ_update=environment)
    if status != 0:
        text = "\n".join((out + err).strip().splitlines()[-8:])
        module.fail_json(msg=f"{' '.join(command)} ended with {status}:\n{text}")
    files.relabel(wanted["folder"], below=True)


def main() -> None:
    """Look; where asked for, make it so, and look again."""
    text, place = {"type": "str", "default": ""}, {"type": "path", "required": True}
    module = AnsibleModule(
        argument_spec={
            "interpreter": text,
            "min": {"type": "str", "required": True},
            "max": {"type": "str", "required": True},
            "folder": place,
            "uv": place,
            "mirror": text,
            "downloads": {"type": "list", "elements": "dict"},
            "catalogue": text,
            "bring": {"type": "bool", "default": True},
            "state": {"type": "str", "choices": ["look", "present"], "default": "present"},
        },
        supports_check_mode=True,
    )
    before = look(module)
    if module.params["state"] == "look" or before["how"] == "present":
        module.exit_json(changed=False, **before)
    if not module.check_mode:
        install(module, before)
        after = look(module)
        if after["how"] != "present":
            module.fail_json(msg=f"{before['how']} ended well, but {before['path']} is not there", **after)
        before = after
    module.exit_json(changed=True, diff=difference("python", "", f"{before['path']}\n"), **before)


if __name__ == "__main__":
    main()
