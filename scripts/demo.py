"""The whole main job on a fleet of this machine's own, step by step, as a user would type it: `make demo`."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from nodectl.provision.wheels import ensure_lab_share

T = TypeVar("T")
NODECTL = str(Path(sys.executable).with_name("nodectl"))
# small enough that 4 hosts on 2 cores train it in about a minute
TRAINING = ["--layers", "2", "--d-model", "128", "--heads", "4", "--batch", "16", "--seq", "32"]
TRAINING += ["--samples", "1024", "--epochs", "3", "--log-every", "8"]

console = Console(stderr=True, highlight=False)


class DemoError(Exception):
    """A step did not do what it is there to show."""


@dataclass
class Demo:
    """Steps taken so far and what the closing table says of each."""

    rows: list[tuple[str, str, float]] = field(default_factory=list)

    def step(self, title: str, why: str, work: Callable[[], tuple[T, str]]) -> T:
        """Say what comes and why, do it, and keep its time and its result in one line."""
        console.print(f"\n[bold cyan]── {len(self.rows) + 1}. {title}[/]  [dim]{why}[/]")
        started = time.monotonic()
        value, outcome = work()
        self.rows.append((title, outcome, time.monotonic() - started))
        return value

    def table(self) -> Table:
        """Return a table of what was shown, and how long each step took."""
        table = Table(title="What this machine has just done")
        for name in ("step", "result"):
            table.add_column(name, overflow="fold")
        table.add_column("seconds", justify="right")
        for title, outcome, seconds in self.rows:
            table.add_row(title, outcome, f"{seconds:.1f}")
        return table


def nodectl(*args: str, capture: bool = False) -> str:
    """Run nodectl as a user would, command line shown; DemoError unless it exits 0."""
    console.print(f"[dim]$ nodectl {escape(shlex.join(args))}[/]", soft_wrap=True)
    done = subprocess.run([NODECTL, *args], stdout=subprocess.PIPE if capture else None, text=True, check=False)
    if done.returncode != 0:
        raise DemoError(f"`nodectl {' '.join(args)}` exited {done.returncode}")
    return done.stdout or ""


def nodectl_json(*args: str) -> dict[str, Any]:
    """Return the same with --output json, read."""
    document: dict[str, Any] = json.loads(nodectl("--output", "json", *args, capture=True))
    return document


def lab_up(options: Sequence[str], hosts: int) -> tuple[str, str]:
    """Bring a lab up; return its inventory, and a line."""
    inventory = nodectl("lab", "up", "-n", str(hosts), *options, capture=True).strip()
    os.environ["ANSIBLE_INVENTORY"] = inventory  # what a user would export, so that the commands below stay short
    return inventory, f"{hosts} hosts, each with its own network, files, processes and sshd"


def provision(again: bool) -> tuple[None, str]:
    """Provision the lab; return a line."""
    hosts = nodectl_json("provision", "--yes")["hosts"]
    changed = sum(host["changed"] for host in hosts.values())
    if again and changed:
        raise DemoError(f"the second run changed {changed} things: {hosts}")
    tasks = sum(host["ok"] for host in hosts.values())
    return None, f"{len(hosts)} hosts, {tasks} tasks ok, changed={changed}"


def exec_everywhere() -> tuple[None, str]:
    """Run a command on all hosts; return a line."""
    nodectl("exec", "--", "sh", "-c", ". /etc/os-release && echo $PRETTY_NAME, kernel $(uname -r)")
    return None, "identical output shown once"


def facts(count: int) -> tuple[None, str]:
    """Read all hosts' facts; return a line."""
    nodectl("facts")
    return None, f"{count} hosts read in one round trip each"


def probe(count: int) -> tuple[None, str]:
    """Probe the hosts; return a line."""
    tcp = nodectl_json("probe", "tcp", "--duration", "2", "--pairs", "ring")["measurements"]
    nccl = nodectl_json("probe", "nccl", "--sizes", "64KiB,16MiB", "--repetitions", "3")["measurements"]
    slowest = min(tcp, key=_value)
    best = max((row for row in nccl if row["conditions"].get("collective") == "all_reduce"), key=_value)
    for row in [*tcp, *nccl]:
        label = row["conditions"].get("collective") or row["direction"]
        size = row["conditions"].get("size_bytes")
        console.print(f"  {row['probe']:5} {label:28} {size or '':>9} {row['value']:9.3f} {row['unit']}")
    return None, (
        f"slowest TCP path {slowest['direction']} {slowest['value']:.2f} {slowest['unit']}; "
        f"all_reduce over {count} hosts {best['value']:.3f} {best['unit']} ({best['conditions']['backend']})"
    )


def _value(measurement: dict[str, Any]) -> float:
    return float(measurement["value"])


def train(count: int) -> tuple[None, str]:
    """Train over all hosts; return a line."""
    args = ["launch", "--nproc-per-node", "1", "workload:transformer", "--", *TRAINING]
    console.print(f"[dim]$ nodectl {escape(shlex.join(args))}[/]", soft_wrap=True)
    process = subprocess.Popen([NODECTL, *args], stdout=subprocess.PIPE, text=True)
    lines = []
    for line in process.stdout or ():
        sys.stdout.write(line)
        sys.stdout.flush()
        lines.append(line)
    if process.wait() != 0:
        raise DemoError(f"the training job exited {process.returncode}")
    summary = training_summary(lines)
    if not summary["last_loss"] < summary["first_loss"]:
        raise DemoError(f"the loss did not fall: {summary}")
    if len(summary["hosts"]) != count:
        raise DemoError(f"{len(summary['hosts'])} of {count} hosts took part: {summary['hosts']}")
    return None, (
        f"{summary['world_size']} ranks on {len(summary['hosts'])} hosts, loss {summary['first_loss']:.3f} → "
        f"{summary['last_loss']:.3f}, {summary['samples_per_s']:.0f} samples/s"
    )


def training_summary(lines: Sequence[str]) -> dict[str, Any]:
    """Return the workload's closing JSON line, wherever in the followed output it stands."""
    for line in reversed(lines):
        start = line.find('{"')
        if start >= 0 and '"last_loss"' in line:
            summary: dict[str, Any] = json.loads(line[start:])
            return summary
    raise DemoError("the training job printed no summary")


def run(hosts: int, options: Sequence[str], keep: bool) -> None:
    """Show all steps, one after the other."""
    demo = Demo()
    demo.step("wheels", "PyTorch's CPU build, downloaded once and kept for the next run", share)
    inventory = ""
    try:
        inventory = demo.step("lab up", "a real fleet on this machine", lambda: lab_up(options, hosts))
        demo.step("provision", "Ansible makes the hosts what their profiles say", lambda: provision(again=False))
        demo.step("provision again", "a second run must find nothing to do", lambda: provision(again=True))
        demo.step("exec", "one command everywhere, over SSH, host keys checked", exec_everywhere)
        demo.step("facts", "what every host is", lambda: facts(hosts))
        demo.step("probe", "what every path and the whole fleet reach", lambda: probe(hosts))
        demo.step("launch", "a real distributed training job over all hosts", lambda: train(hosts))
    finally:
        if not keep:
            demo.step("lab down", "nothing of it stays", lambda: (nodectl("lab", "down"), "gone"))
    Console().print(demo.table())
    console.print(closing(inventory, keep), soft_wrap=True)


def share() -> tuple[Path, str]:
    """Make what the lab's hosts share; return its folder, and a line."""
    path = ensure_lab_share(lambda text: console.print(f"  {text}", soft_wrap=True))
    size = sum(entry.stat().st_size for entry in (path / "wheels").glob("*.whl"))
    return path, f"{size / 2**20:.0f} MiB of wheels in {path / 'wheels'}"


def closing(inventory: str, keep: bool) -> str:
    """Return the last lines."""
    kept = f"The lab is still up: export ANSIBLE_INVENTORY={inventory}; nodectl lab down ends it.\n" if keep else ""
    return (
        f"\n{kept}Next, on real nodes:\n"
        "  1. write them into inventory/hosts.yml (names, addresses, nodectl_hardware, nodectl_stack, nodectl_tuning)\n"
        "  2. nodectl hostkeys show; nodectl hostkeys accept        compare the fingerprints first\n"
        "  3. nodectl provision --check --diff; nodectl provision   what would change, then change it\n"
        "  4. nodectl facts; nodectl probe tcp,nccl                 what they are, what they reach\n"
        "  5. nodectl launch your_script.py -- ARGS                 nodectl jobs list | logs -f | stop"
    )


def main() -> int:
    """Show it, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--rate", help="shape every link, e.g. 1gbit")
    parser.add_argument("--delay", help="one-way delay of every link, e.g. 5ms")
    parser.add_argument("--keep", action="store_true", help="leave the lab up")
    args = parser.parse_args()
    options = [word for name in ("rate", "delay") if getattr(args, name) for word in (f"--{name}", getattr(args, name))]
    try:
        run(args.hosts, options, args.keep)
    except DemoError as error:
        console.print(f"[bold red]demo failed:[/] {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
