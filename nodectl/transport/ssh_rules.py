"""What the operator's ssh_config and the inventory demand of a connection's safety, held against paramiko and keys.

Nothing of it is dropped: an algorithm list of which nodectl knows no member, or a list of revoked keys that cannot be
read, ends the connection before anything is proved to the host.
"""

from __future__ import annotations

import base64
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nodectl.errors import UnreachableError

if TYPE_CHECKING:
    import paramiko

_KRL = b"SSHKRL\n\0"  # OpenSSH's binary form of a list of revoked keys, which ssh-keygen reads
_KEYGEN_S = 10.0
_METHODS = ("publickey", "password")
# the names of an RSA key's signatures that are not SHA-1's
_RSA = ("rsa-sha2-512", "rsa-sha2-256")


@dataclass(frozen=True, slots=True)
class Rules:
    """Names of algorithms that may be used, by OpenSSH's preference; None where nobody has asked what it takes.

    `methods`: the ways to log in that are not switched off; `least_rsa_bits`: of a host's and of a login's RSA key;
    `revoked`: the file of host keys that are not to be trusted.
    """

    ciphers: tuple[str, ...] | None = None
    macs: tuple[str, ...] | None = None
    kex: tuple[str, ...] | None = None
    host_keys: tuple[str, ...] | None = None
    login_keys: tuple[str, ...] | None = None
    methods: tuple[str, ...] = _METHODS
    least_rsa_bits: int = 0
    revoked: Path | None = None
    family: str = "any"
    bind_address: str | None = None

    def hold(self, transport: paramiko.Transport, host_keys: Sequence[str]) -> None:
        """Have `transport` offer nothing else; `host_keys` are the algorithms of host keys that it would ask for."""
        options = transport.get_security_options()
        wanted = None if self.host_keys is None else [name for name in host_keys if name in self.host_keys]
        options.key_types = _common("HostKeyAlgorithms", wanted, host_keys)
        options.ciphers = _common("Ciphers", self.ciphers, options.ciphers)
        options.digests = _common("MACs", self.macs, options.digests)
        options.kex = _common("KexAlgorithms", self.kex, options.kex)
        if self.login_keys is not None:
            refused = [name for name in transport.preferred_pubkeys if name not in self.login_keys]
            transport.disabled_algorithms = {"pubkeys": refused}

    def why_not_host_key(self, key: paramiko.PKey) -> str:
        """Why the host's key is not to be trusted although known_hosts has it; empty where it is."""
        if key.get_name() == "ssh-rsa" and key.get_bits() < self.least_rsa_bits:
            return f"has {key.get_bits()} bits, and RequiredRSASize is {self.least_rsa_bits}"
        return "" if self.revoked is None else _why_revoked(self.revoked, key)

    def takes_login_key(self, key: paramiko.PKey) -> bool:
        """Return whether the key may be offered to the host."""
        held = getattr(key, "inner_key", None) or key  # of an agent
        if held.get_name() == "ssh-rsa" and held.get_bits() < self.least_rsa_bits:
            return False
        certificate = getattr(key, "public_blob", None)
        name = str(certificate.key_type) if certificate else key.get_name()
        rest = name.removeprefix("ssh-rsa")
        names = [name] if rest == name else [f"{rsa}{rest}" for rsa in _RSA]
        return self.login_keys is None or any(one in self.login_keys for one in names)


def rules_of(settings: Mapping[str, Sequence[str]], path: Callable[[str], Path]) -> Rules:
    """The rules in `settings`, OpenSSH's lower-case keyword → values; `path` makes a path of a file's name there."""

    def listed(keyword: str) -> tuple[str, ...] | None:
        return tuple(settings[keyword][0].split(",")) if settings.get(keyword) else None

    def first(keyword: str, otherwise: str) -> str:
        return next(iter(settings.get(keyword, ())), otherwise)

    preferred = listed("preferredauthentications") or _METHODS
    switches = {"publickey": "pubkeyauthentication", "password": "passwordauthentication"}
    on = [way for way, keyword in switches.items() if first(keyword, "yes").lower() not in ("no", "false")]
    revoked, bind = first("revokedhostkeys", "none"), first("bindaddress", "none")
    return Rules(
        ciphers=listed("ciphers"),
        macs=listed("macs"),
        kex=listed("kexalgorithms"),
        host_keys=listed("hostkeyalgorithms"),
        login_keys=listed("pubkeyacceptedalgorithms") or listed("pubkeyacceptedkeytypes"),
        methods=tuple(way for way in on if way in preferred),
        least_rsa_bits=int(first("requiredrsasize", "0")),
        revoked=None if revoked.lower() == "none" else path(revoked),
        family=first("addressfamily", "any"),
        bind_address=None if bind.lower() == "none" else bind,
    )


def _common(option: str, wanted: Sequence[str] | None, known: Sequence[str]) -> tuple[str, ...]:
    """Return those of `wanted` that are `known`, all where nothing is wanted; UnreachableError where there are none."""
    common = tuple(known if wanted is None else [name for name in wanted if name in known])
    if not common:
        raise UnreachableError(
            f"{option} allows none of what nodectl has: {','.join(known)}", f"allow one of those in {option}"
        )
    return common


def _why_revoked(file: Path, key: paramiko.PKey) -> str:
    """Return it as in OpenSSH, a list that cannot be read revokes every key."""
    try:
        content = file.read_bytes()
    except OSError as error:
        return f"may be revoked: RevokedHostKeys {file} cannot be read: {error.strerror or error}"
    if content.startswith(_KRL):
        is_revoked = not _keygen_takes(file, key)
    else:
        encoded = base64.b64encode(key.asbytes())
        is_revoked = any(encoded in line.split() for line in content.splitlines() if not line.startswith(b"#"))
    return f"is revoked by {file}" if is_revoked else ""


def _keygen_takes(krl: Path, key: paramiko.PKey) -> bool:
    with tempfile.NamedTemporaryFile("w", suffix=".pub") as public:
        public.write(f"{key.get_name()} {key.get_base64()}\n")
        public.flush()
        try:
            argv = ["ssh-keygen", "-Q", "-f", str(krl), public.name]
            return subprocess.run(argv, capture_output=True, timeout=_KEYGEN_S, check=False).returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            return False
