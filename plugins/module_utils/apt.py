# SPDX-License-Identifier: Apache-2.0
"""apt and dpkg on a node: what they hold, which repositories they name, what they would do, and how they are called."""

from __future__ import annotations

import fnmatch
import os
import re
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.nodectl.fleet.plugins.module_utils.files import read_or, read_text
from ansible_collections.nodectl.fleet.plugins.module_utils.wanted_packages import (
    BROKEN,
    PackagesError,
    is_driver_part,
    there,
)

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Iterable, Iterator

    from ansible_collections.nodectl.fleet.plugins.module_utils.undo.live import Run

    Package = dict[str, Any]
    Packages = dict[str, Package]
    Steps = list[dict[str, str]]
    Offers = dict[str, list[str]]

STATUS = "/var/lib/dpkg/status"
MARKS = "/var/lib/apt/extended_states"
# a host that loses these loses its GPUs, so they go by name only (`--packages`); docs/rollback.md lists them too.
# Names of NVIDIA's and the distributions' repositories alike: with the branch in them (Ubuntu up to 580) and without
# (Debian's always, Ubuntu's from 590 on). Much else has such a name; a driver's part also has a driver's version
DRIVER_FAMILY = (
    "cuda-drivers*",
    "firmware-nvidia-*",
    "lib*-nvidia*",
    "libcuda1",
    "libcudadebugger1",
    "libnvcuvid1",
    "libnvidia-*",
    "libnvoptix1",
    "libnvsdm*",
    "libxnvctrl*",
    "nvidia-*",
    "nvlink5*",
    "xserver-xorg-video-nvidia*",
)
# modules that a distribution built for one of its kernels: the version is the kernel's
DRIVER_MODULES = ("linux-modules-nvidia-*", "linux-objects-nvidia-*", "linux-signatures-nvidia-*")
_DRIVER_PACKAGE = re.compile(
    r"(cuda-drivers(-\d+)?|nvidia-open(-\d+)?|nvidia-fabricmanager(-.+)?"  # NVIDIA
    r"|nvidia-driver(?!-pinning|-assistant)(-.+)?|nvidia-(open-)?kernel-.+|nvidia-smi|libcuda1"  # NVIDIA and Debian
    r"|(lib)?nvidia-(legacy|tesla)-.+"  # Debian, for older cards
    r"|nvidia-(dkms|headless|utils)(-.+)?|libnvidia-compute(-.+)?"  # Ubuntu
    r"|linux-(modules|objects|signatures)-nvidia-.+)\Z"  # Ubuntu, for one kernel
)
_DISTRIBUTION = re.compile(r"[@.](ubuntu|debian|canonical)\.(com|net|org)", re.I)


def is_driver(key: str, version: str) -> bool:
    """Return whether this version of a package (`name` or `name:architecture`) is a part of a GPU driver."""
    name = key.partition(":")[0]
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in DRIVER_MODULES) or is_driver_part(
        name, version, DRIVER_FAMILY
    )


def driver_parts(root: str = "/") -> Iterator[Package]:
    """Yield what makes a driver, of the installed: name, version, and whose they are (nvidia, distribution, other)."""
    for fields in stanzas(read_or(os.path.join(root, STATUS.lstrip("/")))):
        name, version = fields["Package"], fields.get("Version", "")
        if fields.get("Status", "").endswith(" installed") and _DRIVER_PACKAGE.match(name) and is_driver(name, version):
            maintainer = fields.get("Maintainer", "")
            others = "distribution" if _DISTRIBUTION.search(maintainer) else "other"
            owner = "nvidia" if "@nvidia.com" in maintainer.lower() else others
            yield {"name": name, "version": version, "from": owner}


def stanzas(text: str) -> Iterator[dict[str, str]]:
    """Paragraphs of `Field: value`; continuation lines are not needed here and left out."""
    for block in text.split("\n\n"):
        fields = {}
        for line in block.splitlines():
            name, colon, value = line.partition(":")
            if colon and not line[0].isspace():
                fields[name] = value.strip()
        if "Package" in fields:
            yield fields


def parse(status: str, marks: str) -> Packages:
    """Return {key: version, selection, state, auto}; a key has `:architecture` only if that is foreign."""
    paragraphs = [fields for fields in stanzas(status) if fields.get("Status", "").split()[2:] != ["not-installed"]]
    native = next((fields["Architecture"] for fields in paragraphs if fields["Package"] == "dpkg"), "all")
    automatic = {
        (fields["Package"], fields.get("Architecture", native))
        for fields in stanzas(marks)
        if fields.get("Auto-Installed") == "1"
    }
    packages = {}
    for fields in paragraphs:
        name, architecture = fields["Package"], fields.get("Architecture", native)
        key = name if architecture in (native, "all") else "%s:%s" % (name, architecture)
        flags = fields.get("Status", "").split()
        if len(flags) != 3:
            continue
        packages[key] = {
            "version": fields.get("Version", ""),
            "selection": flags[0],
            "state": flags[2],
            # apt notes a package for all architectures under the machine's own
            "auto": (name, architecture) in automatic or (architecture == "all" and (name, native) in automatic),
        }
    return packages


def installed_now(root: str = "/") -> Packages:
    """Return the node's packages, without asking a program."""
    status, marks = (read_text(os.path.join(root, path.lstrip("/"))) for path in (STATUS, MARKS))
    return parse(status, marks)


def sources(root: str, _uri: str) -> list[dict[str, str]]:
    """Return every enabled source: file, uri, and why its packages are not to be trusted ("" if they are)."""
    apt = Path(root, "etc/apt")
    found = []
    for path in [apt / "sources.list", *sorted(apt.glob("sources.list.d/*"))]:
        reader = {".sources": deb822, ".list": one_line}.get(path.suffix)
        for uri, options in reader(read_or(str(path))) if reader else ():
            found.append({"file": f"/{path.relative_to(root)}", "uri": uri, "problem": problem(root, options)})
    return found


def one_line(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield address and options of `deb [signed-by=KEY] URI SUITE ...` lines."""
    for line in text.splitlines():
        match = re.match(r"\s*deb\s+(?:\[([^\]]*)\]\s*)?(\S+)\s+\S+", line)
        if match:
            yield match[2], dict(re.findall(r"([\w-]+)\s*\+?=\s*(\S+)", match[1] or ""))


def deb822(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield address and fields of paragraphs of `Types`, `URIs`, `Suites`, `Signed-By`."""
    for block in re.split(r"\n\s*\n", text):
        lines = re.sub(r"\n\s+", " ", "\n".join(line for line in block.splitlines() if line[:1] != "#")).splitlines()
        fields = {name.lower(): value.strip() for name, _unused, value in (line.partition(":") for line in lines)}
        enabled = fields.get("enabled", "yes").lower() not in ("no", "false", "0")
        if enabled and "deb" in fields.get("types", "").split():
            for uri in fields.get("uris", "").split():
                yield uri, fields


def problem(root: str, options: dict[str, str]) -> str:
    """Return why packages of a source with these options are not to be trusted; "" if they are."""
    signed_by = (options.get("signed-by", "").split() or [""])[0]
    if options.get("trusted", "").lower() in ("yes", "true", "1"):
        return "without checking signatures (trusted=yes)"
    if not signed_by:
        return "with no signed-by, so with any key that apt trusts"
    if signed_by[0] == "/" and not Path(root, signed_by.lstrip("/")).exists():
        return f"signed by {signed_by}, which is not there"
    return ""


def parse_simulation(text: str) -> Steps:
    """Return `apt-get --simulate`: each package that would be installed, changed or removed."""
    steps = []
    for line in text.splitlines():
        match = re.match(r"(Inst|Remv|Purg) (\S+)(?: \[([^\]]*)\])?(?: \((\S+))?", line)
        if match:
            action = "install" if match[1] == "Inst" else "remove"
            steps.append({"action": action, "name": match[2], "before": match[3] or "", "after": match[4] or ""})
    return steps


ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "DEBCONF_NONINTERACTIVE_SEEN": "true",
    "APT_LISTCHANGES_FRONTEND": "none",
    # Ubuntu's needrestart would restart the services of running jobs
    "NEEDRESTART_SUSPEND": "1",
    "LC_ALL": "C.UTF-8",
}
LOCK_SECONDS = 300
CONFOLD = ("-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold")

# what apt needs below a root of its own
FOLDERS = (
    *("etc/apt/preferences.d", "etc/apt/sources.list.d", "var/lib/apt/lists/partial"),
    *("var/cache/apt/archives/partial", "var/lib/dpkg"),
)


class Manager:
    """The node's apt; `root` other than / is for looking and planning only, dpkg never runs there."""

    name = "apt"
    elsewhere = False

    def __init__(self, execute: Run, root: str = "/") -> None:
        self.execute, self.root = execute, root
        self._has_renewed = False
        self._unread = ""
        private = ["-o", f"Dir={root}", "-o", f"Dir::State::status={root}/var/lib/dpkg/status"] if root != "/" else []
        private += ["-o", "APT::Sandbox::User=root"] if private else []
        self.options = ["-o", f"DPkg::Lock::Timeout={LOCK_SECONDS}", *private]

    def call(self, program: str, *args: str) -> tuple[int, str, str]:
        """Run a program of apt's on this root: (exit status, output, errors)."""
        return self.execute([program, *self.options, *args], environ_update=ENVIRONMENT)

    def run(self, program: str, *args: str, doing: str) -> str:
        """Return the output; PackagesError with apt's last words if it fails."""
        status, out, err = self.call(program, *args)
        if status:
            lines = [line for line in (out + err).strip().splitlines() if line.strip()]
            marks = (" ", "E:", "dpkg: error", "Error")
            errors = [line.strip() for line in lines if line.startswith(marks) and ":" in line]
            raise PackagesError("apt could not {}: {}".format(doing, "\n".join((errors or lines)[-12:])))
        return out

    def offers(self, names: list[str]) -> dict[str, list[str]]:
        """{package: its versions, newest first}, whatever the pins say; a name may be a pattern."""
        if not self._has_lists():  # as on an image: apt would know of no package at all
            self.renew()
        exact = [name for name in names if "*" not in name]
        for pattern in (name for name in names if "*" in name):
            _status, out, _unused = self.call("apt-cache", "pkgnames", re.split(r"[*\[?]", pattern)[0])
            exact += sorted(fnmatch.filter(out.split(), pattern))
        out, offers = self.call("apt-cache", "madison", *exact)[1] if exact else "", {}
        for line in out.splitlines():
            cells = [cell.strip() for cell in line.split("|")]
            if len(cells) == 3 and "Packages" in cells[2] and cells[1] not in offers.setdefault(cells[0], []):
                offers[cells[0]].append(cells[1])
        return offers

    def _has_lists(self) -> bool:
        return any(Path(self.root, "var/lib/apt/lists").glob("*_Packages*"))

    def renew(self) -> bool:
        """Have apt read all its sources, once; False if that was done already."""
        if self._has_renewed:
            return False
        self._has_renewed = True
        status, out, err = self.call("apt-get", "update", "--quiet")
        errors = [line for line in (out + err).splitlines() if line.startswith(("E:", "W:", "Err:"))]
        self._unread = "; ".join(errors[:3]) or ("exit status %d" % status if status else "")
        return True

    def read(self, uri: str, file: str) -> None:
        """Have apt read this repository, and no other."""
        only = ["-o", f"Dir::Etc::SourceList={Path(self.root, file.lstrip('/'))}", "-o", "Dir::Etc::SourceParts=-"]
        only += ["-o", "APT::Get::List-Cleanup=0", "-o", "APT::Update::Error-Mode=any"]
        self.run("apt-get", "update", "--quiet", *only, doing=f"read {uri} (named in {file})")

    def without_lists(self) -> str:
        """Return what to add to 'no repository has it' if apt could not read its sources; "" if it could."""
        reason = " (`apt-get update` ended with: %s)" % self._unread if self._unread else ""
        if self._has_lists():
            return reason
        return (
            "; apt has read no list of packages here, /var/lib/apt/lists is empty%s: correct apt's sources, then run "
            "`apt-get update`, or a task of ansible.builtin.apt with update_cache: true before this one" % reason
        )

    def packages(self) -> Packages:
        """Return what dpkg holds now, by its own file."""
        return installed_now(self.root)

    def interrupted(self, present: Packages) -> list[str]:
        """Return packages that an earlier run, killed in the middle, left half done; `(journal)` for dpkg's own."""
        journal = Path(self.root, "var/lib/dpkg/updates")
        left = ["(journal)"] if journal.is_dir() and any(journal.iterdir()) else []
        return left + sorted(name for name in present if present[name]["state"] in BROKEN)

    def repair(self) -> None:
        """Bring an interrupted installation to its end; dpkg itself does not wait for a lock, so this does."""
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            argv = ["dpkg", "--configure", "-a", "--force-confdef", "--force-confold"]
            status, _unused, err = self.execute(argv, environ_update=ENVIRONMENT)
            # what fails for a dependency that never came is apt's to bring, or to say
            if not status or "lock" not in err or time.monotonic() > deadline:
                break
            time.sleep(3)
        fix = ("--fix-broken", "install", "--yes", "--no-install-recommends", "--no-remove", *CONFOLD)
        self.run("apt-get", *fix, doing="repair an interrupted installation")

    def offers_aside(self, uri: str, suite: str, names: list[str]) -> Offers:
        """Return what a repository offers that is no source yet; only its lists are read, so no key is needed."""
        with tempfile.TemporaryDirectory(prefix="nodectl-apt-") as root:
            for folder in FOLDERS:
                Path(root, folder).mkdir(parents=True)
            Path(root, "var/lib/dpkg/status").touch()
            line = f"deb [trusted=yes] {uri} {suite}\n"
            Path(root, "etc/apt/sources.list.d/aside.list").write_text(line, encoding="utf-8")
            apt = Manager(self.execute, root)
            apt.run("apt-get", "update", "--quiet", "-o", "APT::Update::Error-Mode=any", doing=f"read {uri}")
            return apt.offers(names)

    def came(self, name: str, _package: dict[str, Any]) -> float:
        """Return when dpkg wrote the list of its files, in seconds since 1970; 0 if it has none."""
        try:
            return Path(self.root, f"var/lib/dpkg/info/{name}.list").stat().st_mtime
        except OSError:
            return 0

    @staticmethod
    def holds(_name: str) -> bool:
        """Return whether the package is one to hold: each is."""
        return True

    def plan(self, choice: dict[str, str], gone: list[str]) -> Steps:
        """Return what apt would do, by its own solver."""
        arguments = [word for word in self.words(choice, gone) if word != "--no-remove"]  # to name what would go
        return parse_simulation(self.run("apt-get", "--simulate", *arguments, doing=f"plan {' '.join(choice)}"))

    def words(self, choice: dict[str, str], gone: list[str]) -> list[str]:
        """Return apt-get's arguments to install `choice` and remove `gone`; without `gone` its guards stay on."""
        guards = ["--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages"]
        guards += [] if gone else ["--no-remove"]
        pins = [f"{name}={version}" for name, version in sorted(choice.items())]
        return ["install", "--yes", *guards, *CONFOLD, *pins, *(f"{name}-" for name in gone)]

    def install(self, choice: dict[str, str], gone: list[str]) -> bool:
        """Follow the plan. Return False, once, if apt's lists name what is gone: they are new now, so choose again."""
        words = self.words(choice, gone)
        if not self._has_renewed and "Failed to fetch" in self.call("apt-get", "--download-only", *words)[2]:
            return not self.renew()
        self.run("apt-get", *words, doing=f"install {' '.join(choice) or ', '.join(gone)}")
        return True

    def hold(self, names: list[str]) -> None:
        """Keep each at the version that it has."""
        self.run("apt-mark", "hold", *names, doing=f"hold {' '.join(names)}")

    def steps(self, choice: dict[str, str], gone: list[str]) -> list[tuple[dict[str, str], list[str]]]:
        """Return the transactions that restore versions and purge `gone`: one, since each may need the other."""
        self.options += ["-o", "APT::Get::Purge=true", "-o", "APT::Get::AutomaticRemove=false"]
        return [(choice, gone)] if choice or gone else []

    def restore_marks(self, changes: Iterable[dict[str, Any]]) -> None:
        """Restore holds and manual marks, and purge what is left of packages that were not installed."""
        present, todo = self.packages(), {}
        for change in changes:
            old, new, key = change["before"], present.get(change["subject"]), change["subject"]
            if old is None and new is not None and new["state"] == "config-files":
                self.execute(["dpkg", "--purge", key], environ_update=ENVIRONMENT)
            if not there(old) or new is None:
                continue
            if old["selection"] != new["selection"] and "hold" in (old["selection"], new["selection"]):
                todo.setdefault("hold" if old["selection"] == "hold" else "unhold", []).append(key)
            if old["auto"] != new["auto"]:
                todo.setdefault("auto" if old["auto"] else "manual", []).append(key)
        for verb, keys in sorted(todo.items()):
            self.run("apt-mark", verb, *keys, doing=f"{verb} {' '.join(keys)}")
