"""Logins of lab hosts with every kind of sudo, the ways to give its password, and who looks for that password."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from nodectl.provision.sudoers import sudoers
from tests.conftest import LabUnderTest

TYPED = "sudo's \"1 wörd of tests"
# login: its lines for sudo, and what its shell's start file says
_KINDS = {
    "p-none": ("", ""),
    "p-look": (sudoers("p-look"), ""),
    "p-free": ("p-free ALL=(ALL) NOPASSWD: ALL\n", ""),
    "p-noisy": ("p-noisy ALL=(ALL) NOPASSWD: ALL\n", r"echo 'Welcome {to}'; printf '\033[1m$ # \n'; echo sudo: no >&2"),
    "p-tty": ("Defaults:p-tty requiretty\np-tty ALL=(ALL) NOPASSWD: ALL\n", ""),
    "p-ask": ("p-ask ALL=(ALL) ALL\n", ""),
    "p-lecture": ("Defaults:p-lecture lecture=always\np-lecture ALL=(ALL) ALL\n", ""),
    "p-prompt": (
        'Defaults:p-prompt passprompt="Kennwort von %p auf %h: ", passprompt_override\np-prompt ALL=(ALL) ALL\n',
        "export LC_ALL=de_DE.UTF-8",
    ),
}
LOGINS = tuple(_KINDS)


@dataclass(frozen=True, slots=True)
class Way:
    """A login, how sudo's password is given, and what is said where it does not become root (empty where it does)."""

    login: str
    given: str = ""
    refused: str = ""

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.login, self.given)))

    def options(self, folder: Path) -> list[str]:
        """The words of nodectl's command line; `write_passwords` has made the files."""
        vault = ["--extra-vars", f"@{folder}/vault.yml", "--vault-password-file", f"{folder}/key"]
        words = {"typed": ["-K"], "vault": vault}
        return ["-e", f"ansible_user={self.login}", *words.get(self.given, [])]

    def environment(self, folder: Path) -> dict[str, str]:
        """The variables that go with them."""
        files = {"file": "password", "wrong": "wrong"}
        return {"ANSIBLE_BECOME_PASSWORD_FILE": f"{folder}/{files[self.given]}"} if self.given in files else {}

    @property
    def typed(self) -> str | None:
        return f"{TYPED}\n" if self.given == "typed" else None


WAYS = (
    Way("p-none", refused="sudo wants a password, and was given none"),
    Way("p-none", "file", "sudo lets the login p-none do nothing"),
    Way("p-look", refused="sudo wants a password, and was given none"),
    Way("p-look", "vault", "sudo may let the login run some commands only"),
    Way("p-ask", refused="sudo wants a password, and was given none"),
    Way("p-ask", "wrong", "sudo does not take the password that was given"),
    Way("p-ask", "typed"),
    Way("p-ask", "vault"),
    Way("p-ask", "file"),
    Way("p-lecture", "vault"),
    Way("p-prompt", "file"),
    Way("p-free"),
    Way("p-free", "wrong"),
    Way("p-noisy"),
    Way("p-tty", refused="sudo wants a terminal (requiretty)"),
)


def write_passwords(folder: Path, vault: str) -> None:
    """The files that `Way` names; `vault` is ansible-vault."""
    for name, text in {"password": TYPED, "wrong": "another", "key": "the vault's key"}.items():
        (folder / name).write_text(f"{text}\n")
    argv = [
        vault,
        "encrypt_string",
        "--vault-password-file",
        f"{folder}/key",
        "--stdin-name",
        "ansible_become_password",
    ]
    done = subprocess.run(argv, input=TYPED, capture_output=True, text=True, check=True)
    (folder / "vault.yml").write_text(done.stdout)


@contextmanager
def logins_on(lab: LabUnderTest, hosts: tuple[str, ...], names: tuple[str, ...] = LOGINS) -> Iterator[None]:
    """These logins on these hosts, for as long as it lasts."""
    lines = ["set -e", "umask 077"]
    for name in names:
        rules, start = _KINDS[name]
        lines += [
            f"useradd --create-home --shell /bin/bash {name}",
            f"install -d -o {name} -m 700 /home/{name}/.ssh",
            f"install -o {name} -m 600 ~/.ssh/authorized_keys /home/{name}/.ssh/",
            f"chpasswd <<'END'\n{name}:{TYPED}\nEND",
            f"cat > /home/{name}/.bashrc <<'END'\n{start}\nEND\nchown {name} /home/{name}/.bashrc",
            f"cat > /etc/sudoers.d/{name} <<'END'\n{rules}END\nchmod 440 /etc/sudoers.d/{name}",
        ]
    try:
        for host in hosts:
            _as_root(lab, host, "\n".join([*lines, "visudo -c"]))
        yield
    finally:
        for host in hosts:
            _as_root(lab, host, "\n".join(f"userdel -rf {name} || true; rm -f /etc/sudoers.d/{name}" for name in names))


def _as_root(lab: LabUnderTest, host: str, text: str) -> None:
    argv = ["ssh", "-F", lab.ssh_config, host, "bash -s"]
    done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


class Watcher:
    """Looks at all processes, those of lab hosts among them, for the password in their words and environment."""

    def __init__(self) -> None:
        self.seen: dict[int, str] = {}
        self.looks = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        secret = TYPED.encode()
        while not self._over.is_set():
            for folder in Path("/proc").glob("[1-9]*"):
                for name in ("cmdline", "environ"):
                    with suppress(OSError):
                        text = (folder / name).read_bytes()
                        if secret in text:
                            self.seen[int(folder.name)] = f"{name}: {text[:300]!r}"
            self.looks += 1
            time.sleep(0.2)


def files_with_password(lab: LabUnderTest, hosts: tuple[str, ...], folders: Mapping[str, str]) -> dict[str, str]:
    """{host or name of a folder here: the files there that hold the password}; none is good."""
    found = {}
    for host in hosts:
        where = "/home /root /etc /opt /var /tmp /run /dev/shm /srv/[!n]*"
        argv = ["ssh", "-F", lab.ssh_config, host, f"grep -rlFs -f - {where} || true"]
        done = subprocess.run(argv, input=f"{TYPED}\n", capture_output=True, text=True, timeout=120, check=False)
        found[host] = done.stdout
    for name, folder in folders.items():
        argv = ["grep", "-rlFs", "-f", "-", folder]
        found[name] = subprocess.run(
            argv, input=f"{TYPED}\n", capture_output=True, text=True, timeout=120, check=False
        ).stdout
    return {name: text for name, text in found.items() if text}
