"""What must not leave the operator's machine: secrets, by name and by content, and folders that are no project."""

from __future__ import annotations

import fnmatch
import os
import pwd
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path, PurePosixPath

HOME, MOUNT = "a home folder", "the root of a mount"
# why what lies beside a script that travels alone did not
NO_PROJECT = "which is no project,"
# all in lower case: folders, wherever they lie
_FOLDERS = (
    *(".ssh", ".aws", ".azure", ".kube", ".gnupg", ".docker", ".oci", ".gcloud", ".ngc", ".databricks", ".huggingface"),
    *(
        ".cache/huggingface",
        ".kaggle",
        ".wandb",
        ".password-store",
        ".terraform.d",
        ".jupyter",
        ".mozilla",
        ".thunderbird",
    ),
    *(f".config/{name}" for name in ("gcloud", "gh", "glab-cli", "hub", "op", "rclone", "wandb", "doctl", "sops")),
    *(".config/containers", ".config/huggingface", ".config/git", "google-chrome", "chromium", "keyrings"),
    *("secrets", ".secrets", "credentials"),
)
# and files
_FILES = (
    *(
        ".env",
        ".env.*",
        "*.env",
        ".envrc",
        ".netrc",
        "_netrc",
        ".pgpass",
        ".my.cnf",
        ".mylogin.cnf",
        ".git-credentials",
    ),
    *(".npmrc", ".yarnrc*", ".pypirc", ".dockercfg", ".dockerconfigjson", ".condarc", ".boto", ".s3cfg", ".htpasswd"),
    *(".vault?pass*", "vault?pass*", ".databrickscfg", ".cdsapirc", ".modal.toml", "kaggle.json", "*kubeconfig*"),
    *("rclone.conf", "*.pem", "*.key", "*.p8", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk", "*.ovpn"),
    *(
        "*.keytab",
        "krb5cc*",
        "*.tfstate",
        "*.tfvars",
        "id_rsa*",
        "id_dsa*",
        "id_ecdsa*",
        "id_ed25519*",
        "stored_tokens",
    ),
    *(".*_history", "fish_history", ".histfile", ".lesshst", ".viminfo"),
)
_NONE_OF_THEM = re.compile(r"\.env\.(?:example|sample|template)|(?:example|sample|template)\.env")
_IN_FOLDER = re.compile("/(?:" + "|".join(map(re.escape, _FOLDERS)) + r"|[^/]*\.git)/")
_FILE = re.compile("|".join(map(fnmatch.translate, _FILES)))
# of files; tokens and tokenizers are a language model's, and a key that ssh-keygen made has no suffix
_NAMES = re.compile(r"token(?!s|i[sz])|secret|credential|passw(?:or)?d|service[-_]account|^id_[^.]+(?:\.pub)?$")
_PROGRAMS = frozenset(
    (
        ".py",
        ".pyi",
        ".pyx",
        ".ipynb",
        ".sh",
        ".bash",
        ".c",
        ".cc",
        ".cpp",
        ".cu",
        ".cuh",
        ".h",
        ".hpp",
        ".rs",
        ".go",
        ".js",
    )
)
_DATA = frozenset(
    (
        ".bin",
        ".npy",
        ".npz",
        ".pt",
        ".pth",
        ".parquet",
        ".arrow",
        ".safetensors",
        ".model",
        ".csv",
        ".tsv",
        ".jsonl",
        ".md",
    )
)
_HEAD_BYTES = 64 << 10
# each begins with what is looked for first, as it is: most files have none of it
_CONTENT = {
    "a private key": (rb"-----BEGIN [A-Z ]{0,30}PRIVATE KEY", rb"PuTTY-User-Key-File"),
    "a token": (
        *(rb"hf_[A-Za-z0-9]{20}", rb"gh[pousr]_[A-Za-z0-9]{30}", rb"github_pat_\w{30}", rb"glpat-[\w-]{20}"),
        *(
            rb"AKIA[0-9A-Z]{16}\b",
            rb"ASIA[0-9A-Z]{16}\b",
            rb"xox[abeprs]-[\w-]{10}",
            rb"AIza[\w-]{35}",
            rb"npm_[A-Za-z0-9]{36}",
        ),
        *(rb"sk-[A-Za-z0-9]{40}", rb"sk-(?:proj|ant|or|svcacct)-[\w-]{20}", rb"nvapi-[\w-]{40}", rb"pypi-Ag[\w-]{50}"),
        *(rb"SECRET_ACCESS_KEY[\"']?\s?[=:]\s?[\"']?[\w/+]{30}", rb"secret_access_key[\"']?\s?[=:]\s?[\"']?[\w/+]{30}"),
        rb"WANDB_API_KEY[\"']?\s?[=:]\s?[\"']?\w{40}",
    ),
    "a password": (
        rb"://[^/\s:@'\"<>{}$]{1,100}:[^/\s:@'\"<>{}$]{1,200}@",
        rb"machine\s+\S+\s+login\s",
        rb"ansible_(?:become_|ssh_|sudo_)?pass(?:word)?[\"']?\s?[=:]\s?[\"']?[^\s\"'{!$]",
    ),
}
_BEGINNING = re.compile(rb"[\w:/ -]+")
_PATTERNS = [
    (_BEGINNING.match(pattern)[0], re.compile(pattern), kind)  # type: ignore[index]  # all have one
    for kind, patterns in _CONTENT.items()
    for pattern in patterns
]
# a project's files say that it is one, and so do a home's
MARKS = (".git", ".nodectlignore", "pyproject.toml", "setup.py", "setup.cfg")
_OF_SHELLS = (
    *(".profile", ".bashrc", ".bash_history", ".bash_profile", ".bash_logout", ".zshrc", ".zsh_history", ".zprofile"),
    *(".viminfo", ".lesshst", ".local"),
)
_OF_LOGINS = (".ssh", ".gnupg", ".aws", ".kube", ".netrc", ".python_history")
_SYSTEM = (
    *("/", "/home", "/Users", "/root", "/etc", "/usr", "/usr/local", "/opt", "/srv", "/mnt", "/media", "/run", "/boot"),
    *("/var", "/var/tmp", "/tmp", "/dev/shm"),  # noqa: S108 - nothing is written there
)


def is_secret(place: str) -> bool:
    """Whether a place of a project (a folder ends in `/`) is, by its name, where keys, tokens and passwords lie."""
    lower = f"/{place.lower()}"
    name = PurePosixPath(lower)
    if _IN_FOLDER.search(lower):
        return True
    if lower.endswith("/") or _NONE_OF_THEM.fullmatch(name.name):
        return False
    return bool(_FILE.match(name.name)) or (
        bool(_NAMES.search(name.name)) and name.suffix not in _PROGRAMS and name.suffix not in _DATA
    )


def is_program(path: Path) -> bool:
    """Return whether it is the text of a program: what a job is made of."""
    return path.suffix.lower() in _PROGRAMS


def secret_in(path: Path) -> str:
    """What secret the first 64 KiB of a file hold (`a private key`); empty for none that has a known form. OSError."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    return next((kind for first, pattern, kind in _PATTERNS if first in head and pattern.search(head)), "")


def why_no_project(folder: Path) -> str:
    """Why nobody's project is this whole folder (`a home folder`); empty where it may be one. `folder` is resolved."""
    homes = set(_homes(folder))
    if folder in homes or _looks_like_home(folder):
        return HOME
    if any(home.is_relative_to(folder) for home in homes):
        return "a folder in which homes lie"
    if str(folder) in _SYSTEM or folder == Path(tempfile.gettempdir()).resolve() or _is_everybodys(folder):
        return "a folder for everybody's files"
    if is_secret(f"{folder.as_posix().lstrip('/')}/"):
        return "a folder for secrets"
    if folder.parent in homes and folder.name.startswith("."):
        return "a folder of settings"
    return MOUNT if _is_mounted(folder) else ""


def _homes(folder: Path) -> Iterator[Path]:
    """Yield those of this login, of the one that called sudo, and of the folder's owner."""
    with suppress(RuntimeError):  # no HOME, and a login that has no entry
        yield Path.home().resolve()
    logins = [str(os.getuid()), os.environ.get("SUDO_UID", "")]
    with suppress(OSError):
        logins.append(str(folder.stat().st_uid))
    for login in dict.fromkeys(logins):
        if login.isdecimal() and (home := _home_of(int(login))):
            yield Path(home).resolve()


@lru_cache(maxsize=64)
def _home_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_dir
    except KeyError:
        return ""


def is_marked(folder: Path) -> bool:
    """Its files say that it is a project."""
    return any((folder / mark).exists() for mark in MARKS)


def _looks_like_home(folder: Path) -> bool:
    """Whatever it is called: by three files of shells, or in no project by two that any login has."""
    shells, more = (sum(os.path.lexists(folder / name) for name in names) for names in (_OF_SHELLS, _OF_LOGINS))
    return shells > 2 or (shells + more > 1 and not is_marked(folder))


def _is_mounted(folder: Path) -> bool:
    """Also by a bind mount, which is not seen from the folder itself."""
    with suppress(OSError):
        places = (line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
        return str(folder).replace(" ", "\\040") in places
    return os.path.ismount(folder)


def _is_everybodys(folder: Path) -> bool:
    with suppress(OSError):
        mode = folder.stat().st_mode
        return bool(mode & stat.S_ISVTX and mode & stat.S_IWOTH)
    return False
