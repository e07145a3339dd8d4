"""Preflight on a node: `look REQUEST` answers facts as one JSON object, `listen` and `connect` try the way to a host.

Those two take a JSON request on standard input.
"""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import json
import os
import re
import select
import shutil
import socket
import stat
import sys
import threading
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from ...common import host_lock, machine
from ...common.folders import made
from ...common.frames import say
from ...common.libraries import cuda_of_torch, installed
from ...common.sockets import family
from ..folder import state_root
from ..process import login_of


def look(request: Dict[str, Any]) -> Dict[str, Any]:
    """Return the facts of preflight (nodectl/facts/job.py), by name."""
    return {**_network(request), **_programs(request), **_storage(request)}


_RESOLVE_DEADLINE_S = 5.0
_IP_S = 10.0


def _network(request: Dict[str, Any]) -> Dict[str, Any]:
    links = interfaces()
    address, link = choose(links, request["interface"], list(candidates(request)), not request["others"])
    hostname = socket.gethostname()
    return {
        "names": {"hostname": hostname, "own": resolve(hostname)},
        "job_address": {
            "address": address.split("/")[0],
            "network": str(ipaddress.ip_interface(address).network) if address else "",
            "interface": link.name if link else "",
            "mtu": link.mtu if link else 0,
            "link_up": link is None or (link.up and link.state not in ("down", "lowerlayerdown")),
            "interfaces": [interface.name for interface in links if usable(interface)],
        },
        "free_ports": {"free": free_ports(request["ports"], family(address)), "ephemeral": ephemeral_ports()},
    }


def candidates(request: Dict[str, Any]) -> Iterator[str]:
    """Addresses that may be this node's, the best first: where it was reached, its name, its way to the others."""
    connection = os.environ.get("SSH_CONNECTION", "").split()
    if len(connection) == 4:
        yield connection[2]
    if request["address"]:
        yield from resolve(request["address"]) or ()
    for other in request["others"][:8]:
        with contextlib.suppress(OSError), socket.socket(family(other), socket.SOCK_DGRAM) as probe:
            probe.connect((other, 9))  # nothing is sent
            yield probe.getsockname()[0]


def choose(
    links: Sequence[Interface], interface: str, wanted: Sequence[str], alone: bool
) -> Tuple[str, Optional[Interface]]:
    """Address (CIDR) and link for the job: of the named interface or network, else the first wanted one held here."""
    pairs = [(cidr, link) for link in links for cidr in usable(link)]
    if "/" in interface:
        network = ipaddress.ip_network(interface, strict=False)
        return next((pair for pair in pairs if ipaddress.ip_interface(pair[0]).ip in network), ("", None))
    if interface:
        named = [link for link in links if link.name == interface]
        held = usable(named[0]) if named else []
        return (held[0] if held else ""), (named[0] if named else None)
    here = {cidr.split("/")[0]: (cidr, link) for cidr, link in pairs}
    for address in wanted:
        if address in here:
            return here[address]
    if not alone:
        return "", None
    # a job on one host needs no address that others can reach
    return next(iter(here.values()), ("127.0.0.1/8", None))


def usable(link: Interface) -> List[str]:
    """Its addresses that other hosts can reach, IPv4 first."""
    parsed = [ipaddress.ip_interface(cidr) for cidr in link.addresses]
    kept = [one for one in parsed if not one.ip.is_loopback and not one.ip.is_link_local]
    return [str(one) for one in sorted(kept, key=lambda one: one.version)]


def resolve(name: str) -> Optional[List[str]]:
    """Return the addresses of a name; an empty list: there is no such name; None: no answer in time."""
    answers: List[List[str]] = []

    def ask() -> None:
        try:
            entries = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            answers.append(list(dict.fromkeys(str(entry[4][0]) for entry in entries)))
        except (OSError, UnicodeError):
            answers.append([])

    # getaddrinfo has no deadline: a thread that still waits for a dead name server is left behind
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_RESOLVE_DEADLINE_S)
    return answers[0] if answers else None


def free_ports(ports: Sequence[int], ip: int) -> List[int]:
    """Return those on which nobody on this node listens, by TCP or UDP, on any address of IPv4 or IPv6 (`ip`)."""
    return [port for port in ports if _free(ip, socket.SOCK_STREAM, port) and _free(ip, socket.SOCK_DGRAM, port)]


def _free(ip: int, kind: int, port: int) -> bool:
    with socket.socket(ip, kind) as probe:
        try:
            if kind == socket.SOCK_STREAM:
                # a connection of an earlier job that lingers in TIME_WAIT is in nobody's way
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
            if kind == socket.SOCK_STREAM:
                probe.listen(1)
        except OSError:
            return False
    return True


def ephemeral_ports() -> Optional[List[int]]:
    """First and last port that the kernel gives to outgoing connections; None if it does not say."""
    try:
        first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return None
    return [int(first), int(last)]


class Interface(NamedTuple):
    """An interface; `addresses` in CIDR form, as the kernel lists them."""

    name: str
    up: bool
    state: str
    mtu: int
    addresses: List[str]


def interfaces() -> List[Interface]:
    """Return every interface of this network namespace, as `ip` lists them; [] if it cannot."""
    import subprocess

    paths = os.pathsep.join(filter(None, (os.environ.get("PATH"), "/usr/sbin:/sbin")))
    argv, env = ["ip", "-json", "address", "show"], {**os.environ, "PATH": paths}
    try:
        text = subprocess.run(argv, env=env, stdout=subprocess.PIPE, timeout=_IP_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [
        Interface(
            link["ifname"],
            "UP" in link["flags"],
            str(link.get("operstate", "")).lower(),
            int(link.get("mtu", 0)),
            [f"{entry['local']}/{entry['prefixlen']}" for entry in link.get("addr_info", ()) if "local" in entry],
        )
        for link in json.loads(text)
        if link.get("ifname")  # some versions print {} for others
    ]


_SMI_DEADLINE_S = 20


def _programs(request: Dict[str, Any]) -> Dict[str, Any]:
    launcher = Path(request["launcher"])
    venv = Path(request["venv"]) if request["venv"] else None
    count = gpu_count()
    installed_engines = [engine for engine in request["engines"] if shutil.which(engine)]
    return {
        "launcher": {
            "sha256": hashlib.sha256(launcher.read_bytes()).hexdigest() if launcher.is_file() else "",
            "executable": os.access(launcher, os.X_OK),
        },
        "job_venv": {
            "python": python_version(venv) if venv else "",
            "torch": installed(venv, r"torch") if venv else "",
            "cuda": cuda_of_torch(venv) if venv else "",
            "nccl": installed(venv, r"nvidia[-_.]nccl[-_.]cu\d+") if venv else "",
            "engine": installed(venv, re.escape(request["engine"])) if venv and request["engine"] else "",
        },
        "containers": {"images": {engine: image_of(engine, request["image"]) for engine in installed_engines}},
        "gpu_count": {"count": count},
        "gpu_users": {"processes": gpu_users() if count else []},
    }


def python_version(prefix: Path) -> str:
    """Return the version of the Python of a venv, a conda environment or a system (`/usr`); "" for none."""
    pythons = [prefix / "bin" / name for name in ("python", "python3")]
    executable = next((python for python in pythons if os.access(python, os.X_OK)), None)
    if executable is None:
        return ""
    settings = prefix / "pyvenv.cfg"
    if settings.is_file():
        text = settings.read_text(encoding="utf-8", errors="replace")
        match = re.search(r"^version(?:_info)?\s*=\s*(\d+(?:\.\d+)*)", text, re.MULTILINE)
        return match.group(1) if match else ""
    for record in prefix.glob("conda-meta/python-[0-9]*.json"):
        return record.name.split("-")[1]
    match = re.fullmatch(r"python(\d+(?:\.\d+)*)", os.path.basename(os.path.realpath(executable)))
    return match.group(1) if match else ""


def image_of(engine: str, image: str) -> str:
    """Return what the engine knows the image by, the same on all hosts that have the same one; "" without it."""
    if engine == "apptainer":
        return str(os.path.getsize(image)) if os.path.isfile(image) else "folder" if os.path.isdir(image) else ""
    known_as = machine.printed([engine, "image", "inspect", "--format", "{{.Id}}", image], 15) or ""
    return known_as.strip().split(":")[-1][:64]


def gpu_count() -> Optional[int]:
    """GPUs that the driver lists; None if there are some and it does not answer, or one is lost."""
    devices = len(list(Path("/dev").glob("nvidia[0-9]*")))
    if not shutil.which("nvidia-smi"):
        return devices
    listing = machine.printed(["nvidia-smi", "-L"], _SMI_DEADLINE_S, any_status=True) or ""
    count = sum(line.startswith("GPU ") for line in listing.splitlines())
    is_whole = "Unable to determine" not in listing and (count or not devices)
    return count if is_whole else None


def gpu_users() -> List[str]:
    """Return what computes on the GPUs now, whoever started it; [] if nothing does, or the driver does not say."""
    query = ("--query-compute-apps=pid,used_memory,process_name", "--format=csv,noheader,nounits")
    listing = machine.smi(*query, timeout_s=_SMI_DEADLINE_S) or ""
    users: Dict[str, List[int]] = {}  # the memory of each process on each of its GPUs
    for line in listing.splitlines():
        pid, memory, name = [*(word.strip() for word in line.split(",", 2)), "", ""][:3]
        if pid.isdigit():
            user = f"pid {pid} ({os.path.basename(name)[:40]}, {login_of(int(pid)) or 'login unknown'})"
            users.setdefault(user, []).append(int(memory) if memory.isdigit() else 0)
    return [
        user + (f", {sum(mib)} MiB" if sum(mib) else "") + (f" on {len(mib)} GPUs" if len(mib) > 1 else "")
        for user, mib in users.items()
    ]


_BLOCK_BYTES = 64 * 1024
_MIB = 1024 * 1024


def _storage(request: Dict[str, Any]) -> Dict[str, Any]:
    checkpoints = request["checkpoint_dir"]
    no_folder = {"path": "", "error": "", "free_mib": None}
    return {
        "state_folder": folder(Path(state_root())),
        "checkpoint_folder": folder(Path(checkpoints).expanduser()) if checkpoints else no_folder,
        "needed_paths": {"errors": {path: path_error(Path(path), kind) for path, kind in request["paths"]}},
        "running_jobs": {"ids": sorted(host_lock.running_jobs())},
        "shared_memory": {"size_mib": shm_mib()},
        "rdma_devices": {"names": sorted(path.name for path in Path("/sys/class/infiniband").glob("*"))},
    }


def path_error(path: Path, kind: str) -> str:
    """Return why this login cannot read the file or folder (`kind`: file, folder or any); "" if it can."""
    try:
        is_folder = stat.S_ISDIR(os.stat(path).st_mode)
    except OSError as error:
        return error.strerror or str(error)
    if (kind == "folder" and not is_folder) or (kind == "file" and is_folder):
        return f"it is no {kind}"
    return "" if os.access(path, os.R_OK | (os.X_OK if is_folder else 0)) else "Permission denied"


def folder(path: Path) -> Dict[str, Any]:
    """Return why nothing can be written there, and how much room is left."""
    return {"path": str(path), "error": write_error(path), "free_mib": free_mib(path)}


def write_error(folder: Path) -> str:
    """Return why nothing can be written there; "" if it can."""
    path = folder / f".nodectl-preflight-{os.getpid()}-{time.time_ns()}"
    try:
        with made(folder):
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                with os.fdopen(handle, "wb", buffering=0) as file:
                    file.write(b"\1" * _BLOCK_BYTES)
                    os.fsync(file)
            finally:
                path.unlink()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def free_mib(folder: Path) -> Optional[int]:
    """Room for this login on the file system that holds, or would hold, `folder`; None if it cannot be told."""
    try:
        here = next(path for path in (folder, *folder.parents) if path.exists())
        state = os.statvfs(here)
    except (OSError, StopIteration):
        return None
    return state.f_bavail * state.f_frsize // _MIB


def shm_mib() -> Optional[int]:
    """Size of /dev/shm, through which ranks of one node talk; None if there is none."""
    try:
        state = os.statvfs("/dev/shm")  # noqa: S108 (looked at, nothing is put there)
    except OSError:
        return None
    return state.f_blocks * state.f_frsize // _MIB


def main(arguments: List[str]) -> int:
    """Do what the first word says; the answer is frames."""
    mode = arguments[0]
    if mode == "look":
        say(**look(json.loads(arguments[1])))
    elif mode == "listen":
        listen(json.load(sys.stdin))
    else:
        say(**connect(json.load(sys.stdin)))
    return 0


_RETRY_S = 0.1  # the other side begins at the same moment
_TICK_S = 0.2
_UDP_S = 0.5


def listen(request: Dict[str, Any]) -> None:
    """Answer on both ports until as many addresses as expected have had both answers and hung up, or the time is over.

    Says that it listens.
    """
    token = request["token"].encode()
    end_s = time.monotonic() + request["seconds"]
    tcp, udp = _bound(request, socket.SOCK_STREAM, "tcp_port"), _bound(request, socket.SOCK_DGRAM, "udp_port")
    say(listening=True)
    connections: Dict[socket.socket, str] = {}
    heard: Set[str] = set()
    gone: Set[str] = set()
    with tcp, udp:
        while len(heard & gone) < request["expected"] and time.monotonic() < end_s:
            for ready in select.select([tcp, udp, *connections], [], [], _TICK_S)[0]:
                if ready is tcp:
                    accepted, peer = tcp.accept()
                    connections[accepted] = peer[0]
                elif ready is udp:
                    heard.update(_echo(udp, token))
                elif not _answer(ready, token):
                    gone.add(connections.pop(ready))


def _bound(request: Dict[str, Any], kind: int, port: str) -> socket.socket:
    server = socket.socket(family(request["address"]), kind)
    if kind == socket.SOCK_STREAM:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((request["address"], request[port]))
    if kind == socket.SOCK_STREAM:
        server.listen(1024)
    return server


def _echo(udp: socket.socket, token: bytes) -> List[str]:
    data, sender = udp.recvfrom(256)
    if data != token:
        return []
    with contextlib.suppress(OSError):
        udp.sendto(token, sender)
    return [sender[0]]


def _answer(connection: socket.socket, token: bytes) -> bool:
    """Give the token back; False once the other side has hung up."""
    try:
        data = connection.recv(256)
        if data:
            connection.sendall(token if data == token else b"?")
            return True
    except OSError:
        pass
    connection.close()
    return False


def connect(request: Dict[str, Any]) -> Dict[str, str]:
    """Ask by TCP and UDP from this node's own address; per protocol an empty text, or why there was no answer."""
    end_s = time.monotonic() + request["seconds"]
    # UDP first: hanging up the TCP connection tells the other side that this node is done
    udp = _attempts(request, socket.SOCK_DGRAM, "udp_port", end_s - request["seconds"] / 2)
    return {"udp": udp, "tcp": _attempts(request, socket.SOCK_STREAM, "tcp_port", max(end_s, time.monotonic() + 2))}


def _attempts(request: Dict[str, Any], kind: int, port: str, end_s: float) -> str:
    while True:
        left_s = max(_UDP_S, end_s - time.monotonic())
        try:
            _ask(request, kind, (request["address"], request[port]), _UDP_S if kind == socket.SOCK_DGRAM else left_s)
            return ""
        except socket.timeout:
            error = "no answer"
        except OSError as problem:
            error = problem.strerror or str(problem)
        if time.monotonic() > end_s:
            return error
        time.sleep(_RETRY_S)


def _ask(request: Dict[str, Any], kind: int, server: Tuple[str, int], wait_s: float) -> None:
    token = request["token"].encode()
    with socket.socket(family(server[0]), kind) as client:
        client.settimeout(wait_s)
        client.bind((request["source"], 0))
        client.connect(server)
        client.sendall(token)
        if client.recv(256) != token:
            raise OSError("another program answers there")
