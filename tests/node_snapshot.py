#!/usr/bin/env python3
"""A node's state by other means than nodectl's own record: taken on the node, compared anywhere.

    node_snapshot.py take > before.json                      on the node, as root; Python 3.8+, standard library only
    node_snapshot.py compare before.json after.json [docs/rollback.md]

Lines are `kind subject`: path, package, hold, manual, unit, active, value. The exceptions are shell patterns of such
lines, in a document's fenced block named `exceptions`. Exit status: 0 the same, 1 different.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import re
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Snapshot = dict[str, str]

FOLDERS = ("/etc", "/usr/local", "/opt", "/usr/lib/systemd", "/lib/systemd", "/var/lib/systemd/linger")
SETTINGS = ("/proc/sys/net", "/proc/sys/vm", "/proc/sys/kernel")
LINKS = ("mtu", "tx_queue_len")
# what the kernel counts or draws by itself, and what only can be written
MOVING = re.compile(
    r"random/|tainted|ns_last_pid|pty/nr|nf_conntrack_count|route/flush|stat_refresh|compact_memory|drop_caches"
    r"|tcp_fastopen_key|stable_secret|cad_pid|usermodehelper|perf_event_max_sample_rate|perf_cpu_time|tcp_mem$|udp_mem$"
)
LOGIND = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager", "RemoveIPC")
MANAGER = "DefaultLimitMEMLOCKSoft,DefaultLimitNOFILE,DefaultLimitNOFILESoft"


def take() -> Snapshot:
    """Everything, one line each."""
    found: Snapshot = {}
    for part in (paths(), packages(), units(), values()):
        found.update(part)
    return found


def paths() -> Iterator[tuple[str, str]]:
    """Kind, mode, owner and content of everything below the folders."""
    for top in FOLDERS:
        if os.path.islink(top):  # /lib on a merged system
            continue
        for folder, folders, files in os.walk(top):
            for name in [*folders, *files]:
                path = os.path.join(folder, name)
                yield "path " + path, described(path)


def described(path: str) -> str:
    """One path as text."""
    try:
        state = os.lstat(path)
        owner = "%d:%d" % (state.st_uid, state.st_gid)
        if stat.S_ISLNK(state.st_mode):
            return "link to %s, %s" % (os.readlink(path), owner)
        if stat.S_ISREG(state.st_mode):
            with open(path, "rb") as stream:
                digest = hashlib.sha256(stream.read()).hexdigest()
            return "file %s, %04o, %s" % (digest[:16], stat.S_IMODE(state.st_mode), owner)
        kind = "folder" if stat.S_ISDIR(state.st_mode) else "special"
        return "%s, %04o, %s" % (kind, stat.S_IMODE(state.st_mode), owner)
    except OSError as error:
        return str(error.strerror)


def packages() -> Iterator[tuple[str, str]]:
    """dpkg's states and versions, holds, and what counts as installed by hand."""
    for line in lines("dpkg-query", "-W", "-f", "${binary:Package}\t${db:Status-Abbrev}\t${Version}\n"):
        name, state, version = line.split("\t")
        yield "package " + name, ("%s %s" % (state.strip(), version)).strip()
    for mark in ("hold", "manual"):
        for name in lines("apt-mark", "show" + mark):
            yield "%s %s" % (mark, name), "yes"


def units() -> Iterator[tuple[str, str]]:
    """What the unit files say, and where systemd runs what is active and what it gives its services."""
    for line in lines("systemctl", "list-unit-files", "--no-legend", "--plain", "--no-pager"):
        words = line.split()
        if len(words) > 1:
            yield "unit " + words[0], words[1]
    if not os.path.isdir("/run/systemd/system"):
        return
    kinds = "--type=service,socket,timer,mount"
    for line in lines("systemctl", "list-units", "--all", kinds, "--no-legend", "--plain", "--no-pager"):
        words = line.split()
        if len(words) > 3:
            yield "active " + words[0], "%s %s" % (words[1], words[2])
    for line in lines("systemctl", "show", "--property=" + MANAGER):
        yield "value systemd/" + line.partition("=")[0], line.partition("=")[2]
    for line in lines("busctl", "get-property", *LOGIND):
        yield "value logind/RemoveIPC", line


def values() -> Iterator[tuple[str, str]]:
    """The live kernel."""
    for top in SETTINGS:
        for folder, _, names in os.walk(top):
            for name in names:
                path = os.path.join(folder, name)
                if not MOVING.search(path):
                    yield "value " + path, read(path)
    for link in sorted(os.listdir("/sys/class/net")):
        for name in LINKS:
            yield "value /sys/class/net/%s/%s" % (link, name), read("/sys/class/net/%s/%s" % (link, name))
    for line in read("/proc/modules").splitlines():
        yield "value module/" + line.split()[0], "loaded"


def read(path: str) -> str:
    """A kernel file's text, or why it has none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read().strip()
    except OSError as error:
        return str(error.strerror)


def lines(*argv: str) -> list[str]:
    """What a program prints; nothing where there is no such program."""
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60, check=False)
    except FileNotFoundError:
        return []
    return done.stdout.decode(errors="replace").splitlines()


def compare(before: Snapshot, after: Snapshot, exceptions: Iterable[str] = ()) -> list[str]:
    """A line for each difference that is no exception."""
    patterns = list(exceptions)
    changed = [key for key in sorted({**before, **after}) if before.get(key) != after.get(key)]
    return [
        "%s: was %s, is %s" % (key, before.get(key, "absent"), after.get(key, "absent"))
        for key in changed
        if not any(fnmatch.fnmatchcase(key, pattern) for pattern in patterns)
    ]


def fenced(document: str, name: str) -> list[str]:
    """The lines of a document's fenced block of that name, without what follows two spaces."""
    block = re.search(r"^```%s\n(.*?)^```$" % re.escape(name), document, re.MULTILINE | re.DOTALL)
    if block is None:
        raise ValueError("no fenced block named %s" % name)
    return [re.split(r"\s{2,}", line.strip())[0] for line in block.group(1).splitlines() if line.strip()]


def main(argv: list[str]) -> int:
    """Take or compare."""
    if argv[:1] == ["take"]:
        json.dump(take(), sys.stdout, indent=0, sort_keys=True)
        return 0
    if argv[:1] != ["compare"] or len(argv) not in (3, 4):
        sys.stderr.write(__doc__ or "")
        return 2
    documents = [open(path, encoding="utf-8").read() for path in argv[1:]]  # noqa: SIM115  # a script's few files
    exceptions = fenced(documents[2], "exceptions") if len(documents) == 3 else []
    differences = compare(json.loads(documents[0]), json.loads(documents[1]), exceptions)
    sys.stdout.write("".join(line + "\n" for line in differences))
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
