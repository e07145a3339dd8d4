"""Connections to SSH servers, and groups of them: Fabric's, which reject all host keys but those of known_hosts."""

from __future__ import annotations

import base64
import logging
import os
import shlex
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from time import monotonic
from typing import Any

import paramiko
from fabric import Config, Connection, Group
from fabric.exceptions import GroupException
from fabric.group import GroupResult
from fabric.runners import Remote
from paramiko.auth_strategy import AuthFailure, AuthSource, AuthStrategy, InMemoryPrivateKey, Password

from nodectl.errors import UnreachableError, UsageError
from nodectl.model.host import Host
from nodectl.transport.fanout import FORKS, fan_out
from nodectl.transport.known_hosts import Standing, find_entries, fingerprint, remove_command, standing, written
from nodectl.transport.ssh_target import Target, password_of, target_of

# for each step: the socket, the handshake, the login, a session
CONNECT_S = 10.0
# kind of key in known_hosts → the algorithms that a server may sign with it
_ALGORITHMS = {
    "ssh-ed25519": ("ssh-ed25519",),
    "ecdsa-sha2-nistp256": ("ecdsa-sha2-nistp256",),
    "ecdsa-sha2-nistp384": ("ecdsa-sha2-nistp384",),
    "ecdsa-sha2-nistp521": ("ecdsa-sha2-nistp521",),
    "ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256"),
}
if sys.platform == "darwin":
    # a kernel that has another name for the first, and none for the second
    _IDLE = ((socket.IPPROTO_TCP, socket.TCP_KEEPALIVE, 10),)
else:
    _IDLE = ((socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10), (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000))
# a link that is cut in the middle of a command is noticed after half a minute, not after TCP's quarter of an hour
_SOCKET_OPTIONS = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    *_IDLE,
)
# paramiko's log repeats its exceptions, which nodectl shows in one clear line
logging.getLogger("paramiko").setLevel(logging.CRITICAL)
_ACCEPT = "compare the fingerprint with the host's own, then: nodectl hostkeys accept"


class KnownHostsPolicy(paramiko.RejectPolicy):
    """Reject every host key that the known_hosts files do not have for the target."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.entries = find_entries(target.known_hosts_files, target.key_name, target.key_port)

    def algorithms(self) -> tuple[str, ...]:
        """Return the host key algorithms to ask for, those of the known keys first, as OpenSSH does."""
        known = [name for entry in self.entries if not entry.marker for name in _ALGORITHMS.get(entry.kind, ())]
        return tuple(dict.fromkeys([*known, *(name for names in _ALGORITHMS.values() for name in names)]))

    def missing_host_key(  # type: ignore[override]
        self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey
    ) -> None:
        """Judge the key; paramiko asks for each, since its own lists of known keys stay empty."""
        wire, label = key.asbytes(), self.target.label
        shown = f"{key.get_name()} {fingerprint(wire)}"
        match standing(self.entries, wire):
            case Standing.KNOWN:
                return
            case Standing.UNKNOWN:
                raise UnreachableError(f"{label}: unknown host key {shown}", _ACCEPT)
            case Standing.REVOKED:
                raise UnreachableError(f"{label}: host key {shown} is revoked in known_hosts", "do not connect")
            case Standing.CHANGED:
                name = written(self.target.key_name, self.target.key_port)
                files = dict.fromkeys(entry.path for entry in self.entries if not entry.marker)
                remove = "; ".join(shlex.join(remove_command(path, name)) for path in files)
                raise UnreachableError(
                    f"{label}: host key CHANGED, now {shown}: this is another machine, or an attack",
                    f"only if the host was rebuilt: {remove}; then: nodectl hostkeys accept",
                )


class QuotingRemote(Remote):  # type: ignore[misc]  # fabric ships no types
    """Fabric's runner pastes `env=` into the command line as it stands; here each value is quoted for the shell."""

    def start(self, command: str, shell: str, env: dict[str, str], timeout: float | None = None) -> None:
        """Send the command, with `env` exported before it."""
        super().start(command, shell, {name: shlex.quote(str(value)) for name, value in env.items()}, timeout)


class CheckedConnection(Connection):  # type: ignore[misc]
    """A fabric.Connection whose host key is checked by `policy`, and that many threads may open.

    `host` is the host's name in the inventory. `users` counts the commands that run over it.
    """

    users = 0

    def __init__(self, name: str, target: Target, password: str | None, gateway: CheckedConnection | None) -> None:
        # a Config is not safe to share between threads
        config = Config(lazy=True, overrides={"runners": {"remote": QuotingRemote}})
        # fabric reads `user@` and a port out of a host's name
        super().__init__("any", user=target.user, port=target.port, config=config, gateway=gateway)
        self.host = name
        self._set(target=target, password=password, policy=KnownHostsPolicy, lock=threading.Lock())

    def open(self) -> None:
        """Connect and log in, if that has not been done; UnreachableError says what failed and what to do about it."""
        with self.lock:
            if self.is_connected:
                return
            try:
                with _explained(self.target):
                    self._connect(self.policy(self.target))
            except BaseException:
                self.client.close()
                raise

    def _connect(self, policy: KnownHostsPolicy) -> None:
        def transport(sock: Any, **options: Any) -> paramiko.Transport:
            made = paramiko.Transport(sock, **options)
            made.get_security_options().key_types = policy.algorithms()
            return made

        target, login = self.target, _Login(self.target, self.password)
        self.client.set_missing_host_key_policy(policy)
        way = self._way()
        try:
            self.client.connect(
                target.address,
                target.port,
                target.user,
                sock=way,
                timeout=CONNECT_S,
                banner_timeout=CONNECT_S,
                auth_timeout=CONNECT_S,
                channel_timeout=CONNECT_S,
                transport_factory=transport,
                auth_strategy=login,
            )
        except AuthFailure as error:
            raise login.failure(self.client.get_transport()) from error
        except (OSError, EOFError, paramiko.SSHException) as error:
            if isinstance(way, paramiko.ProxyCommand) and (reason := _last_words(way)):
                raise UnreachableError(f"{target.label}: ProxyCommand: {reason}", "correct ProxyCommand") from error
            raise
        self.transport = self.client.get_transport()
        if not self.transport.is_authenticated():
            raise paramiko.SSHException("the server asks for more than one proof")
        if self.gateway is None and target.proxy_command is None:
            for level, option, value in _SOCKET_OPTIONS:
                self.transport.sock.setsockopt(level, option, value)

    def _way(self) -> paramiko.ProxyCommand | paramiko.Channel | None:
        if self.gateway is not None:
            self.gateway.open()
            there = self.target.address, self.target.port
            transport: paramiko.Transport = self.gateway.transport
            return transport.open_channel("direct-tcpip", there, ("127.0.0.1", 0), timeout=CONNECT_S)
        command = self.target.proxy_command
        return paramiko.ProxyCommand(shlex.join(["/bin/sh", "-c", f"exec {command}"])) if command else None


def _last_words(command: paramiko.ProxyCommand) -> str:
    stderr: Any = command.process.stderr
    os.set_blocking(stderr.fileno(), False)
    lines = (stderr.read() or b"").decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


class Connections:
    """Makes connections; those to jump hosts are shared by all that go through them."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._jumps: dict[Target, CheckedConnection] = {}

    def to(self, name: str, target: Target, password: str | None = None) -> CheckedConnection:
        """Return a connection to the target, not yet opened."""
        gateway = None
        if target.jump is not None:
            with self._lock:
                gateway = self._jumps.get(target.jump) or self.to(target.jump.address, target.jump)
                self._jumps[target.jump] = gateway
        return CheckedConnection(name, target, password, gateway)

    def close(self) -> None:
        """Close the connections to jump hosts."""
        for jump in list(self._jumps.values()):
            jump.close()


@contextmanager
def _explained(target: Target) -> Iterator[None]:
    started = monotonic()
    try:
        yield
    except (OSError, EOFError, UnicodeError, paramiko.SSHException) as error:
        reason: Exception = error
        if isinstance(error, paramiko.ssh_exception.NoValidConnectionsError):
            reason = next(iter(error.errors.values()))
        text = (isinstance(reason, OSError) and reason.strerror) or str(reason) or type(reason).__name__
        remedy = "check the address, the link and sshd"
        if isinstance(reason, TimeoutError) or monotonic() - started >= CONNECT_S:
            text = f"no answer within {CONNECT_S:g} s"
            remedy = "is the host on, and is no firewall between? check ansible_host and ansible_port"
        elif isinstance(reason, UnicodeError):  # an empty label, or one of more than 63 characters
            text, remedy = f"{target.address!r} is no host name", "correct ansible_host"
        elif isinstance(reason, socket.gaierror):
            remedy = "correct ansible_host, or have the name resolved: /etc/hosts, DNS, ~/.ssh/config"
        elif isinstance(reason, ConnectionRefusedError):
            remedy = "nothing listens there: start sshd on the host, or correct ansible_host and ansible_port"
        raise UnreachableError(f"{target.label}: {text}", remedy) from error


class _Login(AuthStrategy):
    """Offers the named keys first, then the agent's, then the inventory's password."""

    def __init__(self, target: Target, password: str | None) -> None:
        super().__init__(paramiko.SSHConfig())
        self.target, self.password = target, password
        self.refused: list[str] = []

    def get_sources(self) -> Iterator[AuthSource]:
        """Yield what to log in with; a source that did not suffice is followed by the next."""
        for label, key in credentials(self.target)[0]:
            yield InMemoryPrivateKey(self.target.user, key)
            self.refused.append(f"{label} refused")
        if self.password is not None and self.target.allows_password:
            password = self.password
            yield Password(self.target.user, lambda: password)
            self.refused.append("password refused")

    def failure(self, transport: paramiko.Transport | None) -> UnreachableError:
        """Return why nothing was accepted, with the last line of the server's banner."""
        banner = (transport.get_banner() if transport else None) or b""
        reasons = [*self.refused, *credentials(self.target)[1], *banner.decode(errors="replace").splitlines()[-1:]]
        return UnreachableError(
            f"{self.target.label}: permission denied ({'; '.join(reasons) or 'no key to offer'})",
            "check ansible_user and ansible_ssh_private_key_file; load the key into your agent (ssh-add); or give the "
            "password: -k",
        )


def credentials(target: Target) -> tuple[list[tuple[str, paramiko.PKey]], list[str]]:
    """Return (source, key) pairs that the target is offered, and why its other key files cannot be used.

    Missing files are reported only if all of them are missing, and then only the first.
    """
    held = _agent_keys(target.agent) if target.agent else ()
    offered: list[tuple[str, paramiko.PKey]] = []
    unusable: dict[Path, str] = {}
    for path in target.identity_files:
        key = _load(path)
        if isinstance(key, str):
            unusable[path] = f"{path}: {key}"
            offered += [(str(path), other) for other in held if other.asbytes() == _public(path)]
        else:
            offered.append((str(path), key))
    if not target.identities_only:
        named = {key.asbytes() for _, key in offered}
        offered += [("agent", key) for key in held if key.asbytes() not in named]
    present = [why for path, why in unusable.items() if path.exists()]
    return offered, present or list(unusable.values())[:1]


@lru_cache(maxsize=64)
def _load(path: Path) -> paramiko.PKey | str:
    try:
        return paramiko.PKey.from_path(path)
    except FileNotFoundError:
        return "no such file"
    except OSError as error:
        return error.strerror or str(error)
    except (paramiko.PasswordRequiredException, TypeError):
        return "encrypted: load it into your agent (ssh-add)"
    except (paramiko.SSHException, ValueError, NotImplementedError) as error:
        return f"not a key that nodectl reads: {error}"


def _public(path: Path) -> bytes | None:
    try:
        return base64.b64decode(path.with_name(path.name + ".pub").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None


def _agent_keys(path: str) -> tuple[paramiko.AgentKey, ...]:
    agent, conn = paramiko.agent.AgentSSH(), socket.socket(socket.AF_UNIX)
    try:
        conn.connect(path)
        agent._connect(conn)  # type: ignore[attr-defined]  # paramiko.Agent takes SSH_AUTH_SOCK alone
    except (paramiko.SSHException, OSError):
        conn.close()
        return ()
    return agent.get_keys()


class CheckedGroup(Group):  # type: ignore[misc]
    """A fabric.Group over hosts of an inventory, at most `forks` of them at a time.

    As in Fabric, `run`, `sudo`, `put` and `get` return a GroupResult (connection → result), or raise GroupException
    with one where any host failed.
    """

    def __init__(self, hosts: Sequence[Host] = (), forks: int = FORKS) -> None:
        super().__init__()
        if forks < 1:
            raise UsageError(f"forks={forks}: it must be 1 or more")
        self._connections, self._forks = Connections(), forks
        for host in hosts:
            if host.connection != "ssh":
                raise UsageError(f"{host.name} is reached by '{host.connection}', not by SSH", "leave it out")
            self.append(self._connections.to(host.name, target_of(host), password_of(host)))

    def close(self) -> None:
        """Close every session, and those to jump hosts."""
        super().close()
        self._connections.close()

    def _do(self, method: str, *args: Any, **kwargs: Any) -> GroupResult:
        if method in ("run", "sudo"):
            kwargs.setdefault("in_stream", False)  # one terminal cannot be the input of many hosts

        def call(connection: CheckedConnection) -> Any:
            try:
                return getattr(connection, method)(*args, **kwargs)
            except Exception as error:  # a host's failure is a value in Fabric's result
                return error

        outcomes = dict(fan_out(self, call, self._forks))
        results = GroupResult((connection, outcomes[connection]) for connection in self)
        if any(isinstance(outcome, Exception) for outcome in outcomes.values()):
            raise GroupException(results)
        return results
