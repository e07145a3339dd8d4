"""`nodectl lab`: A real fleet on this machine."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click

from nodectl.cli.app import App
from nodectl.cli.options import option, option_group, options, takes
from nodectl.cli.terminal import emit_json, note, result
from nodectl.errors import LabError
from nodectl.lab import spec
from nodectl.lab.base import share_folder
from nodectl.lab.composed import fleet_of
from nodectl.lab.down import down
from nodectl.lab.dress import Wardrobe, wardrobe_for
from nodectl.lab.faults import break_host, heal_hosts, kinds_document, kinds_table
from nodectl.lab.state import HostRecord, LabFolder, LabState, locked
from nodectl.lab.up import up
from nodectl.profiles.gpus import is_composed
from nodectl.recordings.folder import bundled, open_recording

_KEPT_VARIABLES = ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "PYTHONPATH", "PYTHONSAFEPATH")


_name_option = click.option(
    "--name",
    default="lab",
    show_default=True,
    help="Name of the lab; several may be up.",
)
_name_and_yes = options(_name_option, click.option("--yes", is_flag=True, help="Use sudo without asking."))


@click.group()
def lab() -> None:
    """Run a real fleet on this machine: own network, files, processes and sshd a host."""


@option_group
class _Options:
    hosts: int = option("-n --hosts", "Number of hosts.", default=4)
    rate: str | None = option("--rate", "Rate of every link, each way: 1gbit, 100mbit.")
    delay: str | None = option("--delay", "Delay between two hosts, one way (a round trip takes twice that): 10ms.")
    loss: str | None = option("--loss", "Share of packets that are lost, each way: 0.1%.")
    disk: str | None = option("--disk", "Size of each host's file system: 4G, or none.  [default: 8G to 64 hosts]")
    dress: str | None = option(
        "--as",
        "Let the hosts answer as a recording does: a folder, a bundled one, or GPUs: '4 x rtx4090'.",
        metavar="RECORDING",
    )


def _wardrobe(asked: str, names: Sequence[str]) -> Wardrobe:
    if not is_composed(asked) or Path(asked).is_dir() or asked in bundled():
        return wardrobe_for(open_recording(asked), names)
    with tempfile.TemporaryDirectory() as folder:
        return wardrobe_for(fleet_of(asked, Path(folder)), names)


@lab.command("up")
@takes(_Options)
@_name_and_yes
def up_(asked: _Options, name: str, yes: bool) -> None:
    """Bring a lab up and print its inventory's path, and nothing else."""
    wanted = spec.LabSpec(
        hosts=asked.hosts,
        rate_bits=spec.parse_rate(asked.rate) if asked.rate else 0,
        delay_s=spec.parse_delay(asked.delay) if asked.delay else 0.0,
        loss=spec.parse_loss(asked.loss) if asked.loss else 0.0,
        disk_bytes=spec.parse_size(asked.disk) if asked.disk else None,
    )
    wardrobe = None
    if asked.dress:
        wardrobe = _wardrobe(asked.dress, wanted.names())
        wanted = replace(wanted, recorded=wardrobe.name)
    share_folder()  # made by the operator, so that it is the operator's
    folder = _as_root(name, yes)
    with locked():
        state = up(folder, wanted, wardrobe)
    login = f"ssh -F {folder.ssh_config} {state.hosts[0].name}"
    note(f"lab '{name}' is up: {state.spec.described()}, network {state.subnet}; log in with `{login}`")
    result(str(folder.inventory))


@lab.command("down")
@_name_and_yes
def down_(name: str, yes: bool) -> None:
    """Take a lab down: no process, mount, link or file of it stays."""
    folder = _as_root(name, yes)
    with locked():
        existed = down(folder)
    note(f"lab '{name}' is down" if existed else f"no lab '{name}' was up")


@lab.command()
@_name_option
@click.pass_obj
def status(app: App, name: str) -> None:
    """Show a lab's hosts, links and faults."""
    folder = LabFolder.named(name)
    state = folder.read()
    if app.json:
        emit_json("lab-status", _document(folder, state))
    elif state is None:
        note(f"no lab '{name}' is up; `nodectl lab up --name {name}` makes one")
    else:
        result(_table(folder, state))


@lab.command()
@click.argument("kind", required=False)
@click.argument("host", required=False)
@click.option("--list", "listing", is_flag=True, help="List the kinds of faults, and the command that finds each.")
@_name_and_yes
@click.pass_obj
def fault(app: App, kind: str | None, host: str | None, listing: bool, name: str, yes: bool) -> None:
    """Break HOST in the way of KIND (`--list` shows all); `heal` makes it whole."""
    if listing:
        app.show("lab-faults", kinds_document(), kinds_table())
        return
    if kind is None or host is None:
        raise click.UsageError("name a KIND and a HOST; `nodectl lab fault --list` shows the kinds")
    folder = _as_root(name, yes)
    with locked():
        break_host(folder, kind, host)
    named = "" if name == "lab" else f"--name {name} "
    note(f"{host}: {kind}; `nodectl lab heal {named}{host}` undoes it")


@lab.command()
@click.argument("host", required=False)
@click.argument("kind", required=False)
@_name_and_yes
def heal(host: str | None, kind: str | None, name: str, yes: bool) -> None:
    """Undo the faults of HOST (or one KIND of them), or of all hosts."""
    folder = _as_root(name, yes)
    with locked():
        healed = heal_hosts(folder, host, kind)
    note("\n".join(f"{fault.host}: {fault.kind} healed" for fault in healed) or "the lab has no fault to heal")


def _document(folder: LabFolder, state: LabState | None) -> dict[str, object]:
    if state is None:
        return {"inventory": None, "known_hosts": None, "ssh_config": None, "hosts": [], "faults": []}
    return {
        "name": folder.name,
        "inventory": str(folder.inventory),
        "known_hosts": str(folder.known_hosts),
        "ssh_config": str(folder.ssh_config),
        "complete": state.complete,
        "subnet": state.subnet,
        "link": state.link,
        "rate": spec.show_rate(state.spec.rate_bits) if state.spec.rate_bits else None,
        "delay": spec.show_delay(state.spec.delay_s) if state.spec.delay_s else None,
        "loss": state.spec.loss or None,
        "disk_bytes": state.spec.disk_bytes or None,
        "recorded": state.spec.recorded or None,
        "hosts": [
            {
                "name": host.name,
                "address": host.address,
                "pid": host.process.pid if host.process and host.up else None,
                "state": _word(host),
            }
            for host in state.hosts
        ],
        "faults": [{"kind": fault.kind, "host": fault.host} for fault in state.faults],
    }


def _table(folder: LabFolder, state: LabState) -> str:
    faults = {host.name: [f.kind for f in state.faults if f.host == host.name] for host in state.hosts}
    lines = [f"{folder.name}: {state.spec.described()}, {state.subnet}" + ("" if state.complete else ", not complete")]
    for host in state.hosts:
        pid = host.process.pid if host.process and host.up else "-"
        line = f"  {host.name}  {host.address:<14} {_word(host):<5} pid {pid:<8} {', '.join(faults[host.name])}"
        lines.append(line.rstrip())
    return "\n".join([*lines, f"inventory {folder.inventory}"])


def _word(host: HostRecord) -> str:
    return "up" if host.up else "down"


def _as_root(name: str, yes: bool) -> LabFolder:
    """Return the lab's folder; run the command again by sudo if it is not root: a lab makes mounts and links."""
    if os.geteuid() != 0:
        if not shutil.which("sudo"):
            reason = "a lab needs root: mounts, network namespaces, an overlay of /"
            raise LabError(reason, "run it as root, or install sudo")
        kept = [f"{name}={os.environ[name]}" for name in _KEPT_VARIABLES if name in os.environ]
        argv = ["sudo", "env", *kept, sys.executable, "-m", "nodectl", *sys.argv[1:]]
        if not yes and not sys.stdin.isatty():
            raise LabError("a lab needs root, and nobody can be asked for sudo here", "run it as root, or with --yes")
        if not yes and not click.confirm("A lab needs root. Run this command by sudo?", err=True):
            raise LabError("a lab needs root, and sudo was declined", "run it as root")
        os.execvp(argv[0], argv)  # noqa: S606
    return LabFolder.named(name)
