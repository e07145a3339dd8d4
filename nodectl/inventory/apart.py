"""An inventory that a process of its own reads, while its caller loads what will be done with the hosts."""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from nodectl.common.access import Access
from nodectl.errors import InventoryError, NodectlError
from nodectl.inventory import read_inventory
from nodectl.model.host import Host

if TYPE_CHECKING:
    from io import BufferedRWPair

    from nodectl.inventory.read import Inventory

    _Stream = BufferedRWPair[Any, Any]


@dataclass(frozen=True, slots=True)
class _Answer:
    """Hosts with those of their variables that are plain, and by host's name the names of the others."""

    sources: tuple[str, ...]
    hosts: tuple[Host, ...]
    others: Mapping[str, tuple[str, ...]]


class InventoryApart:
    """The inventory of one limit, which is read from now on and asked for later, as `Inventory` is.

    Templates and vaulted values are rendered over there, when they are asked for. Of another limit it is read here.
    """

    def __init__(self, sources: Sequence[str], access: Access, limit: str | None) -> None:
        self._sources, self._access, self._limit = sources, access, limit
        ours, theirs = socket.socketpair()
        # Ctrl-C between the fork and its own care for it would take the process back into the caller's code
        former = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        self._pid = os.fork()
        if self._pid == 0:
            ours.close()
            _read_for(theirs, former, lambda stream: _serve(stream, sources, access, limit))
        signal.pthread_sigmask(signal.SIG_SETMASK, former)
        theirs.close()
        with ours:
            self._stream = ours.makefile("rwb")
        self._turn = threading.Lock()

    @property
    def sources(self) -> tuple[str, ...]:
        """Return it as Ansible was given them."""
        return self._answer.sources

    def hosts(self, limit: str | None = None) -> tuple[Host, ...]:
        """See Inventory.hosts."""
        if limit != self._limit:
            return self._here.hosts(limit)
        answer = self._answer
        return tuple(
            replace(host, variables=_Variables(host.variables, self._asker(host.name, answer.others[host.name])))
            if host.name in answer.others
            else host
            for host in answer.hosts
        )

    def close(self) -> None:
        """End the process, where it still runs."""
        with suppress(OSError):
            self._stream.close()
        pid, self._pid = self._pid, 0
        if pid:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(pid, signal.SIGINT)  # it may still be reading; what it has made goes with it
                os.waitpid(pid, 0)

    @cached_property
    def _here(self) -> Inventory:
        return read_inventory(self._sources, self._access)

    @cached_property
    def _answer(self) -> _Answer:
        answer = self._received()
        if isinstance(answer, NodectlError):
            raise answer
        if not isinstance(answer, _Answer):  # a bug, which shows here with its own trace
            answer = _of(self._here, self._limit)
        if not answer.others:
            self.close()
        return answer

    def _asker(self, host: str, names: Sequence[str]) -> dict[str, Callable[[], object]]:
        return {name: lambda name=name: self._asked(host, name) for name in names}  # type: ignore[misc]

    def _asked(self, host: str, name: str) -> object:
        with self._turn:
            try:
                pickle.dump((host, name), self._stream)
                self._stream.flush()
            except (OSError, ValueError):  # it has ended
                return next(one for one in self._here.hosts(self._limit) if one.name == host).variables[name]
            value = self._received()
        if isinstance(value, NodectlError):
            raise value
        if value is None:
            raise InventoryError(f"host {host}: {name}: the process that reads the inventory was ended")
        return value[0]

    def _received(self) -> Any:
        try:
            return pickle.load(self._stream)  # noqa: S301 - what the fork of this very process wrote
        except (EOFError, OSError, pickle.UnpicklingError):
            return None


class _Variables(Mapping[str, object]):
    """Plain values, and others that are asked for once each."""

    def __init__(self, plain: Mapping[str, object], others: Mapping[str, Callable[[], object]]) -> None:
        self._known, self._others = dict(plain), others

    def __getitem__(self, key: str) -> object:
        if key not in self._known and key in self._others:
            self._known[key] = self._others[key]()
        return self._known[key]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._known, **self._others})

    def __len__(self) -> int:
        return len({**self._known, **self._others})


def _read_for(caller: socket.socket, mask: Iterable[int], serve: Callable[[_Stream], None]) -> NoReturn:
    """The process. What goes wrong in it is no answer: the caller reads the inventory itself then, and sees why."""
    try:
        try:
            atexit._clear()  # what the caller has registered is its own
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            with caller, caller.makefile("rwb") as stream:
                serve(stream)
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            _end_children()
            atexit._run_exitfuncs()  # Ansible's temporary folder
    except BaseException:  # noqa: S110
        pass
    os._exit(0)


def _end_children() -> None:
    """An inventory script that still runs, for nobody."""
    with suppress(OSError):
        for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            os.kill(int(pid), signal.SIGTERM)


def _serve(stream: _Stream, sources: Sequence[str], access: Access, limit: str | None) -> None:
    """Give the answer, then values as they are asked for, until the caller has gone."""
    try:
        inventory = read_inventory(sources, access)
        hosts = {host.name: host for host in inventory.hosts(limit)}
        answer: _Answer | NodectlError = _of(inventory, limit, tuple(hosts.values()))
    except NodectlError as error:
        answer = error
    _send(stream, answer)
    if isinstance(answer, NodectlError) or not answer.others:
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller goes on for a while
    while True:
        host, name = pickle.load(stream)  # noqa: S301 - as above
        try:
            _send(stream, (hosts[host].variables[name],))
        except NodectlError as error:
            _send(stream, error)


def _send(stream: _Stream, value: object) -> None:
    pickle.dump(value, stream)
    stream.flush()


def _of(inventory: Inventory, limit: str | None, hosts: Sequence[Host] | None = None) -> _Answer:
    from nodectl.inventory.read import HostVariables

    plain, others = [], {}
    for host in inventory.hosts(limit) if hosts is None else hosts:
        variables = host.variables
        known = variables.known() if isinstance(variables, HostVariables) else dict(variables)
        plain.append(replace(host, variables=known))
        if left := tuple(name for name in variables if name not in known):
            others[host.name] = left
    return _Answer(inventory.sources, tuple(plain), others)
