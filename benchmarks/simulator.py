"""Many hosts in one process that answer SSH from a recording, on addresses of 127.0.0.0/8: a fleet to measure against.

Each host has its own address, host key, names, serial numbers and delays, and answers what nodectl's lifeline wraps and
what a plain client asks: the collector of health and facts, `true`, `hostname`, `echo`, and the commands that were
recorded. Of Ansible's modules `node_look`, which only reads, runs once on this machine and answers for all hosts; the
others change nothing, and say so. The rest ends with 127 and says so: no program runs, so probes and jobs have nothing.
Delays and the places of bad hosts are drawn with a fixed seed; none was measured. Bad hosts: `dead` (no answer to a
connection), `refused`, `denied` (takes no key), `stuck` (silent after the banner), `drip` (a byte of output a second).

In FOLDER: inventory.ini, known_hosts, id_ed25519, ssh_config. Prints one line of JSON when all answer, and ends with
its standard input.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import re
import resource
import shlex
import socket
import sys
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path

import asyncssh

from nodectl.model.recording import Entry
from nodectl.recordings.folder import open_recording, read_host
from nodectl.recordings.mask import Template
from nodectl.transport.base import STARTED

USER = "root"
KINDS = ("dead", "refused", "denied", "stuck", "drip")
_LIFELINE = f"echo {STARTED.decode().strip()}; exec /bin/sh -c "
_TAKEN = re.compile(
    r"^    (?:ask_in \S+ |take_file |take_newest |take )+'?([\w-]+)'? \d+ (?:login|root) ", re.MULTILINE
)
# a module arrives as a program for the interpreter's standard input, with its name in the text
_MODULE = re.compile(rb"plugins\.modules\.(\w+)")
_PIPED = re.compile(r"/bin/sh -c '([\w./]+) && sleep 0'")
_NOT_RECORDED = "simulated: no such program here: only what was recorded is answered\n"
# of all hosts: what a login waits before it answers, and a command; of the collector the median and spread of its time
_LOGIN_S, _COMMAND_S, _SPREAD = 0.05, 0.02, 0.4
_HELD_BACK = 4096


def main() -> None:
    """Answer until standard input ends."""
    options = _options()
    kinds = [kind for kind in KINDS for _ in range(getattr(options, kind))]
    if len(kinds) >= options.hosts:
        sys.exit(f"{len(kinds)} bad hosts of {options.hosts}: leave some that answer")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(_serve(Fleet.of(options, kinds), options.folder))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=64)
    parser.add_argument("--folder", type=Path, required=True, help="an empty folder for what a client needs")
    parser.add_argument("--as", dest="recording", default="dgx-a100", help="a bundled recording, or a folder")
    parser.add_argument("--delay", type=float, default=1.0, help="seconds that a collector takes, the median")
    for kind in KINDS:
        parser.add_argument(f"--{kind}", type=int, default=0, metavar="N", help="so many hosts of this kind")
    return parser.parse_args()


@dataclass(frozen=True)
class Recorded:
    """What all hosts answer, with gaps for what is each one's own."""

    name: str
    entries: Mapping[str, Entry]
    template: Template

    @classmethod
    def of(cls, name: str) -> Recorded:
        """Return the first host of a recording."""
        fleet = open_recording(name)
        host, folder = next(iter(fleet.hosts.items()))
        entries = read_host(folder, host, fleet.name).entries
        texts = {f"{key}.{end}": text for key, one in entries.items() for end, text in _streams(one)}
        return cls(fleet.name, entries, Template.of(texts, host))

    @cached_property
    def keys(self) -> dict[tuple[str, ...], str]:
        """The key of each recorded command."""
        return {entry.argv: key for key, entry in self.entries.items()}


def _streams(entry: Entry) -> tuple[tuple[str, str], ...]:
    return ("out", entry.stdout), ("err", entry.stderr)


@dataclass(frozen=True)
class Simulated:
    """One host; `kind` is empty if it answers."""

    name: str
    address: str
    kind: str
    recorded: Recorded
    collector_s: float
    key: asyncssh.SSHKey

    @cached_property
    def texts(self) -> dict[str, str]:
        """What its commands print, by key and stream."""
        return self.recorded.template.filled(self.name)

    def ran(self, argv: Sequence[str]) -> tuple[str, str, int]:
        """Return what a command prints on both streams, and its exit status."""
        match list(argv):
            case ["true"]:
                return "", "", 0
            case ["hostname"]:
                return f"{self.name}\n", "", 0
            case ["echo", *words]:
                return f"{' '.join(words)}\n", "", 0
        key = self.recorded.keys.get(tuple(argv))
        if key is None:
            return "", _NOT_RECORDED, 127
        return self.texts[f"{key}.out"], self.texts[f"{key}.err"], self.recorded.entries[key].exit_status or 0

    def collected(self, script: str) -> bytes:
        """Return what the collector of this text would print here, after its first line."""
        settings, _, body = script.partition(" ")
        nonce = settings.removeprefix("nonce=")
        frames = [frame for key in asked(body) for frame in self._frames(nonce, key)]
        packer = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
        text = "".join([*frames, f"\n{nonce} done\n"]).encode()
        return packer.compress(text) + packer.flush()

    def _frames(self, nonce: str, key: str) -> list[str]:
        entry = self.recorded.entries.get(key)
        status = 127 if entry is None else entry.exit_status
        out, err = self.texts.get(f"{key}.out", ""), self.texts.get(f"{key}.err", "")
        end = "" if status is None else f"\n{nonce} end {status}\n"
        return [f"\n{nonce} out {key}\n{out}{end}\n{nonce} took 2 recorded\n", f"\n{nonce} err {key}\n{err}\n"]


@cache
def asked(body: str) -> tuple[str, ...]:
    """Return the keys that a collector's text asks for; equal hosts are sent equal texts."""
    return tuple(dict.fromkeys(_TAKEN.findall(body)))


_looked: dict[str, asyncio.Task[bytes]] = {}


async def _module(interpreter: str, program: bytes) -> bytes:
    """Return what an Ansible module prints."""
    match = _MODULE.search(program)
    if match is None or match[1] != b"node_look":
        return b'{"changed": false}\n'
    if interpreter not in _looked:
        _looked[interpreter] = asyncio.create_task(_run(interpreter, program))
    return await _looked[interpreter]


async def _run(interpreter: str, program: bytes) -> bytes:
    piped = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(interpreter, stdin=piped, stdout=piped)
    return (await process.communicate(program))[0]


@dataclass(frozen=True)
class Fleet:
    """All hosts, and the one key that they let in."""

    hosts: tuple[Simulated, ...]
    login: asyncssh.SSHKey

    @classmethod
    def of(cls, options: argparse.Namespace, kinds: Sequence[str]) -> Fleet:
        """Return hosts node0001, …, bad ones among them."""
        recorded, chance = Recorded.of(options.recording), random.Random(options.hosts)  # noqa: S311 - no secrets
        hosts = []
        bad = dict(zip(chance.sample(range(1, options.hosts + 1), len(kinds)), kinds, strict=True))
        for number in range(1, options.hosts + 1):
            kind, delay_s = bad.get(number, ""), chance.lognormvariate(math.log(options.delay), _SPREAD)
            address = f"127.1.{number >> 8}.{number & 255}"
            host_key = asyncssh.generate_private_key("ssh-ed25519")
            hosts.append(Simulated(f"node{number:04}", address, kind, recorded, delay_s, host_key))
        return cls(tuple(hosts), asyncssh.generate_private_key("ssh-ed25519"))

    def write(self, folder: Path, ports: Mapping[str, int]) -> dict[str, object]:
        """Write what a client needs, and return where it lies."""
        identity, known, config = (folder / name for name in ("id_ed25519", "known_hosts", "ssh_config"))
        identity.touch(0o600)
        self.login.write_private_key(str(identity))
        lines, blocks, public = ["[all]"], [], ""
        for host in self.hosts:
            port, public = ports.get(host.kind, ports[""]), host.key.export_public_key().decode().strip()
            lines.append(f"{host.name} ansible_host={host.address} ansible_port={port}")
            blocks.append(f"Host {host.name}\n  HostName {host.address}\n  Port {port}\n")
            known.open("a").write(f"[{host.address}]:{port} {' '.join(public.split()[:2])}\n")
        lines += ["", "[all:vars]", f"ansible_user={USER}", f"ansible_ssh_private_key_file={identity}"]
        lines += [f"ansible_ssh_common_args='-o UserKnownHostsFile={known}'"]
        lines += [f"nodectl_{kind}={name}" for kind, name in _profiles(self.hosts[0].recorded.name).items()]
        (folder / "inventory.ini").write_text("\n".join(lines) + "\n")
        own = f"Host *\n  User {USER}\n  IdentityFile {identity}\n  IdentitiesOnly yes\n  UserKnownHostsFile {known}\n"
        config.write_text("".join(blocks) + own + "  StrictHostKeyChecking yes\n  BatchMode yes\n  LogLevel ERROR\n")
        bad = {host.name: host.kind for host in self.hosts if host.kind}
        hosts = [host.name for host in self.hosts]
        return {"inventory": str(folder / "inventory.ini"), "ssh_config": str(config), "hosts": hosts, "bad": bad}


def _profiles(recording: str) -> dict[str, str]:
    return dict(open_recording(recording).profiles)


class _Server(asyncssh.SSHServer):  # type: ignore[misc]
    """One connection's login."""

    def __init__(self, host: Simulated, login: asyncssh.SSHKey) -> None:
        self._host, self._login = host, login

    async def begin_auth(self, username: str) -> bool:
        await asyncio.sleep(_LOGIN_S)
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return self._host.kind != "denied" and bool(key.public_data == self._login.public_data)


async def _serve(fleet: Fleet, folder: Path) -> None:
    loop, by_address = asyncio.get_running_loop(), {host.address: host for host in fleet.hosts}
    open_, refusing, silent = (socket.socket() for _ in range(3))
    for sock in (open_, refusing, silent):
        sock.bind(("0.0.0.0", 0))  # noqa: S104 - all of 127.0.0.0/8; who comes to another address is sent away
    # the kernel answers no further connection to a socket whose queue is full
    silent.listen(0)
    waiting = [socket.socket() for _ in range(2)]
    for sock in waiting:
        sock.setblocking(False)
        sock.connect_ex(("127.0.0.1", silent.getsockname()[1]))
    open_.listen(_HELD_BACK)
    open_.setblocking(False)
    ports = {"": open_, "refused": refusing, "dead": silent}
    document = fleet.write(folder, {kind: sock.getsockname()[1] for kind, sock in ports.items()})
    accepting = asyncio.create_task(_accept(open_, by_address, fleet.login))
    print(json.dumps(document), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    accepting.cancel()


async def _accept(sock: socket.socket, hosts: Mapping[str, Simulated], login: asyncssh.SSHKey) -> None:
    loop, running = asyncio.get_running_loop(), set[asyncio.Task[None]]()
    while True:
        connection, _ = await loop.sock_accept(sock)
        host = hosts.get(connection.getsockname()[0])
        if host is None:
            connection.close()
            continue
        task = asyncio.create_task(_connected(connection, host, login))
        running.add(task)
        task.add_done_callback(running.discard)


async def _connected(connection: socket.socket, host: Simulated, login: asyncssh.SSHKey) -> None:
    if host.kind == "stuck":
        with suppress(OSError):
            await asyncio.get_running_loop().sock_sendall(connection, b"SSH-2.0-OpenSSH_9.6\r\n")
            while await asyncio.get_running_loop().sock_recv(connection, 65536):
                pass
        connection.close()
        return
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with suppress(asyncssh.Error, OSError):
        server = await asyncssh.run_server(
            connection,
            server_factory=partial(_Server, host, login),
            server_host_keys=[host.key],
            process_factory=partial(_answer, host),
            encoding=None,
            allow_pty=False,
            keepalive_interval=0,
            server_version="OpenSSH_9.6",
        )
        await server.wait_closed()


async def _answer(host: Simulated, process: asyncssh.SSHServerProcess[bytes]) -> None:
    with suppress(asyncssh.Error, OSError, asyncio.IncompleteReadError):
        command = process.command or ""
        wrapped = command.startswith(_LIFELINE)
        words = shlex.split(command)
        text, argv = (words[5], words[7:]) if wrapped else ("", words)
        process.stdout.write(STARTED if wrapped else b"")
        given = b""
        if "head -c" in text:  # the lifeline of a command with input
            size, *argv = argv
            given = await process.stdin.readexactly(int(size))
        if argv == ["sh", "-s"] and given.startswith(b"nonce="):
            head = f"\nnodectl-collect/2 {time.time():.9f} gzip {host.recorded.name}\n"
            await _print(host, process.stdout, head.encode())
            await asyncio.sleep(host.collector_s)
            out, err, status = host.collected(given.decode()), b"", 0
        elif piped := _PIPED.fullmatch(command):
            out, err, status = await _module(piped[1], await process.stdin.read()), b"", 0
        else:
            await asyncio.sleep(_COMMAND_S)
            told, complained, status = host.ran(argv)
            out, err = told.encode(), complained.encode()
        await _print(host, process.stdout, out)
        await _print(host, process.stderr, err)
        process.exit(status)


async def _print(host: Simulated, stream: asyncssh.SSHWriter[bytes], data: bytes) -> None:
    if host.kind != "drip":
        stream.write(data)
        return
    for at in range(len(data)):
        stream.write(data[at : at + 1])
        await asyncio.sleep(1)


if __name__ == "__main__":
    main()
