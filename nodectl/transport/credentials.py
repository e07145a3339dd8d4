"""The operator's private keys and agent, each read once however many hosts there are."""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import paramiko

from nodectl.transport.target import Target


class _Agent(paramiko.Agent):
    """An agent that many threads may ask to sign: it speaks with one at a time."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        super().__init__()

    def _send_message(self, msg: paramiko.Message) -> object:
        with self._turn:
            return super()._send_message(msg)  # type: ignore[misc]


class Credentials:
    """Keys to offer to a server; safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[Path, paramiko.PKey | str] = {}
        self._agents: dict[str, tuple[paramiko.AgentKey, ...]] = {}

    def offered(self, target: Target) -> Iterator[tuple[str, paramiko.PKey]]:
        """(where it is from, key), the target's own files first, then the agent's keys."""
        named: set[bytes] = set()
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
        """Why the target's own key files could not be used, one reason a file; files that are not there count
        only where there is nothing else."""
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
        socket = target.identity_agent
        if socket is None or socket == "SSH_AUTH_SOCK":
            socket = os.environ.get("SSH_AUTH_SOCK", "")
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
    """The wire form of the public half that lies beside a private key."""
    try:
        return base64.b64decode(path.with_name(path.name + ".pub").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None


def _ask_agent(socket: str) -> tuple[paramiko.AgentKey, ...]:
    """The keys of the agent at `socket`; none where it does not answer."""
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
