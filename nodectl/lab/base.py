"""The layer between the machine's files and a host's own: what is hidden of the machine, what is there instead."""

import os
import re
import stat
import subprocess
from collections.abc import Iterable
from pathlib import Path

from platformdirs import user_config_path

from nodectl.common.node_paths import LAB_SHARE, LAB_SHARED
from nodectl.common.paths import cache_dir, state_dir
from nodectl.common.resources import share_dir
from nodectl.lab.state import HostRecord, LabFolder
from nodectl.lab.syscalls import MS_NODEV, MS_NOSUID, mount

SSHD = "/usr/sbin/sshd"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# top-level folders whose content a host needs (`nix` and `gnu` hold the programs of NixOS and Guix)
_SHOWN = {"bin", "etc", "gnu", "lib", "lib32", "lib64", "libx32", "nix", "sbin", "usr", "var"}
# mount points and standard folders: there, and empty
_FRESH = {"dev": 0o755, "proc": 0o555, "sys": 0o555, "run": 0o755, "tmp": 0o1777, "root": 0o700, "home": 0o755}
_FRESH |= {"boot": 0o755, "media": 0o755, "mnt": 0o755, "opt": 0o755, "srv": 0o755}
# what the machine keeps of its own life
_FRESH_BELOW = {"var/log": 0o755, "var/tmp": 0o1777, "var/mail": 0o755, "var/spool": 0o755, "var/backups": 0o755}
_FRESH_BELOW |= {"etc/ssh": 0o755, "etc/profile.d": 0o755, "etc/cron.d": 0o755}
_FRESH_BELOW |= {f"var/lib/{name}": 0o755 for name in ("docker", "containerd", "lxc", "postgresql", "nodectl")}
_GONE_BELOW = ("etc/motd", "etc/nccl.conf", "etc/sysctl.d/90-nodectl.conf", "etc/security/limits.d/90-nodectl.conf")
_OPAQUE = "trusted.overlay.opaque"

_SSHD_CONFIG = """\
AddressFamily inet
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM {pam}
UseDNS no
PrintMotd no
StrictModes yes
MaxStartups 1000:30:2000
MaxSessions 256
AcceptEnv LANG LC_*
SetEnv PATH={path}
Subsystem sftp internal-sftp
"""
# PAM only for its limits, so that those of /etc/security reach every session
_PAM = """\
auth required pam_deny.so
account required pam_permit.so
password required pam_deny.so
session optional pam_limits.so
"""
_PROFILE = 'PS1="\\u@\\h:\\w\\$ "\n'


def share_folder() -> Path:
    """Return the operator's folder that every host sees, read-only, as LAB_SHARE."""
    folder = cache_dir() / "lab-share"
    folder.mkdir(exist_ok=True)
    return folder


def build_base(folder: LabFolder, hosts: Iterable[HostRecord], authorized_key: str) -> None:
    """Make the layer in `folder.base`, on a tmpfs of its own; `authorized_key` may log in as root."""
    folder.base.mkdir()
    # a tmpfs of its own: a lower layer of an overlay must not lie inside another one
    mount("nodectl-lab", str(folder.base), "tmpfs", MS_NOSUID | MS_NODEV, "mode=755,size=16m")
    _hide(folder.base)
    _accounts(folder.base)
    lines = ["127.0.0.1 localhost", *(f"{host.address} {host.name}" for host in hosts)]
    write_file(folder.base / "etc/hosts", "\n".join(lines) + "\n")
    write_file(folder.base / "etc/resolv.conf", "")  # no name server: else every unknown name waits 10 s
    write_file(folder.base / "etc/environment", f"PATH={PATH}\n")
    _login(folder.base, authorized_key)


def _hide(base: Path) -> None:
    for entry in os.scandir("/"):
        if entry.name not in _SHOWN and entry.name not in _FRESH:
            _whiteout(base / entry.name)
    for name, mode in (_FRESH | _FRESH_BELOW).items():
        if name in _FRESH or Path("/", name).is_dir():
            _opaque(base / name, mode)
    for name in (*_GONE_BELOW, *_foreign_pythons()):
        if os.path.lexists(f"/{name}"):
            _whiteout(_parents(base / name))
    for folder in (share_dir(), state_dir(), cache_dir(), user_config_path("nodectl")):
        private = folder.resolve()
        parts = private.parts[1:]
        if parts and parts[0] in _SHOWN and private.is_dir():
            _opaque(_parents(base.joinpath(*parts)), 0o755)


def _foreign_pythons() -> list[str]:
    if not Path("/usr/bin/python3").exists():
        return []
    programs = Path("/usr/local/bin").glob("python*")
    return [str(path)[1:] for path in programs] + ["usr/local/bin/pip", "usr/local/bin/pip3"]


def _accounts(base: Path) -> None:
    """Root as a fresh installation has it; sshd refuses an account that is locked by `!`."""
    passwd = Path("/etc/passwd").read_text(encoding="utf-8", errors="surrogateescape")
    shell = "/bin/bash" if Path("/bin/bash").exists() else "/bin/sh"
    write_file(base / "etc/passwd", re.sub(r"(?m)^root:.*$", f"root:x:0:0:root:/root:{shell}", passwd))
    names = [line.split(":", 1)[0] for line in passwd.splitlines() if ":" in line]
    write_file(base / "etc/shadow", "".join(f"{name}:*:19000:0:99999:7:::\n" for name in names), 0o640)


def _login(base: Path, authorized_key: str) -> None:
    pam = Path("/etc/pam.d").is_dir()
    config = _SSHD_CONFIG.format(path=PATH, pam="yes" if pam else "no")
    if pam:
        write_file(base / "etc/pam.d/sshd", _PAM)
    if _sshd_version() >= (9, 8):
        config += "PerSourcePenalties no\n"  # a fan-out is no attack
    write_file(base / "etc/ssh/sshd_config", config)
    write_file(base / "etc/ssh/ssh_config", "Host *\n    SendEnv LANG LC_*\n")
    write_file(base / "etc/bash.bashrc", "")
    for name in (".bashrc", ".profile"):
        write_file(base / "root" / name, _PROFILE)
    write_file(base / "root/.hushlogin", "")
    (base / "root/.ssh").mkdir(mode=0o700)
    write_file(base / "root/.ssh/authorized_keys", authorized_key, 0o600)
    (base / LAB_SHARE[1:]).mkdir()
    (base / LAB_SHARED[1:]).mkdir()


def _sshd_version() -> tuple[int, int]:
    shown = subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=False).stderr
    match = re.search(r"OpenSSH_(\d+)\.(\d+)", shown)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def write_file(path: Path, content: str | bytes, mode: int = 0o644) -> None:
    """Write a file that never had another mode, and the folders above it."""
    descriptor = os.open(_parents(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(content.encode(errors="surrogateescape") if isinstance(content, str) else content)


def _parents(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    return path


def _opaque(path: Path, mode: int) -> None:
    _parents(path).mkdir(exist_ok=True)
    path.chmod(mode)
    os.setxattr(path, _OPAQUE, b"y")


def _whiteout(path: Path) -> None:
    os.mknod(path, stat.S_IFCHR, os.makedev(0, 0))
