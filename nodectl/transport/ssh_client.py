"""Opens logged-in SSH connections: socket or proxy, host key, the login's keys and agent, under one deadline."""

from __future__ import annotations

import base64
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic

import paramiko

from nodectl.errors import UnreachableError
from nodectl.transport.known_hosts import Standing, fingerprint, known_hosts
from nodectl.transport.ssh_target import Target

CONNECT_S = 10.0
# kind of key in known_hosts → the algorithms that a server may sign with it
ALGORITHMS = {
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


class SshClient:
    """Logs in to SSH servers; connections to jump hosts are shared by all that go through them.

    Safe to use from many threads.
    """

    def __init__(self) -> None:
        self._credentials = _Credentials()
        self._lock = threading.Lock()
        self._jumps: dict[Target, SharedConnection] = {}

    def login(self, target: Target, password: str | None = None) -> paramiko.Transport:
        """Connect and log in within CONNECT_S; UnreachableError says what failed and what to do about it."""
        with _explained(target):
            return self._login(target, password, monotonic() + CONNECT_S)

    def offered_key(self, target: Target, algorithms: tuple[str, ...]) -> paramiko.PKey | None:
        """Return the host key that the target offers for `algorithms`, unchecked (its jump hosts are checked).

        None if it has no such key.
        """
        deadline = monotonic() + CONNECT_S
        with _explained(target):
            try:
                transport = handshake(target, self._reach(target, deadline), algorithms, deadline)
            except paramiko.ssh_exception.IncompatiblePeer:
                return None
            key = transport.get_remote_server_key()
            transport.close()
            return key

    def credentials(self, target: Target) -> tuple[list[str], list[str]]:
        """Return the sources of the keys that would be offered to the target, and why others cannot be used."""
        return [source for source, _ in self._credentials.offered(target)], self._credentials.unusable(target)

    def close(self) -> None:
        """Close the connections to jump hosts."""
        for shared in list(self._jumps.values()):
            shared.close()

    def _login(self, target: Target, password: str | None, deadline: float) -> paramiko.Transport:
        transport = handshake(target, self._reach(target, deadline), _algorithms(target), deadline)
        try:
            check_key(target, transport.get_remote_server_key())
            self._authenticate(target, transport, password, deadline)
        except BaseException:
            transport.close()
            raise
        return transport

    def _reach(self, target: Target, deadline: float) -> socket.socket | paramiko.Channel:
        if target.jump is None:
            return open_socket(target, deadline)
        with self._lock:
            shared = self._jumps.setdefault(target.jump, SharedConnection())
        with shared.lock, _explained(target.jump):
            through = shared.alive() or shared.opened(self._login(target.jump, None, deadline))
        return through.open_channel(
            "direct-tcpip", (target.address, target.port), ("127.0.0.1", 0), timeout=_left(deadline)
        )

    def _authenticate(
        self, target: Target, transport: paramiko.Transport, password: str | None, deadline: float
    ) -> None:
        refused: list[str] = []
        for source, key in self._credentials.offered(target):
            if _accepted(transport, partial(transport.auth_publickey, target.user, key), deadline):
                return
            refused.append(source)
        if password is not None and "password" in target.methods:
            if _accepted(transport, partial(transport.auth_password, target.user, password), deadline):
                return
            refused.append("password")
        banner = transport.auth_handler.banner if transport.auth_handler else None
        said = banner.decode(errors="replace") if isinstance(banner, bytes) else ""
        if "no active jobs" in said:  # pam_slurm_adopt's words
            remedy = "pam_slurm_adopt admits only users with a job on this node: allocate it first (salloc)"
            raise UnreachableError(f"{target.label}: {said.strip().splitlines()[-1]}", remedy)
        reasons = [f"{source} refused" for source in refused] + self._credentials.unusable(target)
        raise UnreachableError(
            f"{target.label}: permission denied ({'; '.join(reasons) or 'no key to offer'})",
            "check ansible_user and ansible_ssh_private_key_file; load the key into your agent (ssh-add); or give the "
            "password: -k",
        )


@dataclass(slots=True)
class SharedConnection:
    """A connection shared by many `users`: the first that needs it opens it, also again after it has died."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    transport: paramiko.Transport | None = None
    users: int = 0

    def alive(self) -> paramiko.Transport | None:
        """Return the connection; None if it is still to be opened, or has died."""
        return self.transport if self.transport is not None and self.transport.is_active() else None

    def opened(self, transport: paramiko.Transport) -> paramiko.Transport:
        """Keep a connection that was just opened."""
        self.transport = transport
        return transport

    def close(self) -> None:
        """Close the connection, if it is open; the next user opens it again."""
        transport, self.transport = self.transport, None
        if transport is not None:
            transport.close()


def open_socket(target: Target, deadline: float) -> socket.socket:
    """Open a TCP connection to the target, or start its ProxyCommand."""
    if target.proxy_command is not None:
        return _proxied(target.proxy_command)
    bind = target.bind_address
    try:
        address = _address(target.address, target.port, target.family)
        sock = socket.create_connection(address, timeout=_left(deadline), source_address=(bind, 0) if bind else None)
    except UnicodeError:  # an empty label, or one of more than 63 characters
        raise OSError(f"{target.address!r} is no host name") from None
    for level, option, value in _SOCKET_OPTIONS:
        sock.setsockopt(level, option, value)
    return sock


def _address(name: str, port: int, family: str) -> tuple[str, int]:
    """Return (address, port) of the family in AddressFamily; the name itself if any family will do."""
    if family == "any":
        return name, port
    wanted = socket.AF_INET if family == "inet" else socket.AF_INET6
    return str(socket.getaddrinfo(name, port, wanted, socket.SOCK_STREAM)[0][4][0]), port


def handshake(
    target: Target, sock: socket.socket | paramiko.Channel, algorithms: tuple[str, ...], deadline: float
) -> paramiko.Transport:
    """Return an encrypted, not yet authenticated connection over `sock`; the host key has not been checked yet."""
    transport = paramiko.Transport(sock)
    transport.daemon = True
    left_s = _left(deadline)
    transport.banner_timeout = transport.handshake_timeout = left_s + 1  # start_client's own tells what it was
    try:
        transport.get_security_options().key_types = algorithms
        transport.start_client(timeout=left_s)
        if not transport.initial_kex_done:
            raise TimeoutError("the SSH handshake did not end in time")
    except BaseException:
        transport.close()
        sock.close()
        raise
    return transport


def check_key(target: Target, key: paramiko.PKey) -> None:
    """Raise UnreachableError unless known_hosts has exactly this key for the target."""
    wire = key.asbytes()
    standing = known_hosts(target.known_hosts_files).standing(target.key_name, target.port, wire)
    shown = f"{key.get_name()} {fingerprint(wire)}"
    match standing:
        case Standing.KNOWN:
            return
        case Standing.UNKNOWN:
            raise UnreachableError(f"{target.label}: unknown host key {shown}", _ACCEPT)
        case Standing.CHANGED:
            raise UnreachableError(
                f"{target.label}: host key CHANGED, now {shown}: this is another machine, or an attack",
                "only if the host was rebuilt: nodectl hostkeys show, then: nodectl hostkeys accept --replace",
            )
        case Standing.REVOKED:
            raise UnreachableError(f"{target.label}: host key {shown} is revoked in known_hosts", "do not connect")
        case Standing.AUTHORITY:
            raise UnreachableError(
                f"{target.label}: known_hosts has a certificate authority for it, not a plain key, which nodectl needs",
                _ACCEPT,
            )


def _algorithms(target: Target) -> tuple[str, ...]:
    """Return the host key algorithms to ask for, those of the target's known keys first, as OpenSSH does."""
    entries = known_hosts(target.known_hosts_files).entries(target.key_name, target.port)
    kept = [algorithm for entry in entries for algorithm in ALGORITHMS.get(entry.kind, ())]
    every = [algorithm for names in ALGORITHMS.values() for algorithm in names]
    return tuple(dict.fromkeys(kept + every))


def _accepted(transport: paramiko.Transport, login: Callable[[], list[str]], deadline: float) -> bool:
    if not transport.is_active():  # the server has closed the connection after too many keys
        return False
    transport.auth_timeout = _left(deadline)
    try:
        further = login()
    except paramiko.AuthenticationException:
        return False
    if further:
        raise paramiko.SSHException(f"the server asks for more than one proof ({', '.join(further)})")
    return True


@contextmanager
def _explained(target: Target) -> Iterator[None]:
    """Turn the errors of sockets and of paramiko into an UnreachableError that names the target."""
    try:
        yield
    except (OSError, EOFError, paramiko.SSHException) as error:
        text = str(error) or type(error).__name__
        if isinstance(error, TimeoutError):
            text = f"no answer within {CONNECT_S:g} s"
        elif isinstance(error, OSError) and error.strerror:
            text = error.strerror
        raise UnreachableError(f"{target.label}: {text}", _what_to_check(error)) from error


def _what_to_check(error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return "correct ansible_host, or have the name resolved: /etc/hosts, DNS, ~/.ssh/config"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there: start sshd on the host, or correct ansible_host and ansible_port"
    if isinstance(error, TimeoutError):
        return "is it on, and does no firewall stand between? ansible_host and ansible_port say where it was asked"
    return "check the address, the link and sshd" if isinstance(error, OSError | EOFError) else ""


class _ProxiedSocket(socket.socket):
    """Our end of a ProxyCommand; closing it terminates the command, since some ignore the end of their input."""

    process: subprocess.Popen[bytes] | None = None

    def close(self) -> None:
        super().close()
        process, self.process = self.process, None
        if process is not None:
            process.terminate()


def _proxied(command: str) -> socket.socket:
    ends = socket.socketpair()
    ours, theirs = _ProxiedSocket(fileno=ends[0].detach()), ends[1]
    with theirs:
        process = subprocess.Popen(
            ["/bin/sh", "-c", f"exec {command}"],
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=subprocess.DEVNULL,
        )
    ours.process = process
    # the ended process must be reaped
    threading.Thread(target=process.wait, daemon=True).start()
    return ours


def _left(deadline: float) -> float:
    left_s = deadline - monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


class _Agent(paramiko.Agent):
    """An agent that many threads may ask to sign; a lock serves them one at a time."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        super().__init__()

    def _send_message(self, msg: paramiko.Message) -> object:
        with self._turn:
            return super()._send_message(msg)  # type: ignore[misc]


class _Credentials:
    """The operator's private keys and agent, each read once however many servers there are."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[Path, paramiko.PKey | str] = {}
        self._agents: dict[str, tuple[paramiko.AgentKey, ...]] = {}

    def offered(self, target: Target) -> Iterator[tuple[str, paramiko.PKey]]:
        """Return (source, key) pairs, the target's own files first, then the agent's keys."""
        named: set[bytes] = set()
        if "publickey" not in target.methods:
            return
        for path in target.identity_files:
            loaded = self._from_file(path)
            key = self._in_agent(target, _public(path)) if isinstance(loaded, str) else loaded
            if key is not None:
                named.add(key.asbytes())
                yield str(path), key
        if not target.identities_only:
            for held in self._agent_keys(target):
                if held.asbytes() not in named:
                    yield "agent", held

    def unusable(self, target: Target) -> list[str]:
        """Return why the target's own key files could not be used, one reason a file.

        Missing files are reported only if all of them are missing, and then only the first.
        """
        reasons = [(path, key) for path in target.identity_files if isinstance(key := self._from_file(path), str)]
        present = [f"{path}: {why}" for path, why in reasons if path.exists()]
        return present or [f"{path}: {why}" for path, why in reasons[:1]]

    def _from_file(self, path: Path) -> paramiko.PKey | str:
        with self._lock:
            if path not in self._files:
                self._files[path] = _load(path)
            return self._files[path]

    def _in_agent(self, target: Target, public: bytes | None) -> paramiko.PKey | None:
        return next((key for key in self._agent_keys(target) if key.asbytes() == public), None) if public else None

    def _agent_keys(self, target: Target) -> tuple[paramiko.AgentKey, ...]:
        socket = os.environ.get("SSH_AUTH_SOCK", "") if target.identity_agent is None else target.identity_agent
        with self._lock:
            if socket not in self._agents:
                self._agents[socket] = _ask_agent(os.path.expandvars(socket)) if socket else ()
            return self._agents[socket]


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
    """Return the wire form of the public half that lies beside a private key."""
    try:
        return base64.b64decode(path.with_name(path.name + ".pub").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None


def _ask_agent(socket: str) -> tuple[paramiko.AgentKey, ...]:
    """Return the keys of the agent at `socket`; none if it does not answer."""
    before = os.environ.get("SSH_AUTH_SOCK")
    os.environ["SSH_AUTH_SOCK"] = socket  # paramiko knows no other way to say which agent
    try:
        return tuple(_Agent().get_keys())
    except (paramiko.SSHException, OSError):
        return ()
    finally:
        if before is None:
            del os.environ["SSH_AUTH_SOCK"]
        else:
            os.environ["SSH_AUTH_SOCK"] = before
