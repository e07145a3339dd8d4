"""Things that must not leave the operator's machine: secrets, by name and content, and folders that are no project."""

from __future__ import annotations

import os
import pwd
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# hidden files that programs look for and that hold nothing of anybody's; the others stay
_OPEN = re.compile(
    r"\.(?:gitignore|nodectlignore|(?:git)?keep|project-root|python-version|env\.(?:example|sample|template))"
)
_FOLDERS = re.compile(r"secrets?|credentials?|.*\.git")
# what a name may end in when it is a copy of another's file
_COPY = re.compile(
    r"(?:\.(?:bak|old|orig|save|backup|copy|tmp|sw[a-p]|[0-9]+)|~[0-9]*|-|[-_.](?:prod|dev|local|backup|copy))+$"
)
_KEYS = re.compile(
    r".*\.(?:(?:env|key)(?:\.txt)?|p8|p12|pfx|jks|keystore|kdbx|ppk|ovpn|keytab|tfstate|tfvars(?:\.json)?)"
    r"|_?netrc|krb5cc.*|.*kubeconfig.*|(?:.*sh|python|mysql|psql|sqlite|node_repl|rediscli)_history|secring\.gpg"
    r"|(?:credentials|client_secret.*|service[-_]account.*)\.json|(?:hf_)?token|stored_tokens|passwords?(?:\.txt)?"
    r"|(?:kaggle|logins)\.json|key4\.db|envrc|pgpass(?:\.conf)?|(?:rclone|clearml|wg[0-9]+)\.conf"
)
# a public certificate is one, too: what it holds decides when the command line names it
_CERTIFICATE = re.compile(r".*\.pem(?:\.txt)?")
# hidden or not, of files and folders: no option takes them along
_DENIED = re.compile(
    r"\.(?:ssh|gnupg|aws|azure|kube|docker|config|ngc|huggingface|password-store|mozilla|age|oci|tsh|mc|codex)"
    r"|\.(?:env|flaskenv)(?:[^a-z].*)?|\.envrc|\.\w*history|\.netrc|\.pgpass|\.git-credentials|\.npmrc|\.pypirc"
    r"|\.(?:vault-token|terraformrc|authinfo|msmtprc|curlrc|my\.cnf|s3cfg|boto|dockercfg|htpasswd|sentryclirc)"
    r"|\.(?:comet\.config|xauthority|google_authenticator)|secrets?|credentials?|id_(?:rsa|dsa|ecdsa|ed25519|xmss)(?:_sk)?"
)
_EXAMPLE = re.compile(r"(?:example|sample|template)\.env")
# a key that was packed or sealed is one
_PACKED = re.compile(r"\.(?:gz|xz|bz2|zst|zip|7z|enc|gpg|asc|age|b64|base64)$")
# of files, whatever they end in: tokens of a language model are many, or say of what (`token_counts.csv`)
_NAMES = re.compile(
    r"secret|credential|service[-_]account|^vault(?:[-_.]|$|pass)|^id_[^.]+(?:\.pub)?$"
    r"|^id_(?:rsa|dsa|ecdsa|ed25519|xmss)(?![a-z])"
    r"|(?:api|auth|access|private|ssh|deploy)[-_]?(?:keys?|tokens?)(?![a-z])"
)
_LAST = re.compile(
    r"(?<!per[-_])(?<!next[-_])(?<!by[-_])token(?:\.[^.]+)?$|token(?!i[sz])[^.]*$|pass(?:w(?:or)?d|phrase|code)s?(?:\.[^.]+)?$"
)
_WORDS = re.compile(r"passw(?:or)?d")
_PROGRAM = re.compile(r"(?s:.*)\.(?:pyi?|pyx|ipynb|sh|bash|cc?|cpp|cuh?|hp?p?|rs|go|js)")
_TENSORS = re.compile(r".*\.(?:bin|np[yz]|pth?|parquet|arrow|safetensors|model)")
_DATA = re.compile(rf"{_TENSORS.pattern}|.*\.(?:[ct]sv|jsonl|md)")
_HEAD_BYTES = 64 << 10
# each begins with what is looked for first, as it is: most files have none of it
_CONTENT = {
    "a private key": (
        *(rb"-----BEGIN [A-Z ]{0,30}PRIVATE KEY", rb"PuTTY-User-Key-File", rb"AGE-SECRET-KEY-"),
        rb"PrivateKey\s{0,20}=\s{0,20}[\w/+]{42}",
        rb"---- BEGIN SSH2 ENCRYPTED PRIVATE KEY",
        rb"LS0tLS1CRUdJTiB(?!DRVJ|QVUJ)",  # `-----BEGIN ` in base64, of no certificate and no public key
    ),
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
        *(
            rb"SECRET_ACCESS_KEY[\"']?\s{0,20}[=:]\s{0,20}[\"']?[\w/+]{30}",
            rb"secret_access_key[\"']?\s{0,20}[=:]\s{0,20}[\"']?[\w/+]{30}",
        ),
        rb"SecretAccessKey[\"']?\s{0,20}[=:]\s{0,20}[\"']?[\w/+]{30}",
        rb"refresh_token[\"']?\s{0,20}[=:]\s{0,20}[\"']?1//[\w-]{10}",
        *(rb"GOCSPX-[\w-]{20}", rb"k_live_\w{20}", rb"dop_v1_\w{40}"),
        *(rb"_authToken\s{0,20}=\s{0,20}\S", rb"auth\"\s{0,20}:\s{0,20}\"[\w+/=]{16}"),
        rb"WANDB_API_KEY[\"']?\s{0,20}[=:]\s{0,20}[\"']?\w{40}",
    ),
    "a password": (
        rb"://[^/\s:@'\"<>{}$]{0,100}:[^/\s:@'\"<>{}$]{1,200}@",
        *(rb"machine\s+\S+\s+login\s", rb"default\s+login\s+\S+\s+password\s"),
        rb"ansible_(?:become_|ssh_|sudo_)?pass(?:word)?[\"']?\s{0,20}[=:]\s{0,20}[\"']?[^\s\"'{!$]",
    ),
}
_BEGINNING = re.compile(rb"[\w:/ -]+")
_PATTERNS = [
    (_BEGINNING.match(pattern)[0], re.compile(pattern), kind)  # type: ignore[index]  # all have one
    for kind, patterns in _CONTENT.items()
    for pattern in patterns
]
# what goes with them of a text: a key up to its end, a token up to the end of the word, the password after a login
_KEY_LINES = r"-*[^-]*(?:-(?!--)[^-]*){0,9}-{4,5} ?END [A-Z0-9 ]{0,30}PRIVATE KEY|[^\n]*(?:\n[\w+/=]{16,})*"
_REST = (
    rf"(?:(?<=PRIVATE KEY)(?:{_KEY_LINES})|(?<=Key-File)[\s\S]{{0,4096}}?Private-MAC)?"
    r"(?:(?<=\s)[^\s\"]+(?:\s+password\s+[^\s\"]+)?|(?<!@)[^\s\"'\\,;<>&]*)"
)
# what stays of it, so that a text is read as before
_LABEL = re.compile(r"://|[\w\"']+\s{0,20}[=:]\s{0,20}[\"']?")
_SYSTEM = (
    *("/", "/home", "/Users", "/root", "/etc", "/usr", "/usr/local", "/opt", "/srv", "/mnt", "/media", "/run", "/boot"),
    *("/var", "/var/tmp", "/tmp", "/dev/shm"),  # noqa: S108 - nothing is written there
)


def is_denied(place: str) -> bool:
    """Return whether a path in a project (a folder ends in `/`) is of keys, passwords or histories, whatever names it.

    That is a part of what `is_secret` finds: names that programs agree on.
    """
    parts = [part if _OPEN.fullmatch(part) else _bare(part) for part in _parts(place)]
    key = _KEYS.fullmatch(parts[-1]) and not _EXAMPLE.fullmatch(parts[-1])
    return bool(key) or any(_DENIED.fullmatch(part) for part in parts if not _OPEN.fullmatch(part))


def _parts(place: str) -> list[str]:
    """Return the names of a path in small letters; a name that hides behind a space or a line's end counts without."""
    return [" ".join(part.split()) for part in place.lower().split("/")]


def _bare(name: str) -> str:
    """Return the name of what a file is a copy or a packed form of."""
    name = _COPY.sub("", name)
    packed = _PACKED.sub("", name)
    return packed if "." in packed or _KEYS.fullmatch(packed) or name.startswith("id_") else name


def is_secret(place: str) -> bool:
    """Return whether a path in a project (a folder ends in `/`) is by its name one for keys, tokens and passwords.

    That is whatever is hidden, but for some files that programs look for; copies of a file are judged as the file.
    """
    *folders, name = _parts(place)
    if any(folder.startswith(".") or _FOLDERS.fullmatch(_COPY.sub("", folder)) for folder in folders):
        return True
    if not name or _OPEN.fullmatch(name):
        return False
    name = _bare(name)
    if name.startswith(".") or _KEYS.fullmatch(name) or _CERTIFICATE.fullmatch(name):
        return not _EXAMPLE.fullmatch(name)
    if _PROGRAM.fullmatch(name):
        return False
    named = _NAMES.search(name) or (not _TENSORS.fullmatch(name) and _LAST.search(name))
    return bool(named or (not _DATA.fullmatch(name) and _WORDS.search(name)))


def is_program(path: Path) -> bool:
    """Return whether it is the text of a program: what a job is made of."""
    return bool(_PROGRAM.fullmatch(path.name.lower()))


def secret_in(path: Path) -> str:
    """Return which secret a file's beginning holds (`a private key`); "" for none of a known form. OSError."""
    with path.open("rb") as file:
        return secret_of(file.read(_HEAD_BYTES))


def secret_of(data: bytes) -> str:
    """Return the same for the bytes of a file."""
    text = data[:_HEAD_BYTES]
    if text.startswith((b"\xff\xfe", b"\xfe\xff")):  # what PowerShell writes
        text = text.decode("utf-16", errors="ignore").encode(errors="ignore")
    return next((kind for first, pattern, kind in _PATTERNS if first in text and pattern.search(text)), "")


def without_keys_and_tokens(text: str) -> str:
    """Return a text with `***` in place of private keys, tokens and passwords of known forms."""

    def starred(match: re.Match[str]) -> str:
        label = _LABEL.match(match[0])
        return f"{label[0] if label else ''}***{'@' if match[0].endswith('@') else ''}"

    for first, pattern, _ in _PATTERNS:
        if first.decode() in text:
            text = re.sub(pattern.pattern.decode() + _REST, starred, text)
    return text


def why_not_whole(folder: Path) -> str:
    """Return why this folder is no project to copy whole (`a home folder`); "" if it may be one. It is resolved."""
    homes = set(_homes(folder))
    if folder in homes:
        return "a home folder"
    if any(home.is_relative_to(folder) for home in homes):
        return "a folder in which homes lie"
    if str(folder) in _SYSTEM or folder == Path(tempfile.gettempdir()).resolve() or _is_everybodys(folder):
        return "a folder for everybody's files"
    if any(_FOLDERS.fullmatch(part.lower()) for part in folder.parts):
        return "a folder for secrets"
    if is_denied(f"{folder}/"):
        return "in a folder of keys, passwords or settings"
    below = [folder.relative_to(home).parts for home in homes if folder.is_relative_to(home)]
    if any(len(parts) == 1 and parts[0].startswith(".") for parts in below):
        return "a folder of settings"
    return ""


def _homes(folder: Path) -> Iterator[Path]:
    with suppress(RuntimeError):  # no HOME, and a login that has no entry
        yield Path.home().resolve()
    logins = [str(os.getuid()), os.environ.get("SUDO_UID", "")]
    with suppress(OSError):
        logins.append(str(folder.stat().st_uid))
    for login in dict.fromkeys(logins):
        with suppress(KeyError, ValueError):
            yield Path(pwd.getpwuid(int(login)).pw_dir).resolve()


def _is_everybodys(folder: Path) -> bool:
    with suppress(OSError):
        mode = folder.stat().st_mode
        return bool(mode & stat.S_ISVTX and mode & stat.S_IWOTH)
    return False
